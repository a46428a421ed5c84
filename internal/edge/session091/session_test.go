package session091_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
)

// server is a broker in memory with a listener.
type server struct {
	b    *broker.Broker
	addr string
	stop func() // as Cleanup will, or before
}

func serve(t testing.TB, o broker.Options) *server {
	t.Helper()
	if o.FS == nil {
		o.FS = vfs.NewMem()
	}
	o.Dir = "data"
	b, err := broker.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Empty() {
		err = b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"})
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
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
				if session091.Serve(nc, first[:], session091.Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"}) {
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
		if err := b.Close(); err != nil && o.OnFatal == nil { // else the test has the disk fail
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &server{b, l.Addr().String(), stop}
}

func (s *server) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + s.addr)
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

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A message goes the whole way: declared, confirmed, delivered, rejected, dead-lettered, got.
func TestWholeWay(t *testing.T) {
	s := serve(t, broker.Options{})
	ch := s.channel(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must[amqp.Queue](t)(ch.QueueDeclare("dlq", true, false, false, false, nil))
	must[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}))
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	deliveries := must[<-chan amqp.Delivery](t)(ch.Consume("q", "c", false, false, false, false, nil))
	const n = 2000
	var confirms []*amqp.DeferredConfirmation
	for i := range n {
		confirms = append(confirms, must[*amqp.DeferredConfirmation](t)(ch.PublishWithDeferredConfirmWithContext(ctx, "", "q", false, false, amqp.Publishing{
			Body: fmt.Appendf(nil, "m%d", i), DeliveryMode: uint8(1 + i%2), Headers: amqp.Table{"z": "1", "a": int64(2)},
		})))
	}
	for _, c := range confirms {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			t.Fatal("not confirmed", err)
		}
	}
	for i := range n {
		d := <-deliveries
		if string(d.Body) != fmt.Sprintf("m%d", i) {
			t.Fatalf("got %q, want m%d", d.Body, i)
		}
		if err := d.Reject(false); err != nil {
			t.Fatal(err)
		}
	}
	dead := must[<-chan amqp.Delivery](t)(ch.Consume("dlq", "d", true, false, false, false, nil))
	for i := range n {
		select {
		case d := <-dead:
			if string(d.Body) != fmt.Sprintf("m%d", i) {
				t.Fatalf("got dead %q, want m%d", d.Body, i)
			}
			if d.Headers["x-first-death-reason"] != "rejected" {
				t.Fatalf("headers %v", d.Headers)
			}
		case <-ctx.Done():
			t.Fatalf("dead letter %d of %d did not come", i, n)
		}
	}
}
