// Package session091 speaks AMQP 0-9-1 with one client: a connection, its
// channels, and a file for each class of methods. It knows the talk; what a queue
// or an exchange is it asks the broker.
//
// Goroutines: the reader owns the connection and its channels, but for what
// channel.mu guards; it decodes all frames that have come, collects what they ask
// of queues, and runs that as one batch. The writer sends what is in the outbox.
// Partitions put deliveries into the outbox from whatever goroutine runs them.
// The reader ends the writer and waits for it.
package session091

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// Options are what a listener gives all its connections.
type Options struct {
	Broker     *broker.Broker
	Logger     *slog.Logger
	ChannelMax uint16        // BR-1.6; 0: 2047
	FrameMax   uint32        // BR-1.6; 0: 131072
	Heartbeat  time.Duration // BR-1.6; 0: 60 s; negative: none suggested
	Mechanisms []string      // BR-2.1; nil: PLAIN and AMQPLAIN
	// Anonymous is what ANONYMOUS logs in with, where it is offered (BR-2.1).
	Anonymous auth.Credentials
	// TLS is what is known of the client by TLS; nil where it came without.
	TLS *broker.TLS
	// HandshakeTimeout is how long a client may take until it is let in (BR-1.10); 0: 10 s.
	HandshakeTimeout time.Duration
	// Opened, if not nil, is called once when the client is let in.
	Opened func()
	// Stands, if not nil, is told how the client stands until then.
	Stands  func(broker.Standing)
	Product string // BR-1.3; "": RabbitMQ
	Version string // of RabbitMQ, whose behaviour this is (BR-1.3)
	Release string // our own version
	// MaxChannelConsumers limits the consumers of a channel; 0: no limit (BR-3.7).
	MaxChannelConsumers int
}

const (
	defaultChannelMax = 2047
	defaultFrameMax   = 131072
	minFrameMax       = 4096
	openFrameMax      = 8192 // before tune-ok (BR-1.7)
	defaultHeartbeat  = 60 * time.Second

	defaultHandshake = 10 * time.Second // BR-1.10
	refusalDelay     = 3 * time.Second  // BR-1.8, BR-2.4, BR-2.5
	closeTimeout     = 30 * time.Second // for close-ok, as long as RabbitMQ waits (BR-1.13)

	strangerCloseTimeout = time.Second // for that of a client that was not let in

	readSize    = 8 << 10   // of an idle connection's buffer
	maxReadSize = 256 << 10 // of a busy one's
	idleReads   = 8         // after so many reads of little in a row a connection is no longer busy

	strangerReadSize = 1 << 10 // of one's that is not let in: start-ok takes half of it; it grows up to openFrameMax
	// maxStrangerBytes is how much is read of a client that is not let in: three frames have their
	// place there, and none is larger than openFrameMax.
	maxStrangerBytes = 64 << 10
)

// conn is one connection.
type conn struct {
	// Static after construction.
	Options
	broker *broker.Broker
	nc     net.Conn
	raw    *rawWriter // nil if the socket cannot be written without blocking
	log    *slog.Logger
	peer   broker.Peer
	since  time.Time

	// Set by the handshake, static afterwards.
	link         *broker.Connection // nil until the client is let in
	vhost        message.VHost
	login        broker.Login
	clientProps  amqp091.Table
	capabilities capabilities
	frameMax     int
	channelMax   int
	heartbeat    time.Duration

	// Owned by the reader.
	in      []byte
	begin   int // of what is not consumed in in
	little  int // reads of little into an empty buffer since the last of more
	ops     []partition.Op
	opOwner []opOwner
	opBytes int // of the records that ops publish
	targets int // how many queues they go to
	// unfinished is how many bytes the buffers take that channels have for messages that have not come whole.
	unfinished int
	// What the next message that comes in several frames is put into; nil while one is.
	spareProps, spareBody []byte

	settling []unacked // scratch of settle
	// Channels with publishes that were run and are to be confirmed.
	confirming []*channel
	receipt    partition.Receipt // to be awaited before they are
	ungated    []*channel        // those whose shared prefetch limit has room again
	state      state
	told       *failure // the shutdown that the client was told of
	answered   bool     // its connection.close, which came while ours was not answered
	pub        broker.Publication
	deadline   time.Time // the socket's read deadline
	heard      int64     // when something was last read, in milliseconds since 1970

	channels map[uint16]*channel // written under chMu by the reader, read by others under it
	chMu     held.Mutex

	out      outbox
	renderer renderer      // owned by whoever has the pen
	window   bodies.Window // for records on disk; owned by whoever has the pen
	writeBy  time.Time     // the socket's write deadline; owned by whoever has the pen
	// toldTooLarge: the log knows of headers larger than frameMax; owned by whoever has the pen.
	toldTooLarge bool
	beat         atomic.Int64 // the heartbeat once it is negotiated, a time.Duration

	ended   chan struct{} // closed when the reader ends
	writing sync.WaitGroup
	dead    atomic.Bool // the socket is broken
	blocked atomic.Bool // an alarm keeps it from being read
	stats   traffic

	// What others want of the reader: see interrupt.
	interrupted atomic.Bool
	heedc       chan struct{}           // for a reader that waits for an alarm to end
	shutdown    atomic.Pointer[failure] // the connection is to be closed
	aborts      []abortion              // channels are; guarded by chMu
}

