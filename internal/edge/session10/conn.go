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
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
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
	Mechanisms  []string      // nil: serving.DefaultMechanisms
	// Anonymous are the credentials of ANONYMOUS, if it is offered.
	Anonymous auth.Credentials
	// Web says that the client speaks WebSocket: it is shown.
	Web bool
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
)

// conn is one connection.
type conn struct {
	// Static after construction.
	Options
	broker *broker.Broker
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
	clientMax   uint32        // max-frame-size of the client
	channelMax  uint16        // the highest channel number
	beat        time.Duration // how often the client wants to hear something; 0: never

	// Owned by the reader.
	frameMax uint32 // of frames from the client
	ops      []partition.Op
	opOwner  []opOwner
	opBytes  int // bytes of the records that ops publish
	targets  int // number of queues that they go to
	// unfinished is the size of the buffers for incomplete messages.
	unfinished int
	// heldAnswers are the bytes of answers of the management node that wait for credit.
	heldAnswers int
	brimming    bool // so much waits for the client that its next frame waits too
	// spare is the buffer for the next message that comes in several frames; nil while one uses it.
	spare []byte
	// Publishers with transfers that were run and must be answered.
	confirming []*publisher
	receipt    partition.Receipt // to be awaited before these answers
	state      state
	told       *failure // the shutdown that was sent to the client
	pub        broker.Publication
	settling   []unsettled // scratch space of settle
	// unannotated says that annotations were dropped under an alarm: the log says so once.
	unannotated bool
	inbound     inbound // scratch space of transfers
	alarmed     bool    // the sessions' windows are closed for an alarm
	unalarm     func()  // ends the subscription to alarms; nil before the open

	sessions map[uint16]*session // the reader writes it under chMu; others read it under chMu
	chMu     held.Mutex

	sock     serving.Socket
	out      output
	renderer renderer // owned by the holder of the pen
	tag      [4]byte  // scratch space of a delivery-tag; owned by the holder of the pen

	parkedAnswers atomic.Int64 // bytes of answers of the management node that wait for windows

	// Requests of other goroutines to the reader: see serving.Socket.Interrupt.
	shutdown atomic.Pointer[failure] // closes the connection
	aborts   []abortion              // sessions to be ended; guarded by chMu
	gone     []departure             // queues that were deleted; guarded by chMu
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

// Serve serves one client until the connection ends. first are the bytes that were already read: its protocol header. It closes the
// socket, unless leaves: then the client has closed the connection, was told so, and is to close the socket, for which the caller waits.
func Serve(nc net.Conn, first []byte, o Options) (leaves bool) {
	if string(first) != amqp10.ProtocolHeaderSASL {
		refuseHeader(nc)
		return false
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
		o.Mechanisms = serving.DefaultMechanisms(o.Anonymous, o.Broker.Strict)
	}
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = defaultHandshake
	}
	if o.Stands == nil {
		o.Stands = func(broker.Standing) {}
	}
	protocol := "AMQP 1-0"
	if o.Web {
		protocol = "Web AMQP 1-0"
	}
	c := &conn{
		Options: o, broker: o.Broker, peer: serving.PeerOf(nc, protocol), since: time.Now(),
		frameMax: openFrameMax, clientMax: openFrameMax, sessions: map[uint16]*session{},
	}
	held.Name(&c.chMu, "the sessions of a connection")
	c.log = o.Logger.With("conn", c.peer.Name)
	c.sock.Init(nc, nil, c.log)
	c.out.Init(&c.sock, pen{c})
	c.out.Start()
	// However the reader ends, even with a panic, the client's deliveries go back.
	err := errPanic
	defer func() { leaves = c.end(err) }()
	defer bug.Contain(c.log, entry, c.free) // runs first: the end of a session needs shared state
	c.offerMechanisms()
	c.sock.SetDeadline(time.Now().Add(o.HandshakeTimeout))
	err = c.read()
	return false // until its end says otherwise
}

// refusalTimeout is how long the last bytes of a client whose header is refused are waited for.
const refusalTimeout = time.Second

