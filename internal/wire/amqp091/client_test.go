package amqp091

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// TestTheGoClientUnderstandsUs has RabbitMQ's own Go client talk to this codec: a
// message with all properties goes out and comes back, read and written by both.
func TestTheGoClientUnderstandsUs(t *testing.T) {
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { // ends when the client has closed or the pipe is shut
		defer ours.Close()
		served <- (&echo{conn: ours}).serve()
	}()
	defer theirs.Close()

	conn, err := amqp.Open(theirs, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "u", Password: "p"}}, Vhost: "v", Heartbeat: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclare("q", true, false, true, false, amqp.Table{"x-max-length": int32(3), "x-queue-type": "classic"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (amqp.Queue{Name: "q", Messages: 3, Consumers: 1}); q != want {
		t.Errorf("declared: got %+v, want %+v", q, want)
	}
	sent := amqp.Publishing{
		ContentType: "a/b", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 3, CorrelationId: "c", ReplyTo: "r", Expiration: "50",
		MessageId: "m", Timestamp: time.Unix(1600000000, 0), Type: "t", UserId: "u", AppId: "a", Body: []byte("body"),
		Headers: amqp.Table{
			"bool": true, "i8": int8(-1), "u8": uint8(200), "i16": int16(-300), "u16": uint16(60000), "i32": int32(-70000), "u32": uint32(4e9), "i64": int64(-5e12),
			"f32": float32(1.5), "f64": 2.25, "dec": amqp.Decimal{Scale: 2, Value: 314}, "str": "text", "bin": []byte{0, 255}, "void": nil,
			"time": time.Unix(1600000001, 0), "table": amqp.Table{"k": "v"}, "list": []any{int32(1), "two", false},
		},
	}
	if err := ch.Publish("x", "k", true, false, sent); err != nil {
		t.Fatal(err)
	}
	got, ok, err := ch.Get("q", false)
	if err != nil || !ok {
		t.Fatalf("get: %t, %v", ok, err)
	}
	if got.Exchange != "x" || got.RoutingKey != "k" || got.DeliveryTag != 9 || !got.Redelivered || got.MessageCount != 8 {
		t.Errorf("get-ok: %+v", got)
	}
	back := amqp.Publishing{
		Headers: got.Headers, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode, Priority: got.Priority,
		CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, Expiration: got.Expiration, MessageId: got.MessageId, Timestamp: got.Timestamp,
		Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
	}
	if diff := cmp.Diff(sent, back); diff != "" {
		t.Errorf("published and got differ:\n%s", diff)
	}
	if err := got.Nack(true, true); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// echo is as much of a server as one message needs: it keeps what was published and
// gives it back.
type echo struct {
	conn  net.Conn
	buf   []byte
	out   []byte
	props []byte
	body  []byte
}

// serve answers until the client closes the connection.
func (e *echo) serve() error {
	hello := make([]byte, len(ProtocolHeader))
	if _, err := io.ReadFull(e.conn, hello); err != nil || string(hello) != ProtocolHeader {
		return fmt.Errorf("protocol header %q: %w", hello, err)
	}
	if err := e.send(0, ConnectionStart{VersionMinor: 9, Mechanisms: "PLAIN", Locales: "en_US", ServerProperties: Table{{"product", "echo"}}}); err != nil {
		return err
	}
	for {
		f, err := e.next()
		if err != nil {
			return err
		}
		switch f.Type {
		case FrameHeader:
			_, _, props, err := ParseContentHeader(f.Payload)
			if err != nil {
				return err
			}
			p, err := ParseProps(props)
			if err != nil {
				return err
			}
			e.props = AppendProps(nil, props, &p, nil)
		case FrameBody:
			e.body = append([]byte{}, f.Payload...)
		case FrameMethod:
			m, err := DecodeMethod(f.Payload)
			if err != nil {
				return err
			}
			if err := e.answer(f.Channel, m); err != nil {
				return err
			}
			if m.ID() == ConnectionCloseID {
				return nil
			}
		}
	}
}

// answer checks what the client sent and answers it.
func (e *echo) answer(ch uint16, m Method) error {
	switch m := m.(type) {
	case *ConnectionStartOk:
		if m.Mechanism != "PLAIN" || m.Response != "\x00u\x00p" {
			return fmt.Errorf("got %+v", m)
		}
		return e.send(0, ConnectionTune{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60})
	case *ConnectionTuneOk:
		return nil
	case *ConnectionOpen:
		if m.VirtualHost != "v" {
			return fmt.Errorf("got %+v", m)
		}
		return e.send(0, ConnectionOpenOk{})
	case *ConnectionClose:
		return e.send(0, ConnectionCloseOk{})
	case *ChannelOpen:
		return e.send(ch, ChannelOpenOk{})
	case *QueueDeclare:
		want := &QueueDeclare{Queue: "q", Durable: true, Exclusive: true, Arguments: Table{{"x-max-length", int32(3)}, {"x-queue-type", "classic"}}}
		m.Arguments = m.Arguments.Sorted()
		if diff := cmp.Diff(want, m); diff != "" {
			return errors.New(diff)
		}
		return e.send(ch, QueueDeclareOk{Queue: "q", MessageCount: 3, ConsumerCount: 1})
	case *BasicPublish:
		if *m != (BasicPublish{Exchange: "x", RoutingKey: "k", Mandatory: true}) {
			return fmt.Errorf("got %+v", m)
		}
		return nil
	case *BasicGet:
		e.out = AppendGetOk(e.out[:0], ch, 9, true, []byte("x"), []byte("k"), 8)
		e.out = AppendContentHeader(e.out, ch, ClassBasic, uint64(len(e.body)), e.props)
		e.out = AppendBody(e.out, ch, e.body, 10)
		_, err := e.conn.Write(e.out)
		return err
	case *BasicNack:
		if *m != (BasicNack{DeliveryTag: 9, Multiple: true, Requeue: true}) {
			return fmt.Errorf("got %+v", m)
		}
		return nil
	}
	return fmt.Errorf("unexpected %s", m.Name())
}

func (e *echo) send(ch uint16, m Method) error {
	e.out = AppendMethod(e.out[:0], ch, m)
	_, err := e.conn.Write(e.out)
	return err
}

// next returns the next frame; its payload is good until the next call.
func (e *echo) next() (Frame, error) {
	chunk := make([]byte, 4096)
	for {
		f, n, err := NextFrame(e.buf, testMax)
		if err != nil {
			return Frame{}, err
		}
		if n > 0 {
			e.buf = e.buf[n:]
			return f, nil
		}
		n, err = e.conn.Read(chunk)
		if err != nil {
			return Frame{}, err
		}
		e.buf = append(e.buf, chunk[:n]...)
	}
}
