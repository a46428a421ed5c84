// Package session091 is the AMQP 0-9-1 session of one client: a connection, its
// channels, and a file for each class of methods. The server calls Serve for each
// connection. The package knows the protocol; it never decides what a queue or an
// exchange does, the broker does.
//
// Goroutines: the reader owns the connection and its channels, except what channel.mu
// guards. It decodes all frames that have arrived, collects their queue operations, and runs
// them as one batch. The writer sends the content of the output. Partitions put deliveries
// into the output from any goroutine. The reader ends the writer and waits for it.
package session091

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
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
)

// Options are the settings that a listener passes to its connections.
type Options struct {
	Broker     *broker.Broker
	Logger     *slog.Logger
	ChannelMax uint16        // BR-1.6; 0: 2047; NoChannelMax
	FrameMax   uint32        // BR-1.6; 0: 131072; NoFrameMax
	Heartbeat  time.Duration // BR-1.6; 0: 60 s; negative: no suggestion
	Mechanisms []string      // BR-2.1; nil: serving.DefaultMechanisms
	// Anonymous are the credentials of ANONYMOUS, if it is offered (BR-2.1).
	Anonymous auth.Credentials
	// TLS describes the client's TLS; nil without TLS.
	TLS *broker.TLS
	// HandshakeTimeout is how long a client may take to open a virtual host (BR-1.10); 0: 10 s.
	HandshakeTimeout time.Duration
	// Opened, if not nil, is called once when the client has opened a virtual host.
	Opened func()
	// Stands, if not nil, is called with the state of the client's login until then.
	Stands  func(broker.Standing)
	Product string // BR-1.3; "": RabbitMQ
	Version string // the compatible version of RabbitMQ (BR-1.3)
	Release string // our own version
	// MaxChannelConsumers limits the consumers of a channel; 0: no limit (BR-3.7).
	MaxChannelConsumers int
}

const (
	defaultChannelMax = 2047
	defaultFrameMax   = 131072
	minFrameMax       = 4096

	// NoChannelMax is a ChannelMax that is no limit: a channel's number has 16 bits.
	NoChannelMax = math.MaxUint16
	// NoFrameMax is a FrameMax that is no limit. A frame is never larger than a message may be.
	NoFrameMax       = math.MaxUint32
	openFrameMax     = 8192 // before tune-ok (BR-1.7)
	defaultHeartbeat = 60 * time.Second

	defaultHandshake = 10 * time.Second // BR-1.10
	closeTimeout     = 30 * time.Second // for close-ok, as long as RabbitMQ waits (BR-1.13)

	strangerCloseTimeout = time.Second // for the close-ok of a client before its login
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
	link         *broker.Connection // nil until the client is let in
	vhost        message.VHost
	login        broker.Login
	cause        deadletter.Cause // who its consumers are, without their tags
	clientProps  amqp091.Table
	capabilities capabilities
	frameMax     int
	channelMax   int
	heartbeat    time.Duration

	// Owned by the reader.
	ops     []partition.Op
	opOwner []opOwner
	opBytes int // bytes of the records that ops publish
	targets int // number of queues that they go to
	// unfinished is the size of the channels' buffers for incomplete messages.
	unfinished int
	noted      int              // size of the channels' notes
	getsBy     *deadletter.Note // who its client is, for what it rejects after a basic.get; nil before
	// Buffers for the next message that comes in several frames; nil while one uses them.
	spareProps, spareBody []byte

	settling []unacked // scratch space of settle
	// Channels with publishes that were run and must be confirmed.
	confirming []*channel
	receipt    partition.Receipt // to be awaited before these confirms
	ungated    []*channel        // channels whose shared prefetch limit has room again
	state      state
	told       *failure // the shutdown that was sent to the client
	answered   bool     // to its connection.close, which came before the answer to ours
	pub        broker.Publication
	heard      int64 // when something was last read, in milliseconds since 1970

	channels map[uint16]*channel // the reader writes it under chMu; others read it under chMu
	recent   *channel            // one of these: that of the last frame, for clients that use one for long; the reader's own
	chMu     held.Mutex

	sock serving.Socket
	out  output
	// Owned by the holder of the pen.
	renderer    renderer
	toldLeftOut atomic.Bool   // that headers of replies were left out was logged
	tagc        chan struct{} // wakes a reader that waits for the tags of its gets

	blocked atomic.Bool // an alarm keeps it from being read

	// Requests of other goroutines to the reader: see serving.Socket.Interrupt.
	shutdown atomic.Pointer[failure] // closes the connection
	aborts   []abortion              // channels to be closed; guarded by chMu
}

