package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// raw is a client that sends what it likes.
type raw struct {
	t *testing.T
	net.Conn
	in []byte
}

// open makes a TCP connection and says nothing.
func open(t *testing.T) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", server.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, Conn: nc}
}

// login opens a connection as far as open-ok, with the largest limits there are.
func login(t *testing.T) *raw {
	t.Helper()
	c := open(t)
	c.send([]byte(amqp091.ProtocolHeader))
	c.expect(amqp091.ConnectionStartID)
	c.method(0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	m := c.expect(amqp091.ConnectionTuneID)
	tune := m.(*amqp091.ConnectionTune)
	c.method(0, amqp091.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
	c.method(0, amqp091.ConnectionOpen{VirtualHost: "/"})
	c.expect(amqp091.ConnectionOpenOkID)
	return c
}

// loginChannel is login with channel 1 open.
func loginChannel(t *testing.T) *raw {
	t.Helper()
	c := login(t)
	c.method(1, amqp091.ChannelOpen{})
	c.expect(amqp091.ChannelOpenOkID)
	return c
}

func (c *raw) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *raw) method(channel uint16, m amqp091.Method) {
	c.t.Helper()
	c.send(amqp091.AppendMethod(nil, channel, m))
}

// next reads one frame; nil when the server has closed.
func (c *raw) next() *amqp091.Frame {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		f, n, err := amqp091.NextFrame(c.in, 1<<20)
		if err != nil {
			c.t.Fatalf("the server sent a bad frame: %v", err)
		}
		if n > 0 {
			f.Payload = bytes.Clone(f.Payload)
			c.in = c.in[n:]
			return &f
		}
		b := make([]byte, 64<<10)
		k, err := c.Read(b)
		c.in = append(c.in, b[:k]...)
		if k == 0 && err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				c.t.Fatal("the server says nothing")
			}
			return nil
		}
	}
}

// expect reads a method and fails if it is another.
func (c *raw) expect(id amqp091.MethodID) amqp091.Method {
	c.t.Helper()
	f := c.next()
	if f == nil {
		c.t.Fatalf("the server has closed, want method %x", id)
	}
	m, err := amqp091.DecodeMethod(f.Payload)
	if err != nil || m.ID() != id {
		c.t.Fatalf("the server sent %v (%v), want method %x", m, err, id)
	}
	return m
}

// gone waits until the server has closed the connection, and returns the last
// connection.close it sent, nil if none. What else it sends is passed over.
func (c *raw) gone() (last *amqp091.ConnectionClose) {
	c.t.Helper()
	for {
		f := c.next()
		if f == nil {
			return last
		}
		if m, err := amqp091.DecodeMethod(f.Payload); err == nil {
			if closed, ok := m.(*amqp091.ConnectionClose); ok {
				last = closed
				_, _ = c.Write(amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{}))
			}
		}
	}
}

// refusedWith checks that the server closes the connection for the reason given.
func (c *raw) refusedWith(code uint16, text string) {
	c.t.Helper()
	closed := c.gone()
	switch {
	case closed == nil:
		c.t.Errorf("the server closed without a word, want %d %s", code, text)
	case closed.ReplyCode != code || !strings.Contains(closed.ReplyText, text):
		c.t.Errorf("the server closed with %d %s, want %d %s", closed.ReplyCode, closed.ReplyText, code, text)
	}
	_ = c.Close()
}

// frame makes a frame of any kind, right or wrong.
func frame(kind byte, channel uint16, size uint32, payload []byte, end byte) []byte {
	b := []byte{kind, byte(channel >> 8), byte(channel), byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}
	return append(append(b, payload...), end)
}

// publish makes the frames of a message without its body.
func publish(channel uint16, exchange, key string, announced uint64, props []byte, mandatory bool) []byte {
	b := amqp091.AppendPublish(nil, channel, amqp091.Publish{Exchange: []byte(exchange), RoutingKey: []byte(key), Mandatory: mandatory})
	return amqp091.AppendContentHeader(b, channel, amqp091.ClassBasic, announced, props)
}

// noProps are the properties of a message that has none.
var noProps = []byte{0, 0}

// flood sends b again and again until the server takes no more for a while, the
// time is over, or it has closed; it says how many bytes went out.
func (c *raw) flood(b []byte, most time.Duration) (sent int) {
	end := time.Now().Add(most)
	for time.Now().Before(end) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := c.Write(b)
		sent += n
		if err != nil {
			break
		}
	}
	_ = c.SetWriteDeadline(time.Time{})
	return sent
}

// drain reads everything there is until the server closes.
func (c *raw) drain() { _, _ = io.Copy(io.Discard, c) }

func name(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