// traffic counts what passed.
type traffic struct {
	recvBytes, recvFrames, sentBytes, writes atomic.Uint64
}

// sent counts a write that the socket has taken n bytes of.
func (t *traffic) sent(n int) {
	t.sentBytes.Add(uint64(n))
	t.writes.Add(1)
}

// capabilities are those of the client that change what it is sent (BR-1.5).
type capabilities struct {
	cancelNotify, blocked, authFailureClose bool
}

// state is how far the connection has come.
type state uint8

const (
	stateStart   state = iota // start sent
	stateTune                 // tune sent
	stateOpen                 // tune-ok received, open due
	stateRunning              //
	stateClosing              // close sent, close-ok due
	stateClosed               // nothing is to be read any more
)

// Serve speaks with one client until the connection ends. first is what was read
// of it already: its protocol header. The caller closes nothing.
func Serve(nc net.Conn, first []byte, o Options) {
	if o.ChannelMax == 0 {
		o.ChannelMax = defaultChannelMax
	}
	if o.FrameMax == 0 {
		o.FrameMax = defaultFrameMax
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = defaultHeartbeat
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
		Options: o, broker: o.Broker, nc: nc, raw: newRawWriter(nc), peer: peerOf(nc), since: time.Now(),
		frameMax: openFrameMax, channels: map[uint16]*channel{}, ended: make(chan struct{}),
	}
	held.Name(&c.out.mu, "the outbox of a connection")
	held.Name(&c.chMu, "the channels of a connection")
	c.log = o.Logger.With("conn", c.peer.Name)
	c.out.wakec, c.out.roomc, c.out.tagc, c.heedc = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	c.in = append(make([]byte, 0, strangerReadSize), first[len(amqp091.ProtocolHeader):]...)
	c.writing.Go(bug.Guarded(c.log, "the writer of a connection", c.write))
	// Whatever ends the reader, even a mistake of ours that panics: what the client
	// held goes back.
	err := errPanic
	defer func() { c.end(err) }()
	defer bug.Contain(c.log, entry, c.free) // first: the end of a session takes what is shared
	c.sendStart()
	c.deadline = time.Now().Add(o.HandshakeTimeout)
	_ = nc.SetReadDeadline(c.deadline)
	err = c.read()
}

// entry is the function that Serve is.
const entry = "bartleby.mq/internal/edge/session091.Serve"

// errPanic is the end of a reader that did not come to its end.
var errPanic = errors.New("the session failed")

func peerOf(nc net.Conn) broker.Peer {
	p := broker.Peer{Protocol: "AMQP 0-9-1"}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		p.PeerHost, p.PeerPort = a.IP.String(), a.Port
	}
	if a, ok := nc.LocalAddr().(*net.TCPAddr); ok {
		p.Host, p.Port = a.IP.String(), a.Port
	}
	p.Name = nc.RemoteAddr().String() + " -> " + nc.LocalAddr().String()
	return p
}

// errEnd ends the reader without more ado.
var errEnd = errors.New("connection ended")