// capabilities are the client's capabilities that change what the server sends (BR-1.5).
type capabilities struct {
	cancelNotify, blocked, authFailureClose bool
}

// state is the state of the connection.
type state uint8

const (
	stateStart   state = iota // start sent
	stateTune                 // tune sent
	stateOpen                 // tune-ok received, open due
	stateRunning              //
	stateClosing              // close sent, close-ok due
	stateClosed               // nothing more is read
)

// Headers are the protocol headers that open AMQP 0-9-1: its own, and the one that clients wrote before there was a final
// version (BR-1.1).
var Headers = []string{amqp091.ProtocolHeader, "AMQP\x01\x01\x00\x09"}

// Serve serves one client until the connection ends. first are the bytes that were already
// read: its protocol header. It closes the socket, unless leaves: then the client has closed the connection, was told so, and is to close
// the socket, for which the caller waits.
func Serve(nc net.Conn, first []byte, o Options) (leaves bool) {
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
		o.Mechanisms = serving.DefaultMechanisms(o.Anonymous, o.Broker.Strict)
		slices.Sort(o.Mechanisms) // RabbitMQ's order in this protocol
	}
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = defaultHandshake
	}
	if o.Stands == nil {
		o.Stands = func(broker.Standing) {}
	}
	c := &conn{
		Options: o, broker: o.Broker, peer: serving.PeerOf(nc, "AMQP 0-9-1"), since: time.Now(),
		frameMax: openFrameMax, channels: map[uint16]*channel{}, tagc: make(chan struct{}, 1),
	}
	held.Name(&c.chMu, "the channels of a connection")
	c.log = o.Logger.With("conn", c.peer.Name)
	c.sock.Init(nc, first[len(amqp091.ProtocolHeader):], c.log)
	c.out.Init(&c.sock, pen{c})
	c.out.Start()
	// However the reader ends, even with a panic, the client's deliveries go back.
	err := errPanic
	defer func() { leaves = c.end(err) }()
	defer bug.Contain(c.log, entry, c.free) // runs first: the end of a session needs shared state
	c.sendStart()
	c.sock.SetDeadline(time.Now().Add(o.HandshakeTimeout))
	err = c.read()
	return false // until its end says otherwise
}

// entry is the name of Serve on a stack.
const entry = "bartleby.mq/internal/edge/session091.Serve"

// errPanic is the error of a reader that has panicked.
var errPanic = errors.New("the session failed")

// errEnd ends the reader silently.
var errEnd = errors.New("connection ended")

// errBroken ends the reader because the socket can no longer be written.
var errBroken = errors.New("the socket is broken")

// wordless says whether an error ends the connection without a close frame.
func wordless(err error) bool { return errors.Is(err, errEnd) || errors.Is(err, errBroken) }

// read is the reader's loop: read the available bytes, handle every whole frame, run their
// operations as one batch, answer.
func (c *conn) read() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		for {
			f, n, err := amqp091.NextFrame(c.sock.Unread(), c.frameMax-amqp091.FrameOverhead)
			if err != nil {
				var bad *amqp091.FrameError
				if errors.As(err, &bad) {
					c.flushOps()
					if err := c.close(&failure{code: bad.Code, text: bad.Text}); err != nil {
						return err
					}
					if n == 0 { // the start of the next frame is unknown
						c.sock.Skip(len(c.sock.Unread()))
						break
					}
					c.sock.Skip(n)
					continue
				}
				return err
			}
			if n == 0 {
				break
			}
			c.sock.Skip(n)
			c.sock.Traffic.ReceivedFrames.Add(1)
			if err := c.frame(f); err != nil {
				c.flushOps()
				return err
			}
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

// fill reads more bytes, or handles the requests of other goroutines. A connection with heartbeats is dropped after between two and
// three heartbeat intervals of silence (BR-1.9).
func (c *conn) fill() error {
	if c.state == stateRunning {
		c.sock.KeepAlive(c.heartbeat)
		if c.sock.Interrupted() {
			return c.heed()
		}
	}
	n, err := c.sock.Fill(c.link != nil)
	c.received(n)
	if errors.Is(err, serving.ErrInterrupted) {
		if c.state == stateRunning {
			return c.heed()
		}
		// A request to close a connection that is already closing does not wait for close-ok, as in RabbitMQ. Its channels have ended.
		c.sock.Heed(c.sock.Deadline())
		if c.shutdown.Load() == c.told {
			return nil
		}
	}
	return err
}

// received counts read bytes.
func (c *conn) received(n int) {
	if n > 0 {
		c.broker.Received(n)
		c.heard = time.Now().UnixMilli()
		if c.link != nil {
			c.link.ReadNow()
		}
	}
}

// frame handles one frame. An error ends the connection without a word.
func (c *conn) frame(f amqp091.Frame) error {
	switch c.state {
	case stateClosing:
		return c.closingFrame(f)
	case stateClosed:
		return nil // the client has its close-ok, and may send nothing after its close
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
		return unexpected(id) // without decoding it: the client is not authenticated yet
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
		c.link.Disconnect() // before the answer: the client may then reconnect at once
		c.putMethod(0, amqp091.ConnectionCloseOk{})
		c.state = stateClosed
		return nil
	case *amqp091.ConnectionUpdateSecret:
		// Plain credentials need no refreshing (BR-1.12).
		c.putMethod(0, amqp091.ConnectionUpdateSecretOk{})
		return nil
	default:
		return &failure{code: amqp091.CodeChannelError, text: "unexpected method in connection state running", method: m.ID()}
	}
}

// decode decodes a method; an error becomes a failure (BR-4.8).
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
		// RabbitMQ's reader crashes here, and its client gets no close.
		c.log.Error("closed a connection whose client asked for an unsupported feature", "error", err, "user", c.login.User)
		return nil, errEnd
	}
	if id, args, ok := amqp091.SplitMethod(f.Payload); ok {
		return nil, undecodable(id, args)
	}
	return nil, fail(amqp091.CodeSyntaxError, "%s", err)
}

