// Package session10 is the AMQP 1.0 session of one client: a connection, its sessions, and their links. The server calls Serve
// for each connection. The package knows the protocol; it never decides what a queue or an exchange does, the broker does.
//
// Numbers in brackets are sections of the standard. Error conditions and texts are RabbitMQ's.
//
// Goroutines: as in session091. The reader owns the connection and its sessions, except what session.mu guards. It decodes all
// frames that have arrived, collects their operations on queues, and runs them as one batch. The writer sends the content of
// the output. Partitions put deliveries into the output from any goroutine. The reader ends the writer and waits for it.
package session10

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// Options are the settings that a listener passes to its connections.
type Options struct {
	Broker      *broker.Broker
	Logger      *slog.Logger
	SessionMax  int           // sessions of a connection; 0: 64
	LinkMax     int           // links of a session; 0: 256
	FrameMax    uint32        // of frames from the client, in bytes; 0: 131072
	IdleTimeout time.Duration // a client that is silent for so long is closed; 0: 60 s; negative: none is
	Mechanisms  []string      // nil: PLAIN and AMQPLAIN
	// Anonymous are the credentials of ANONYMOUS, if it is offered.
	Anonymous auth.Credentials
	// TLS describes the client's TLS; nil without TLS.
	TLS *broker.TLS
	// HandshakeTimeout is how long a client may take to open a virtual host; 0: 10 s.
	HandshakeTimeout time.Duration
	// Opened, if not nil, is called once when the client has opened a virtual host.
	Opened func()
	// Stands, if not nil, is called with the state of the client's login until then.
	Stands  func(broker.Standing)
	Product string // "": RabbitMQ
	Version string // the compatible version of RabbitMQ
	Release string // our own version
	// Strict does as RabbitMQ where we would rather not: a connection that cannot be opened is closed without a word.
	Strict bool
}

const (
	defaultSessionMax  = 64
	defaultLinkMax     = 256
	defaultFrameMax    = 131072
	openFrameMax       = 8192 // before open, as RabbitMQ's
	defaultIdleTimeout = 60 * time.Second

	defaultHandshake = 10 * time.Second
	closeTimeout     = 30 * time.Second // for the client's close, as long as RabbitMQ waits

	readSize    = 8 << 10   // of an idle connection's buffer
	maxReadSize = 256 << 10 // of a busy one's
	idleReads   = 8         // a connection is no longer busy after so many small reads in a row

	strangerReadSize = 1 << 10 // before the login; it grows up to openFrameMax
	// maxStrangerBytes is how much is read from a client before its login. The handshake has a few frames there, and none is
	// larger than openFrameMax.
	maxStrangerBytes = 64 << 10
)

// conn is one connection.
type conn struct {
	// Static after construction.
	Options
	broker *broker.Broker
	nc     net.Conn
	raw    *serving.RawWriter // nil if the socket cannot be written without blocking
	log    *slog.Logger
	peer   broker.Peer
	since  time.Time

	// Set by the handshake, static afterwards.
	mechanism   auth.Mechanism
	link        *broker.Connection // nil until the client is let in
	vhost       message.VHost
	login       broker.Login
	cause       deadletter.Cause // who its consumers are, without their links
	clientProps amqp091.Table
	container   string
	clientMax   uint32 // max-frame-size of the client
	channelMax  uint16 // the highest channel number

	// Owned by the reader.
	frameMax uint32 // of frames from the client
	in       []byte
	begin    int // start of the unconsumed bytes in in
	little   int // small reads into an empty buffer since the last large one
	ops      []partition.Op
	opOwner  []opOwner
	opBytes  int // bytes of the records that ops publish
	targets  int // number of queues that they go to
	// unfinished is the size of the buffers for incomplete messages.
	unfinished int
	// spare is the buffer for the next message that comes in several frames; nil while one uses it.
	spare []byte
	// Publishers with transfers that were run and must be answered.
	confirming []*publisher
	receipt    partition.Receipt // to be awaited before these answers
	state      state
	told       *failure // the shutdown that was sent to the client
	pub        broker.Publication
	settling   []unsettled // scratch space of settle
	inbound    inbound     // scratch space of transfers
	deadline   time.Time   // the socket's read deadline
	alarmed    bool        // the sessions' windows are closed for an alarm
	unalarm    func()      // ends the subscription to alarms; nil before the open

	sessions map[uint16]*session // the reader writes it under chMu; others read it under chMu
	chMu     held.Mutex

	out      output
	renderer renderer      // owned by the holder of the pen
	window   bodies.Window // for records on disk; owned by the holder of the pen
	writeBy  time.Time     // the socket's write deadline; owned by the holder of the pen
	beat     atomic.Int64  // how often the client wants to hear something, a time.Duration

	ended   chan struct{} // closed when the reader ends
	writing sync.WaitGroup
	dead    atomic.Bool // the socket is broken
	stats   traffic

	// Requests of other goroutines to the reader: see interrupt.
	interrupted atomic.Bool
	heedc       chan struct{}           // wakes a reader that waits for room
	shutdown    atomic.Pointer[failure] // closes the connection
	aborts      []abortion              // sessions to be ended; guarded by chMu
}

