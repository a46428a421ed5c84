// Package client10 is a client of AMQP 1.0 for the suites that play nodes: in frames, with little between them and the test.
// A [Wire] reads frames from a socket, and a [Conn] opens a connection on it. A [Session] on top of it publishes and consumes, for tests that need no frames
// of their own. [Message] and [Received] are messages as tests see them.
//
// It trusts nothing that the server says about sizes, and judges nothing else: what a frame means is for the tests.
package client10

import (
	"fmt"
	"net"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// Options say how to open a connection.
type Options struct {
	VHost     string // "" for the default one
	MaxFrame  uint32 // what the server may send, in octets; 0: MaxFrame
	Container string // the name of the client
	Timeout   time.Duration
}

// Conn is an open connection. One goroutine reads it, and one at a time writes to it.
type Conn struct {
	Wire
	PeerMaxFrame uint32 // the largest frame that the server takes, in octets
}

// Dial opens a connection as the user guest, as far as open. An error names the step.
func Dial(addr string, o Options) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, o.Timeout)
	if err != nil {
		return nil, err
	}
	return Open(nc, o)
}

// Open is Dial on a socket that is there. It closes the socket if it fails.
func Open(nc net.Conn, o Options) (*Conn, error) {
	c := &Conn{Wire: Wire{Conn: nc}}
	_ = nc.SetDeadline(time.Now().Add(o.Timeout))
	if err := c.open(o); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	_ = nc.SetDeadline(time.Time{})
	return c, nil
}

func (c *Conn) open(o Options) error {
	if err := c.Exchange(amqp10.ProtocolHeaderSASL); err != nil {
		return err
	}
	if _, err := expect[*amqp10.SASLMechanisms](c); err != nil {
		return err
	}
	init := amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: amqp10.AppendPlain(nil, "", "guest", "guest")}
	if _, err := c.Write(amqp10.AppendFrame(nil, 0, &init)); err != nil {
		return err
	}
	outcome, err := expect[*amqp10.SASLOutcome](c)
	if err != nil {
		return err
	}
	if outcome.Code != amqp10.SASLCodeOK {
		return fmt.Errorf("refused: %v", outcome.Code)
	}
	if err := c.Exchange(amqp10.ProtocolHeader); err != nil {
		return err
	}
	open := amqp10.Open{ContainerID: []byte(o.Container), MaxFrameSize: amqp10.Some(uint32(MaxFrame)), IdleTimeOut: amqp10.Some[uint32](0)}
	if o.MaxFrame > 0 {
		open.MaxFrameSize.Value = o.MaxFrame
	}
	open.IdleTimeOut.Set = false
	if o.VHost != "" {
		open.Hostname = []byte("vhost:" + o.VHost)
	}
	if _, err := c.Write(amqp10.AppendFrame(nil, 0, &open)); err != nil {
		return err
	}
	theirs, err := expect[*amqp10.Open](c)
	if err != nil {
		return err
	}
	c.PeerMaxFrame = theirs.MaxFrameSize.Value
	return nil
}

func expect[T amqp10.Composite](c *Conn) (t T, err error) {
	f, err := c.Next()
	if err != nil {
		return t, err
	}
	t, ok := f.Is.(T)
	if !ok {
		return t, fmt.Errorf("want %T, got %T %s", t, f.Is, Said(f.Is))
	}
	return t, nil
}

// Described is a composite type as a value, for the fields that hold one.
func Described(c amqp10.Composite) amqp10.Value { return amqp10.MustValue(c.Append(nil)) }

// Queue is the address of a queue whose name needs no escapes.
func Queue(name string) string { return "/queues/" + name }

// Exchange is the address of an exchange and a routing key, neither of which needs escapes.
func Exchange(name, key string) string {
	if key == "" {
		return "/exchanges/" + name
	}
	return "/exchanges/" + name + "/" + key
}