// close sends connection.close and waits for close-ok, ignoring all other frames
// (BR-1.13).
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
		c.link.RemoveExclusive() // afterwards; the connection counts until its client has answered, as in RabbitMQ
	}
	c.putMethod(0, amqp091.ConnectionClose{
		ReplyCode: f.code, ReplyText: f.replyText(),
		ClassID: uint16(f.method >> 16), MethodID: uint16(f.method),
	})
	c.state = stateClosing
	timeout := closeTimeout
	if c.link == nil {
		timeout = strangerCloseTimeout
		c.Stands(broker.Refused)
	}
	c.sock.SetDeadline(time.Now().Add(timeout))
	return nil
}

// closingFrame handles frames after close was sent.
func (c *conn) closingFrame(f amqp091.Frame) error {
	if f.Type != amqp091.FrameMethod || f.Channel != 0 {
		return nil
	}
	switch id, _, _ := amqp091.SplitMethod(f.Payload); id {
	case amqp091.ConnectionCloseOkID:
		return errEnd
	case amqp091.ConnectionCloseID:
		if c.answered { // otherwise a client could request answers without end
			return errEnd
		}
		c.answered = true
		if c.link != nil {
			c.link.Disconnect()
		}
		c.putMethod(0, amqp091.ConnectionCloseOk{})
	}
	return nil
}

// Terminate implements broker.Client. Any goroutine may call it.
func (c *conn) Terminate(code uint16, text string) {
	c.shutdown.CompareAndSwap(nil, &failure{code: code, text: text, hard: true})
	c.sock.Interrupt()
}

// heed handles the requests of other goroutines.
func (c *conn) heed() error {
	c.sock.Heed(time.Time{})
	c.closeAborted()
	if stop := c.shutdown.Load(); stop != nil {
		c.told = stop
		if err := c.close(stop); err != nil {
			return err
		}
	}
	c.out.Flush(true)
	return nil
}

// over says whether the connection ends while the reader handles a frame. Then this frame and all later ones are ignored:
// a client must not get a commit-ok for an incomplete transaction. If others have requested a close, over closes the
// connection after the earlier frames.
func (c *conn) over() (over bool, err error) {
	switch {
	case c.sock.Dead():
		return true, errBroken
	case c.shutdown.Load() != nil:
		c.flushOps()
		c.confirm()
		return true, c.heed()
	}
	return false, nil
}

// closeAborted closes the channels that others have aborted.
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

// free says whether no lock of the connection is held for long: a panicking reader may have
// left one held, and partitions that deliver to the connection would wait for it.
func (c *conn) free() bool {
	locks := []*held.Mutex{&c.chMu, c.out.Lock()}
	for _, ch := range c.channels {
		locks = append(locks, &ch.mu)
		if ch.confirms != nil {
			locks = append(locks, &ch.confirms.mu)
		}
	}
	return serving.Free(locks)
}

// end is the reader's last step: it gives back the client's deliveries. A panic in it ends
// the process.
func (c *conn) end(cause error) (leaves bool) {
	defer bug.End(c.log, "the end of a connection")
	if !errors.Is(cause, errEnd) && !errors.Is(cause, io.EOF) && c.state == stateRunning {
		c.log.Warn("connection lost", "error", cause, "user", c.login.User)
	}
	c.flushOps()
	c.closeChannels()
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