// traffic counts bytes and frames.
type traffic struct {
	recvBytes, recvFrames, sentBytes, writes atomic.Uint64
}

// sent counts a write of n bytes.
func (t *traffic) sent(n int) {
	t.sentBytes.Add(uint64(n))
	t.writes.Add(1)
}

// state is the state of the connection.
type state uint8

const (
	stateSASL    state = iota // mechanisms sent, init or a response due
	stateHeader               // logged in, the header of AMQP due
	stateOpen                 // open due
	stateRunning              //
	stateClosing              // close sent, the client's due
	stateClosed               // nothing more is read
)

// Headers are the protocol headers that open AMQP 1.0. Only the one of SASL is served; a client with the other is told so.
var Headers = []string{amqp10.ProtocolHeaderSASL, amqp10.ProtocolHeader}

// Serve serves one client until the connection ends. first are the bytes that were already read: its protocol header. Serve
// closes the socket.
func Serve(nc net.Conn, first []byte, o Options) {
	if string(first) != amqp10.ProtocolHeaderSASL {
		refuseHeader(nc)
		return
	}
	if o.SessionMax == 0 {
		o.SessionMax = defaultSessionMax
	}
	if o.LinkMax == 0 {
		o.LinkMax = defaultLinkMax
	}
	if o.FrameMax == 0 {
		o.FrameMax = defaultFrameMax
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.Mechanisms == nil {
		o.Mechanisms = []string{"AMQPLAIN", "PLAIN"}
	}
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = defaultHandshake
	}
	if o.Stands == nil {
		o.Stands = func(broker.Standing) {}
	}
	c := &conn{
		Options: o, broker: o.Broker, nc: nc, raw: serving.NewRawWriter(nc), peer: serving.PeerOf(nc, "AMQP 1-0"), since: time.Now(),
		frameMax: openFrameMax, clientMax: openFrameMax, sessions: map[uint16]*session{}, ended: make(chan struct{}),
	}
	held.Name(&c.out.mu, "the output of a connection")
	held.Name(&c.chMu, "the sessions of a connection")
	c.log = o.Logger.With("conn", c.peer.Name)
	c.out.wakec, c.out.roomc, c.heedc = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	c.in = make([]byte, 0, strangerReadSize)
	c.writing.Go(bug.Guarded(c.log, "the writer of a connection", c.write))
	// However the reader ends, even with a panic, the client's deliveries go back.
	err := errPanic
	defer func() { c.end(err) }()
	defer bug.Contain(c.log, entry, c.free) // runs first: the end of a session needs shared state
	c.offerMechanisms()
	c.deadline = time.Now().Add(o.HandshakeTimeout)
	_ = nc.SetReadDeadline(c.deadline)
	err = c.read()
}

// refuseHeader tells a client that it has to log in first, as RabbitMQ 4 does. What the client has sent beyond its header is
// read, within limits: closing a socket with bytes unread resets it, and the client might not see the answer.
func refuseHeader(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(serving.LingerTime))
	_, err := io.WriteString(nc, amqp10.ProtocolHeaderSASL)
	if c, ok := nc.(interface{ CloseWrite() error }); ok && err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, nc, maxStrangerBytes)
	}
	_ = nc.Close()
}

// entry is the name of Serve on a stack.
const entry = "bartleby.mq/internal/edge/session10.Serve"

// errPanic is the error of a reader that has panicked.
var errPanic = errors.New("the session failed")

// errEnd ends the reader silently.
var errEnd = errors.New("connection ended")

// errBroken ends the reader because the socket can no longer be written.
var errBroken = errors.New("the socket is broken")