// errBroken ends the reader where it finds that the socket cannot be written any more.
var errBroken = errors.New("the socket is broken")

// wordless says whether an error ends the connection without a word to the client.
func wordless(err error) bool { return errors.Is(err, errEnd) || errors.Is(err, errBroken) }

// read is the reader's loop: read what there is, handle every whole frame, run
// what they asked for as one batch, answer.
func (c *conn) read() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		for {
			f, n, err := amqp091.NextFrame(c.in[c.begin:], c.frameMax-amqp091.FrameOverhead)
			if err != nil {
				var bad *amqp091.FrameError
				if errors.As(err, &bad) {
					c.flushOps()
					if err := c.close(&failure{code: bad.Code, text: bad.Text}); err != nil {
						return err
					}
					if n == 0 { // nobody knows where the next begins
						c.begin = len(c.in)
						break
					}
					c.begin += n
					continue
				}
				return err
			}
			if n == 0 {
				break
			}
			c.begin += n
			c.stats.recvFrames.Add(1)
			if err := c.frame(f); err != nil {
				c.flushOps()
				return err
			}
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

// fill reads more bytes behind what is not consumed yet. The buffer grows while
// reads fill it, and large frames make it as large as they are; it shrinks when little
// comes for a while, of heartbeats only for example. Of a client that is
// not let in little is read, and into a buffer that only the frame at hand makes larger.
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
			// Whoever wants a connection closed that is closing does not wait for close-ok, as in RabbitMQ. Its channels have ended already.
			c.interrupted.Store(false)
			if c.shutdown.Load() == c.told {
				c.setDeadline()
				return nil
			}
		case c.deadline.IsZero() || time.Now().Before(c.deadline): // not ours: interrupt has set it when it was heeded
			c.setDeadline()
			return nil
		}
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// received counts what was read.
func (c *conn) received(n int) {
	c.stats.recvBytes.Add(uint64(n))
	c.broker.Received(n)
	c.heard = time.Now().UnixMilli()
}

// extendDeadline keeps the read deadline ahead: a connection with heartbeats is
// dropped after between two and three of them of silence (BR-1.9). It is moved
// only when it has come near, since that is a system's timer each time.
func (c *conn) extendDeadline() {
	if c.heartbeat <= 0 {
		return // openVHost and heed have removed the deadline
	}
	now := time.Now()
	if c.deadline.Sub(now) < 2*c.heartbeat {
		c.deadline = now.Add(3 * c.heartbeat)
		_ = c.nc.SetReadDeadline(c.deadline)
	}
}

// frame handles one frame. An error ends the connection without a word.
func (c *conn) frame(f amqp091.Frame) error {
	switch c.state {
	case stateClosing:
		return c.closingFrame(f)
	case stateClosed:
		return nil // the client has its close-ok, and sends nothing behind its close
	}
	if f.Type == amqp091.FrameHeartbeat {
		if f.Channel != 0 {
			return c.close(fail(amqp091.CodeUnexpectedFrame, "type 8, all octets = <<>>"))
		}
		return nil
	}
	var err error
	if f.Channel == 0 {
		err = c.connectionFrame(f)
	} else {
		err = c.channelFrame(f)
	}
	if err == nil {
		return nil
	}
	if wordless(err) {
		return err
	}
	c.flushOps()
	failed := asFailure(err, 0)
	ch := c.channels[f.Channel]
	if failed.connection() || ch == nil {
		return c.close(failed)
	}
	c.confirm()
	ch.wait()
	c.closeChannel(ch, failed)
	return nil
}

