package serving

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// Socket is the socket of a client, as the goroutines of its session use it.
//
//	 reader                      any goroutine                holder of the pen (Output)
//	┌──────────────────────┐    ┌─────────────────────────┐    ┌────────────────────────┐
//	Fill ──► Unread ──► Skip    Interrupt ──► flag,            write, in pieces
//	KeepAlive, SetDeadline        past read deadline, Heeds    a deadline for each piece
//	Heed ◄───────────────────── Break ──► dead, closed ◄────── an error
//
// Invariant: no interruption is missed. Who interrupts sets the flag before the deadline, and the reader looks at the flag after it
// has set a deadline of its own. The reader may have heeded the flag before it meets the deadline: Fill then reports nothing.
//
// Invariant: a dead socket stays dead, and nothing more is written to it.
type Socket struct {
	// Static after Init.
	Conn  net.Conn
	Log   *slog.Logger
	raw   *RawWriter    // nil if the socket cannot be written without blocking
	heedc chan struct{} // wakes a reader that waits for something else than bytes
	ended chan struct{} // closed when the reader has ended

	// Traffic counts bytes and writes.
	Traffic Traffic

	dead        atomic.Bool
	interrupted atomic.Bool

	// Owned by the reader.
	in       []byte
	begin    int       // start of the unread bytes in in
	flooded  bool      // the last read filled the buffer: the client has sent more
	reads    uint      // since the start, to let others in
	little   int       // small reads into an empty buffer since the last large one
	deadline time.Time // of reading; zero: none

	writeBy time.Time // the write deadline; owned by the holder of the pen
}

// Traffic counts bytes and frames. The session counts the frames.
type Traffic struct {
	ReceivedBytes, ReceivedFrames, SentBytes, Writes atomic.Uint64
}

const (
	readSize    = 8 << 10   // of an idle connection's buffer, in bytes
	maxReadSize = 256 << 10 // of a busy one's
	idleReads   = 8         // a connection is no longer busy after so many small reads in a row
	// politeReads is after how many reads others are let in where something else is spoken below: a read of small records of TLS, or of
	// small frames of WebSocket, fills no buffer, though more is there.
	politeReads = 16

	// strangerReadSize is the size of the buffer before the login. It grows up to the largest frame that the protocol allows there.
	strangerReadSize = 1 << 10
	// MaxStranger is how many bytes are read from a client before its login. A handshake has a few small frames.
	MaxStranger = 64 << 10

	// writeTimeout is how long a client may take for writePiece bytes. It always has at least half of that.
	writeTimeout = 2 * time.Minute
	// writePiece is larger than a usual write.
	writePiece = 2 * WriteSize
	// LastWords is how long the end of a connection waits for the client to accept the last frames.
	LastWords = 5 * time.Second
)

var (
	// ErrInterrupted is the error of a Fill that Interrupt has ended.
	ErrInterrupted = errors.New("interrupted")
	// ErrTooMuch is the error of a client that sends more than MaxStranger bytes before its login.
	ErrTooMuch = errors.New("the client has sent too much before its login")
)

// Init prepares a socket of which first has been read. log is that of the connection.
func (s *Socket) Init(nc net.Conn, first []byte, log *slog.Logger) {
	s.Conn, s.Log, s.raw = nc, log, NewRawWriter(nc)
	s.heedc, s.ended = make(chan struct{}, 1), make(chan struct{})
	s.in = append(make([]byte, 0, strangerReadSize), first...)
}

// Unread are the bytes that have come and were not skipped. They are valid until the next Fill.
func (s *Socket) Unread() []byte { return s.in[s.begin:] }

// Skip takes n bytes off the front of Unread.
func (s *Socket) Skip(n int) { s.begin += n }

// Append adds bytes that another has read from the socket.
func (s *Socket) Append(b []byte) {
	s.Traffic.ReceivedBytes.Add(uint64(len(b)))
	s.in = append(s.in, b...)
}

// Fill reads n more bytes behind the unread ones. The buffer grows while reads fill it, and to the size of a large frame; it shrinks
// when little arrives for a while, for example only heartbeats. Before the login little is read, and only the present frame
// enlarges the buffer.
//
// Without bytes and error there was nothing to do. The error is ErrInterrupted after Interrupt, os.ErrDeadlineExceeded if the client
// was silent up to the deadline, ErrTooMuch, or that of the socket.
func (s *Socket) Fill(loggedIn bool) (n int, err error) {
	if s.begin == len(s.in) {
		s.in, s.begin = s.in[:0], 0
		if s.little >= idleReads && cap(s.in) > readSize {
			s.in = make([]byte, 0, readSize)
		}
	} else if s.begin > 0 && (s.begin >= cap(s.in)/2 || len(s.in) == cap(s.in)) {
		n := copy(s.in, s.in[s.begin:])
		s.in, s.begin = s.in[:n], 0
	}
	if len(s.in) == cap(s.in) {
		s.enlarge(2 * cap(s.in))
	}
	if s.reads++; s.flooded || s.raw == nil && s.reads%politeReads == 0 {
		runtime.Gosched() // reads that do not block let others in after 10 ms only
	}
	n, err = s.Conn.Read(s.in[len(s.in):cap(s.in)])
	if n <= 0 {
		s.flooded = false
		return 0, s.unfilled(err)
	}
	received := s.Traffic.ReceivedBytes.Add(uint64(n))
	s.flooded = len(s.in)+n == cap(s.in)
	if s.little++; len(s.in) > 0 || n > readSize/2 {
		s.little = 0
	}
	s.in = s.in[:len(s.in)+n]
	switch {
	case !loggedIn:
		if received > MaxStranger {
			s.Log.Warn("closed a connection whose client sent too much before its login", "bytes", received)
			return n, ErrTooMuch
		}
	case s.flooded && cap(s.in) < maxReadSize:
		s.enlarge(min(max(4*cap(s.in), readSize), maxReadSize))
	}
	return n, nil
}