// wordless says whether an error ends the connection without a close frame.
func wordless(err error) bool { return errors.Is(err, errEnd) || errors.Is(err, errBroken) }

// read is the reader's loop: read the available bytes, handle every whole frame, run their operations as one batch, answer.
func (c *conn) read() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		for {
			n, err := c.next()
			if err != nil {
				c.flushOps()
				return err
			}
			if n == 0 {
				break
			}
			c.begin += n
		}
		c.flushOps()
		c.confirm()
		c.flush(true)
		c.waitForRoom()
		if c.state == stateClosed {
			return errEnd
		}
	}
}

// next handles what is at the start of the unconsumed bytes, and returns its length; 0 if it is not whole. An error ends the
// connection without a word.
func (c *conn) next() (n int, err error) {
	rest := c.in[c.begin:]
	switch c.state {
	case stateHeader:
		if len(rest) < amqp10.ProtocolHeaderSize {
			return 0, nil
		}
		return amqp10.ProtocolHeaderSize, c.header(rest[:amqp10.ProtocolHeaderSize])
	case stateClosed:
		return len(rest), nil // the client has our close, and may send nothing after its own
	}
	f, n, err := amqp10.NextFrame(rest, c.frameMax)
	if err != nil {
		var bad *amqp10.FrameError
		if errors.As(err, &bad) { // the start of the next frame is unknown
			return len(rest), c.close(c.badFrame(rest))
		}
		return 0, err
	}
	if n == 0 {
		return 0, nil
	}
	c.stats.recvFrames.Add(1)
	return n, c.frame(f)
}

// badFrame is the failure for what begins with no header of a frame, in RabbitMQ's words.
func (c *conn) badFrame(b []byte) *failure {
	size, doff := binary.BigEndian.Uint32(b), uint32(b[4])
	text := fmt.Sprintf("unexpected frame type %d in amqp mode (expected 0)", b[5])
	switch {
	case size < minFrame:
		text = fmt.Sprintf("frame size (%d bytes) < minimum frame size (%d bytes)", size, minFrame)
	case size > c.frameMax:
		text = fmt.Sprintf("frame size (%d bytes) > maximum frame size (%d bytes)", size, c.frameMax)
	case doff < minFrame/4:
		text = fmt.Sprintf("data offset (%d) < minimum data offset (%d)", doff, minFrame/4)
	case 4*doff > size:
		text = fmt.Sprintf("data offset (%d bytes) > frame size (%d bytes)", 4*doff, size)
	}
	return fail(amqp10.ConditionFramingError, "%s", text)
}

// minFrame is the size of the smallest frame, which is all header (2.3.1).
const minFrame = 8