// connectionFrame handles a frame on channel 0.
func (c *conn) connectionFrame(f amqp091.Frame) error {
	if f.Type != amqp091.FrameMethod {
		return fail(amqp091.CodeUnexpectedFrame, "expected method frame, got non method frame instead")
	}
	if id, _, ok := amqp091.SplitMethod(f.Payload); ok && c.state != stateRunning && !c.state.takes(id) {
		return unexpected(id) // and not decoded: whose it is nobody knows yet
	}
	m, err := c.decode(f)
	if err != nil {
		return err
	}
	if c.state != stateRunning {
		return c.handshake(m)
	}
	switch m := m.(type) {
	case *amqp091.ConnectionClose:
		c.flushOps()
		c.confirm()
		c.closeChannels()
		c.link.Disconnect() // the client may come again, or have others look, as soon as it has the answer
		c.out.putMethod(0, amqp091.ConnectionCloseOk{})
		c.state = stateClosed
		return nil
	case *amqp091.ConnectionUpdateSecret:
		// Plain credentials need no refreshing (BR-1.12).
		c.out.putMethod(0, amqp091.ConnectionUpdateSecretOk{})
		return nil
	default:
		return &failure{code: amqp091.CodeChannelError, text: "unexpected method in connection state running", method: m.ID()}
	}
}

// decode decodes a method, turning what is wrong into a failure (BR-4.8).
func (c *conn) decode(f amqp091.Frame) (amqp091.Method, error) {
	var m amqp091.Method
	var err error
	if id, args, _ := amqp091.SplitMethod(f.Payload); id == amqp091.ConnectionStartOkID {
		var k propertyKeeper
		m, err = amqp091.DecodeStartOk(args, k.keep)
	} else {
		m, err = amqp091.DecodeMethod(f.Payload)
	}
	if err == nil {
		return m, nil
	}
	var unknown *amqp091.UnknownMethodError
	switch {
	case errors.Is(err, amqp091.ErrMalformedUTF8):
		return nil, fail(amqp091.CodeFrameError, "%s", amqp091.ErrMalformedUTF8)
	case errors.As(err, &unknown):
		// RabbitMQ's reader crashes here, and its client is told nothing.
		c.log.Error("closed a connection whose client asked for an unsupported feature", "error", err, "user", c.login.User)
		return nil, errEnd
	}
	if id, args, ok := amqp091.SplitMethod(f.Payload); ok {
		return nil, undecodable(id, args)
	}
	return nil, fail(amqp091.CodeSyntaxError, "%s", err)
}

// close tells the client that the connection is closed and why, and waits for
// its close-ok, ignoring all else (BR-1.13).
func (c *conn) close(f *failure) error {
	if c.state == stateClosing || c.state == stateClosed {
		return nil
	}
	if c.state < stateRunning && !c.capabilities.authFailureClose && f.code == amqp091.CodeAccessRefused {
		return errEnd
	}
	c.log.Error("closing connection", "code", f.code, "reason", f.text, "user", c.login.User)
	c.closeChannels()
	if c.link != nil {
		c.link.RemoveExclusive() // and it counts until its client has answered, as in RabbitMQ
	}
	c.out.putMethod(0, amqp091.ConnectionClose{
		ReplyCode: f.code, ReplyText: f.replyText(),
		ClassID: uint16(f.method >> 16), MethodID: uint16(f.method),
	})
	c.state = stateClosing
	timeout := closeTimeout
	if c.link == nil {
		timeout = strangerCloseTimeout
		c.Stands(broker.Refused)
	}
	c.deadline = time.Now().Add(timeout)
	c.setDeadline()
	return nil
}

// setDeadline has the socket's read deadline be the reader's, or that of interrupt.
func (c *conn) setDeadline() {
	_ = c.nc.SetReadDeadline(c.deadline)
	if c.interrupted.Load() { // just now: its deadline may be overwritten, and nobody would look until ours is over
		_ = c.nc.SetReadDeadline(time.Now())
	}
}

// closingFrame handles what comes after close was sent.
func (c *conn) closingFrame(f amqp091.Frame) error {
	if f.Type != amqp091.FrameMethod || f.Channel != 0 {
		return nil
	}
	switch id, _, _ := amqp091.SplitMethod(f.Payload); id {
	case amqp091.ConnectionCloseOkID:
		return errEnd
	case amqp091.ConnectionCloseID:
		if c.answered { // it would ask for answers without end
			return errEnd
		}
		c.answered = true
		if c.link != nil {
			c.link.Disconnect()
		}
		c.out.putMethod(0, amqp091.ConnectionCloseOk{})
	}
	return nil
}

// Terminate implements broker.Client. Any goroutine may call it.
func (c *conn) Terminate(code uint16, text string) {
	c.shutdown.CompareAndSwap(nil, &failure{code: code, text: text, hard: true})
	c.interrupt()
}

