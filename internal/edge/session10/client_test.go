package session10_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/edge/session10"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// node is a broker in memory with a listener for both versions of AMQP.
type node struct {
	b    *broker.Broker
	addr string
	stop func() // as Cleanup will, or before
}

func serve(t testing.TB, o broker.Options, with func(*session10.Options)) *node {
	t.Helper()
	if o.FS == nil {
		o.FS = vfs.NewMem()
	}
	o.Dir = "data"
	b, err := broker.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err = b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := session10.Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"}
	if with != nil {
		with(&options)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				var first [8]byte
				if _, err := io.ReadFull(nc, first[:]); err != nil {
					_ = nc.Close()
					return
				}
				leaves := false
				if string(first[:]) == session091.Headers[0] {
					leaves = session091.Serve(nc, first[:], session091.Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"})
				} else {
					leaves = session10.Serve(nc, first[:], options)
				}
				if leaves {
					_ = nc.(*net.TCPConn).CloseWrite() // the client reads the end and closes
					_, _ = io.Copy(io.Discard, nc)
					_ = nc.Close()
				}
			})
		}
	})
	stop := sync.OnceFunc(func() {
		_ = l.Close()
		b.Drain()
		wg.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &node{b, l.Addr().String(), stop}
}

// channel is one of a client of AMQP 0-9-1.
func (n *node) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + n.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// declare declares a queue.
func (n *node) declare(t testing.TB, name string, args amqp.Table) {
	t.Helper()
	if _, err := n.channel(t).QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// client is a client that speaks in frames.
type client struct {
	t    testing.TB
	nc   net.Conn
	wire client10.Wire // reads from nc
}

// patience is how long a client waits for a frame.
const patience = 10 * time.Second

func (n *node) dial(t testing.TB) *client {
	t.Helper()
	nc, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &client{t: t, nc: nc, wire: client10.Wire{Conn: nc, Patience: patience, Largest: 1 << 30}}
}

func (c *client) write(b []byte) {
	c.t.Helper()
	_ = c.nc.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) send(channel uint16, frames ...amqp10.Composite) {
	c.t.Helper()
	var b []byte
	for _, f := range frames {
		b = amqp10.AppendFrame(b, channel, f)
	}
	c.write(b)
}

// transfer sends one frame with a transfer.
func (c *client) transfer(channel uint16, t amqp10.Transfer, payload []byte) {
	c.t.Helper()
	b, _ := amqp10.AppendTransfer(nil, channel, &t, 1<<20, 0, payload)
	c.write(b)
}

func (c *client) header(want string) {
	c.t.Helper()
	got, err := c.wire.Header()
	if err != nil {
		c.t.Fatalf("no header %q: %v", want, err)
	}
	if got != want {
		c.t.Fatalf("header %q, want %q", got, want)
	}
}

// frame is a frame from the node.
type frame struct {
	channel uint16
	is      amqp10.Composite
	payload []byte
}

// read returns the next frame that has a body. It fails with io.EOF when the node has closed the socket.
func (c *client) read() (f frame, err error) {
	c.t.Helper()
	got, err := c.wire.Next()
	if errors.Is(err, client10.ErrBadFrame) {
		c.t.Fatal(err)
	}
	return frame{got.Channel, got.Is, got.Payload}, err
}

// await reads frames up to one of a type, and fails at one that ends something else.
func await[T amqp10.Composite](c *client) T {
	c.t.Helper()
	f := awaitFrame[T](c)
	return f.is.(T)
}

func awaitFrame[T amqp10.Composite](c *client) frame {
	c.t.Helper()
	for {
		f, err := c.read()
		if err != nil {
			c.t.Fatalf("waiting for %T: %v", *new(T), err)
		}
		if _, ok := f.is.(T); ok {
			return f
		}
		switch e := f.is.(type) {
		case *amqp10.Close:
			c.t.Fatalf("waiting for %T: closed, %s", *new(T), said(e.Error))
		case *amqp10.End:
			c.t.Fatalf("waiting for %T: ended, %s", *new(T), said(e.Error))
		case *amqp10.Detach:
			c.t.Fatalf("waiting for %T: detached, %s", *new(T), said(e.Error))
		}
	}
}

func said(e *amqp10.Error) string {
	if e == nil {
		return "without an error"
	}
	return string(e.Condition) + ": " + string(e.Description)
}

func (c *client) want(got *amqp10.Error, condition, text string) {
	c.t.Helper()
	if got == nil || string(got.Condition) != condition || !strings.Contains(string(got.Description), text) {
		c.t.Errorf("%s, want %s: %s", said(got), condition, text)
	}
}

// login logs in by SASL.
func (c *client) login() {
	c.t.Helper()
	c.write([]byte(amqp10.ProtocolHeaderSASL))
	c.header(amqp10.ProtocolHeaderSASL)
	await[*amqp10.SASLMechanisms](c)
	c.send(0, &amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: amqp10.AppendPlain(nil, "", "guest", "guest")})
	if code := await[*amqp10.SASLOutcome](c).Code; code != amqp10.SASLCodeOK {
		c.t.Fatal("not let in", code)
	}
	c.write([]byte(amqp10.ProtocolHeader))
	c.header(amqp10.ProtocolHeader)
}

// open is a client with an open connection.
func (n *node) open(t testing.TB) *client {
	t.Helper()
	c := n.dial(t)
	c.login()
	c.send(0, &amqp10.Open{ContainerID: []byte("test")})
	await[*amqp10.Open](c)
	return c
}

// session is a client with a session on channel 0.
func (n *node) session(t testing.TB) *client {
	t.Helper()
	c := n.open(t)
	c.begin(0, 1000)
	return c
}

func (c *client) begin(channel uint16, window uint32) {
	c.t.Helper()
	c.send(channel, &amqp10.Begin{IncomingWindow: window, OutgoingWindow: 1000})
	await[*amqp10.Begin](c)
}

// fence returns when the broker has handled what was sent before.
func (c *client) fence() {
	c.t.Helper()
	c.begin(63, 0)
	c.send(63, &amqp10.End{})
	await[*amqp10.End](c)
}

func composite(v amqp10.Composite) amqp10.Value {
	value, _, err := amqp10.ReadValue(v.Append(nil))
	if err != nil {
		panic(err)
	}
	return value
}

// publisher attaches a link to an address, "" for an anonymous one.
func (c *client) publisher(channel uint16, handle uint32, address string) *amqp10.Flow {
	c.t.Helper()
	t := &amqp10.Target{}
	if address != "" {
		t.Address = []byte(address)
	}
	c.send(channel, &amqp10.Attach{
		Name: []byte("p"), Handle: handle, Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), Target: composite(t), InitialDeliveryCount: amqp10.Some[uint32](0),
	})
	await[*amqp10.Attach](c)
	return await[*amqp10.Flow](c)
}