// refuseHeader tells a client that it has to log in first, as RabbitMQ 4 does. What the client has sent beyond its header is
// read, within limits: closing a socket with bytes unread resets it, and the client might not see the answer.
func refuseHeader(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(refusalTimeout))
	_, err := io.WriteString(nc, amqp10.ProtocolHeaderSASL)
	if c, ok := nc.(interface{ CloseWrite() error }); ok && err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, nc, serving.MaxStranger)
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
		if err := c.more(); err != nil {
			return err
		}
		for !c.brimming {
			n, err := c.next()
			if err != nil {
				c.flushOps()
				return err
			}
			if n == 0 {
				break
			}
			c.sock.Skip(n)
		}
		c.flushOps()
		c.confirm()
		c.out.Flush(true)
		c.out.WaitForRoom()
		if c.state == stateClosed {
			return errEnd
		}
	}
}

// more reads more bytes, unless frames that have been read wait only for room in the output.
func (c *conn) more() error {
	if !c.brimming {
		return c.fill()
	}
	c.brimming = false
	if c.state == stateRunning && c.sock.Interrupted() {
		return c.heed()
	}
	return nil
}

// next handles what is at the start of the unconsumed bytes, and returns its length; 0 if it is not whole. An error ends the
// connection without a word.
func (c *conn) next() (n int, err error) {
	rest := c.sock.Unread()
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
	c.sock.Traffic.ReceivedFrames.Add(1)
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

// fill reads more bytes, or handles the requests of other goroutines. A connection is dropped after between two and three of its idle
// time-outs of silence, as one of AMQP 0-9-1 after so many heartbeats.
func (c *conn) fill() error {
	if c.state == stateRunning {
		c.sock.KeepAlive(c.IdleTimeout)
		if c.sock.Interrupted() {
			return c.heed()
		}
	}
	n, err := c.sock.Fill(c.link != nil)
	if n > 0 {
		c.broker.Received(n)
		if c.link != nil {
			c.link.ReadNow()
		}
	}
	switch {
	case errors.Is(err, serving.ErrInterrupted):
		if c.state == stateRunning {
			return c.heed()
		}
		// A request to close a connection that is already closing does not wait for the client.
		c.sock.Heed(c.sock.Deadline())
		if stop := c.shutdown.Load(); stop == nil || stop == c.told {
			return nil
		}
	case errors.Is(err, os.ErrDeadlineExceeded) && c.state == stateRunning:
		c.flushOps()
		return c.close(fail(amqp10.ConditionResourceLimitExceeded, "no frame received from client within idle timeout threshold"))
	}
	return err
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
	if failed.broken && c.Strict {
		failed.condition = amqp10.ConditionInternalError
	}
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
	c.putFrame(0, &amqp10.Close{})
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
	c.putFrame(0, &amqp10.Close{Error: f.wire()})
	c.state = stateClosing
	c.sock.SetDeadline(time.Now().Add(closeTimeout))
	return nil
}

// Terminate implements broker.Client. Any goroutine may call it.
func (c *conn) Terminate(_ uint16, text string) {
	c.shutdown.CompareAndSwap(nil, fail(amqp10.ConditionInternalError, "Connection forced: %q", text))
	c.sock.Interrupt()
}

// heed handles the requests of other goroutines.
func (c *conn) heed() error {
	c.sock.Heed(time.Time{})
	c.heedAlarm()
	c.endAborted()
	c.detachDeparted()
	if stop := c.shutdown.Load(); stop != nil {
		c.told = stop
		c.flushOps()
		c.confirm()
		if err := c.close(stop); err != nil {
			return err
		}
	}
	c.out.Flush(true)
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
	locks := []*held.Mutex{&c.chMu, c.out.Lock()}
	for _, s := range c.sessions {
		locks = append(locks, &s.mu)
		for _, p := range s.publishers {
			locks = append(locks, &p.confirms.mu)
		}
	}
	return serving.Free(locks)
}

// end is the reader's last step: it gives back the client's deliveries. A panic in it ends the process.
func (c *conn) end(cause error) (leaves bool) {
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
	c.out.End()
	leaves = c.sock.Close(c.state == stateClosed)
	c.drain()
	c.forgetRendered()
	if c.link != nil {
		c.link.Disconnect()
		c.log.Info("connection closed", "user", c.login.User, "vhost", string(c.link.VHost))
	}
	return leaves
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