// interrupt makes the reader heed what others have asked of it. The flag is set
// before the deadline, and the reader looks at it after setting its own: it
// cannot miss both. It may have heeded the flag before it meets the deadline: see fill.
func (c *conn) interrupt() {
	c.interrupted.Store(true)
	_ = c.nc.SetReadDeadline(time.Now())
	select {
	case c.heedc <- struct{}{}:
	default:
	}
}

// heed does what others have asked of the reader.
func (c *conn) heed() error {
	c.interrupted.Store(false)
	c.deadline = time.Time{}
	_ = c.nc.SetReadDeadline(time.Time{})
	c.closeAborted()
	if stop := c.shutdown.Load(); stop != nil {
		c.told = stop
		if err := c.close(stop); err != nil {
			return err
		}
	}
	c.flush(true)
	return nil
}

// over says whether the connection ends while the reader has a frame in hand, which is not handled then, and
// nothing behind it: a client must not be told of a commit whose transaction is not whole. Where others want it
// closed it is, behind what came before.
func (c *conn) over() (over bool, err error) {
	switch {
	case c.dead.Load():
		return true, errBroken
	case c.shutdown.Load() != nil:
		c.flushOps()
		c.confirm()
		return true, c.heed()
	}
	return false, nil
}

// closeAborted closes the channels that others want closed.
func (c *conn) closeAborted() {
	c.chMu.Lock()
	aborts := c.aborts
	c.aborts = nil
	c.chMu.Unlock()
	for _, a := range aborts {
		if c.channels[a.ch.number] == a.ch && !a.ch.closing {
			c.closeChannel(a.ch, a.f)
		}
	}
}

// free says whether nobody holds a lock of the connection for long: a reader that panics
// may have left one behind, and partitions that deliver to the connection would wait for it.
func (c *conn) free() bool {
	locks := []*held.Mutex{&c.chMu, &c.out.mu}
	for _, ch := range c.channels {
		locks = append(locks, &ch.mu)
		if ch.confirms != nil {
			locks = append(locks, &ch.confirms.mu)
		}
	}
	const moment = 100 * time.Millisecond
	deadline := time.Now().Add(moment)
	for _, mu := range locks {
		for !mu.TryLock() {
			if time.Now().After(deadline) {
				return false
			}
			time.Sleep(time.Millisecond)
		}
		mu.Unlock()
	}
	return true
}

// end is the reader's last act: whatever the client held goes back. One that fails to give
// it back ends the process.
func (c *conn) end(cause error) {
	defer bug.End(c.log, "the end of a connection")
	if !errors.Is(cause, errEnd) && !errors.Is(cause, io.EOF) && c.state == stateRunning {
		c.log.Warn("connection lost", "error", cause, "user", c.login.User)
	}
	c.flushOps()
	c.closeChannels()
	if len(c.confirming) > 0 { // else nobody waits
		_ = c.link.Await(c.receipt)
	}
	close(c.ended)
	_ = c.nc.SetWriteDeadline(time.Now().Add(lastWords)) // also of a write under way
	c.writing.Wait()
	lingers := c.state == stateClosed && c.endOutput()
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
		c.linger()
		_ = c.nc.Close()
	}
}

// endOutput says whether it could end what is sent and leave what is read.
func (c *conn) endOutput() bool {
	half, ok := c.nc.(interface{ CloseWrite() error })
	return ok && !c.dead.Load() && half.CloseWrite() == nil
}

const (
	// lingerTime is how long a client that has closed the connection may take to close
	// its socket, and lingerBytes what it may send meanwhile.
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

// linger waits for the client to close its socket. Some clients send behind their
// connection.close what they had kept until then, such as acknowledgements. To a socket that
// was closed, the system answers that with a reset, and the client, amqplib for one, may then
// never see the close-ok that it waits for.
func (c *conn) linger() {
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
}

// broken is called by whoever finds that the socket cannot be written.
func (c *conn) broken(error) {
	if c.dead.CompareAndSwap(false, true) {
		_ = c.nc.Close() // the reader finds out
		c.interrupt()    // even one that waits for an alarm to end
	}
}