// consumer attaches a link from a queue and gives it credit.
func (c *client) consumer(channel uint16, handle uint32, queue string, credit uint32) {
	c.t.Helper()
	c.send(channel, &amqp10.Attach{
		Name: []byte("c"), Handle: handle, Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: []byte("/queues/" + queue)}), Target: composite(&amqp10.Target{}),
	})
	await[*amqp10.Attach](c)
	if credit > 0 {
		c.credit(channel, handle, 0, credit, false)
	}
}

func (c *client) credit(channel uint16, handle, count, credit uint32, drain bool) {
	c.t.Helper()
	c.send(channel, &amqp10.Flow{
		NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1 << 20, OutgoingWindow: 1000,
		Handle: amqp10.Some(handle), DeliveryCount: amqp10.Some(count), LinkCredit: amqp10.Some(credit), Drain: drain,
	})
}

// heard waits until the node has read all frames before: it grants a receiver credit again, and the node echoes it.
func (c *client) heard(channel uint16, handle, count, credit uint32) {
	c.t.Helper()
	c.send(channel, &amqp10.Flow{
		NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1 << 20, OutgoingWindow: 1000,
		Handle: amqp10.Some(handle), DeliveryCount: amqp10.Some(count), LinkCredit: amqp10.Some(credit), Echo: true,
	})
	await[*amqp10.Flow](c)
}

// text is a message with a body.
func text(body string) []byte { return amqp10.AppendData(nil, []byte(body)) }

// bodyOf is the content of a message with one data section.
func (c *client) bodyOf(payload []byte) string {
	c.t.Helper()
	m, err := amqp10.ParseMessage(payload)
	if err != nil {
		c.t.Fatal(err)
	}
	_, v, _, err := amqp10.NextSection(m.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	b, _ := v.Underlying().Binary()
	return string(b)
}

// ended waits for the end of the connection.
func (c *client) ended() {
	c.t.Helper()
	for {
		if _, err := c.read(); err != nil {
			if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset") {
				return
			}
			c.t.Fatal(err)
		}
	}
}