// enlarge makes the buffer one of size bytes.
func (s *Socket) enlarge(size int) {
	s.in = append(make([]byte, 0, size), s.in...)
}

// unfilled is why nothing was read.
func (s *Socket) unfilled(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		switch {
		case s.interrupted.Load():
			return ErrInterrupted
		case s.deadline.IsZero() || time.Now().Before(s.deadline): // that of an interruption which was heeded before
			s.SetDeadline(s.deadline)
			return nil
		}
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// SetDeadline sets when reading ends; zero: never.
func (s *Socket) SetDeadline(at time.Time) {
	s.deadline = at
	_ = s.Conn.SetReadDeadline(at)
	if s.interrupted.Load() { // the line above may have overwritten the deadline of Interrupt, and delayed it until ours
		_ = s.Conn.SetReadDeadline(time.Now())
	}
}

// Deadline is what was set last.
func (s *Socket) Deadline() time.Time { return s.deadline }

// KeepAlive moves the deadline: a client is disconnected after between two and three times silence without a byte; 0 or less: never.
// It moves the deadline only when it is near, because each move costs a timer of the system.
func (s *Socket) KeepAlive(silence time.Duration) {
	if silence <= 0 {
		return // there is no deadline
	}
	if now := time.Now(); s.deadline.Sub(now) < 2*silence {
		s.deadline = now.Add(3 * silence)
		_ = s.Conn.SetReadDeadline(s.deadline) // the reader looks at the flag afterwards
	}
}

// Interrupt makes the reader handle requests of other goroutines. Any goroutine may call it.
func (s *Socket) Interrupt() {
	s.interrupted.Store(true)
	_ = s.Conn.SetReadDeadline(time.Now())
	select {
	case s.heedc <- struct{}{}:
	default:
	}
}

// Interrupted says whether the reader has to handle requests.
func (s *Socket) Interrupted() bool { return s.interrupted.Load() }

// Heed forgets an interruption and sets the deadline. The reader looks at all requests afterwards.
func (s *Socket) Heed(deadline time.Time) {
	s.interrupted.Store(false)
	s.SetDeadline(deadline)
}

// Heeds wakes a reader that waits for something else than bytes, after Interrupt. It may do so without reason.
func (s *Socket) Heeds() <-chan struct{} { return s.heedc }

// Break is called when the socket cannot be written. The reader finds out.
func (s *Socket) Break() {
	if s.dead.CompareAndSwap(false, true) {
		_ = s.Conn.Close()
		s.Interrupt() // even one that waits for something else than bytes
	}
}

// Dead says whether the socket is broken.
func (s *Socket) Dead() bool { return s.dead.Load() }

// Ended is closed when the reader has ended.
func (s *Socket) Ended() <-chan struct{} { return s.ended }

// write writes b with a deadline for each piece, so that a slow client also gets a large message, and is not cut off in it again and
// again. REQUIRES: the pen.
func (s *Socket) write(b []byte) error {
	for len(b) > 0 {
		s.extendWriteDeadline()
		n, err := s.Conn.Write(b[:min(len(b), writePiece)])
		s.wrote(n)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// wrote counts a write of n bytes.
func (s *Socket) wrote(n int) {
	s.Traffic.SentBytes.Add(uint64(n))
	s.Traffic.Writes.Add(1)
}

// extendWriteDeadline keeps the write deadline in the future. It moves the deadline only when it is near. REQUIRES: the pen.
func (s *Socket) extendWriteDeadline() {
	select {
	case <-s.ended:
		return // end has set the last one
	default:
	}
	if now := time.Now(); s.writeBy.Sub(now) < writeTimeout/2 {
		s.writeBy = now.Add(writeTimeout)
		_ = s.Conn.SetWriteDeadline(s.writeBy)
		select {
		case <-s.ended: // it ended just now: the last deadline may be overwritten
			_ = s.Conn.SetWriteDeadline(now.Add(LastWords))
		default:
		}
	}
}

// end says that the reader has ended. The writer has LastWords from now on, also for a write in progress.
func (s *Socket) end() {
	close(s.ended)
	_ = s.Conn.SetWriteDeadline(time.Now().Add(LastWords))
}

// Close closes the socket when everything is written, unless the client has closed the connection politely: then the socket stays open
// for the client to close, and leaves says so. Libraries take a socket that ends with our answer for a failure, and some send pending
// frames after their close: a socket that is closed answers them with a reset, which may take our answer with it.
func (s *Socket) Close(politely bool) (leaves bool) {
	if politely && !s.dead.Load() {
		return true
	}
	_ = s.Conn.Close()
	return false
}