// fill reads more bytes after the unconsumed ones. The buffer grows while reads fill it, and to the size of a large frame; it
// shrinks when little arrives for a while. Before the login little is read, and only the present frame enlarges the buffer.
func (c *conn) fill() error {
	if c.begin == len(c.in) {
		c.in, c.begin = c.in[:0], 0
		if c.little >= idleReads && cap(c.in) > readSize {
			c.in = make([]byte, 0, readSize)
		}
	} else if c.begin > 0 && (c.begin >= cap(c.in)/2 || len(c.in) == cap(c.in)) {
		n := copy(c.in, c.in[c.begin:])
		c.in, c.begin = c.in[:n], 0
	}
	if len(c.in) == cap(c.in) {
		bigger := make([]byte, len(c.in), 2*cap(c.in))
		copy(bigger, c.in)
		c.in = bigger
	}
	if c.state == stateRunning {
		c.extendDeadline()
		if c.interrupted.Load() {
			return c.heed()
		}
	}
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	if n > 0 {
		c.received(n)
		full := len(c.in)+n == cap(c.in)
		if c.little++; len(c.in) > 0 || n > readSize/2 {
			c.little = 0
		}
		c.in = c.in[:len(c.in)+n]
		switch {
		case c.link == nil:
			if c.stats.recvBytes.Load() > maxStrangerBytes {
				c.log.Warn("closed a connection whose client sent too much before its login", "bytes", c.stats.recvBytes.Load())
				return errEnd
			}
		case full && cap(c.in) < maxReadSize:
			bigger := make([]byte, len(c.in), min(max(4*cap(c.in), readSize), maxReadSize))
			copy(bigger, c.in)
			c.in = bigger
		}
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		switch {
		case c.interrupted.Load():
			if c.state == stateRunning {
				return c.heed()
			}
			// A request to close a connection that is already closing does not wait for the client.
			c.interrupted.Store(false)
			if stop := c.shutdown.Load(); stop == nil || stop == c.told {
				c.setDeadline()
				return nil
			}
		case c.deadline.IsZero() || time.Now().Before(c.deadline): // the deadline was not ours: interrupt set it, and was handled before
			c.setDeadline()
			return nil
		case c.state == stateRunning:
			c.flushOps()
			return c.close(fail(amqp10.ConditionResourceLimitExceeded, "no frame received from client within idle timeout threshold"))
		}
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// received counts read bytes.
func (c *conn) received(n int) {
	c.stats.recvBytes.Add(uint64(n))
	c.broker.Received(n)
}

// extendDeadline moves the read deadline: a connection is dropped after between two and three of its idle time-outs of silence,
// as one of AMQP 0-9-1 after so many heartbeats. It moves the deadline only when it is near, because each move costs a
// timer of the system.
func (c *conn) extendDeadline() {
	if c.IdleTimeout <= 0 {
		return // open and heed have removed the deadline
	}
	now := time.Now()
	if c.deadline.Sub(now) < 2*c.IdleTimeout {
		c.deadline = now.Add(3 * c.IdleTimeout)
		_ = c.nc.SetReadDeadline(c.deadline)
	}
}

// frame handles one frame. An error ends the connection without a word.
func (c *conn) frame(f amqp10.Frame) error {
	if c.state == stateSASL != (f.Type == amqp10.FrameSASL) {
		want, mode := amqp10.FrameAMQP, "amqp"
		if c.state == stateSASL {
			want, mode = amqp10.FrameSASL, "sasl"
		}
		return c.close(fail(amqp10.ConditionFramingError, "unexpected frame type %d in %s mode (expected %d)", f.Type, mode, want))
	}
	if len(f.Body) == 0 {
		return nil // it keeps the connection alive (2.4.5)
	}
	err := c.perform(f)
	if err == nil {
		return nil
	}
	if wordless(err) {
		return err
	}
	c.flushOps()
	failed := asFailure(err)
	s := c.sessions[f.Channel]
	if failed.scope == ofConnection || s == nil || c.state != stateRunning {
		return c.close(failed)
	}
	c.confirm()
	c.endSession(s, failed)
	return nil
}

// perform carries out a performative.
func (c *conn) perform(f amqp10.Frame) error {
	d, v, payload, err := amqp10.ReadPerformative(f)
	if err != nil {
		return undecodable(err)
	}
	if c.state == stateSASL {
		return c.sasl(d, v)
	}
	if f.Channel > c.channelMax {
		return fail(amqp10.ConditionFramingError, "channel number (%d) exceeds maximum channel number (%d)", f.Channel, c.channelMax)
	}
	switch d {
	case amqp10.DescriptorClose:
		return c.closed()
	case amqp10.DescriptorOpen:
		if c.state != stateOpen {
			return fail(amqp10.ConditionInternalError, "unexpected open")
		}
		var open amqp10.Open
		if err := open.Decode(v); err != nil {
			return undecodable(err)
		}
		return c.open(&open)
	}
	if c.state == stateClosing {
		return nil
	}
	if c.state != stateRunning {
		return fail(amqp10.ConditionInternalError, "unexpected frame before open")
	}
	s := c.sessions[f.Channel]
	if s == nil {
		if d != amqp10.DescriptorBegin {
			return nil // of a session that has ended
		}
		var begin amqp10.Begin
		if err := begin.Decode(v); err != nil {
			return undecodable(err)
		}
		return c.beginSession(f.Channel, &begin)
	}
	return s.perform(d, v, payload)
}

// closed handles the client's close.
func (c *conn) closed() error {
	if c.state == stateClosing {
		return errEnd
	}
	if c.link != nil {
		c.flushOps()
		c.confirm()
		c.endSessions()
		c.link.Disconnect() // before the answer: the client may then connect again at once
	}
	c.out.putFrame(0, &amqp10.Close{})
	c.state = stateClosed
	return nil
}

// close sends close and waits for the client's, ignoring all other frames (2.7.9).
func (c *conn) close(f *failure) error {
	if c.state == stateClosing || c.state == stateClosed {
		return nil
	}
	if c.state != stateRunning {
		return c.refuse(f)
	}
	c.log.Error("closing connection", "condition", f.condition, "reason", f.text, "user", c.login.User)
	c.endSessions()
	c.link.RemoveExclusive() // afterwards; the connection counts until its client has answered
	c.out.putFrame(0, &amqp10.Close{Error: f.wire()})
	c.state = stateClosing
	c.deadline = time.Now().Add(closeTimeout)
	c.setDeadline()
	return nil
}

// setDeadline sets the socket's read deadline to the reader's, or to that of interrupt.
func (c *conn) setDeadline() {
	_ = c.nc.SetReadDeadline(c.deadline)
	if c.interrupted.Load() { // the line above may have overwritten the deadline of interrupt, and delayed it until ours
		_ = c.nc.SetReadDeadline(time.Now())
	}
}

// Terminate implements broker.Client. Any goroutine may call it.
func (c *conn) Terminate(_ uint16, text string) {
	c.shutdown.CompareAndSwap(nil, fail(amqp10.ConditionInternalError, "Connection forced: %q", text))
	c.interrupt()
}

// interrupt makes the reader handle requests of other goroutines. The flag is set before the deadline, and the reader checks it
// after it has set its own deadline, so it cannot miss both. It may have handled the flag before it meets the deadline: see
// fill.
func (c *conn) interrupt() {
	c.interrupted.Store(true)
	_ = c.nc.SetReadDeadline(time.Now())
	select {
	case c.heedc <- struct{}{}:
	default:
	}
}

// heed handles the requests of other goroutines.
func (c *conn) heed() error {
	c.interrupted.Store(false)
	c.deadline = time.Time{}
	_ = c.nc.SetReadDeadline(time.Time{})
	c.heedAlarm()
	c.endAborted()
	if stop := c.shutdown.Load(); stop != nil {
		c.told = stop
		c.flushOps()
		c.confirm()
		if err := c.close(stop); err != nil {
			return err
		}
	}
	c.flush(true)
	return nil
}

// heedAlarm closes the windows of all sessions while the broker is low on memory or disk, and opens them again.
func (c *conn) heedAlarm() {
	if on := c.broker.Alarmed(); on != c.alarmed {
		c.alarmed = on
		for _, s := range c.sortedSessions() {
			s.heedAlarm(on)
		}
	}
}

// free says whether no lock of the connection is held for long: a panicking reader may have left one held, and partitions that
// deliver to the connection would wait for it.
func (c *conn) free() bool {
	locks := []*held.Mutex{&c.chMu, &c.out.mu}
	for _, s := range c.sessions {
		locks = append(locks, &s.mu)
		for _, p := range s.publishers {
			locks = append(locks, &p.confirms.mu)
		}
	}
	return serving.Free(locks)
}

// end is the reader's last step: it gives back the client's deliveries. A panic in it ends the process.
func (c *conn) end(cause error) {
	defer bug.End(c.log, "the end of a connection")
	if c.unalarm != nil {
		c.unalarm()
	}
	if !errors.Is(cause, errEnd) && !errors.Is(cause, io.EOF) && c.state == stateRunning {
		c.log.Warn("connection lost", "error", cause, "user", c.login.User)
	}
	c.flushOps()
	c.endSessions()
	if len(c.confirming) > 0 { // otherwise nobody waits
		_ = c.link.Await(c.receipt)
	}
	close(c.ended)
	_ = c.nc.SetWriteDeadline(time.Now().Add(lastWords)) // also for a write in progress
	c.writing.Wait()
	lingers := c.state == stateClosed && !c.dead.Load() && serving.EndOutput(c.nc)
	if !lingers {
		_ = c.nc.Close()
	}
	c.drainOutbox()
	c.forgetRendered()
	if c.link != nil {
		c.link.Disconnect()
		c.log.Info("connection closed", "user", c.login.User, "vhost", string(c.link.VHost))
	}
	if lingers {
		serving.Linger(c.nc)
		_ = c.nc.Close()
	}
}

// broken is called when the socket cannot be written.
func (c *conn) broken(error) {
	if c.dead.CompareAndSwap(false, true) {
		_ = c.nc.Close() // the reader finds out
		c.interrupt()
	}
}

// sortedSessions are the connection's sessions by their numbers. REQUIRES: the caller is the reader, or holds chMu.
func (c *conn) sortedSessions() []*session {
	list := make([]*session, 0, len(c.sessions))
	for _, s := range c.sessions {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *session) int { return int(a.number) - int(b.number) })
	return list
}
