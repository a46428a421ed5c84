package session091

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// A message whose headers fit into no frame of a client comes to it without some of them, and says so: it ended its connection else, got
// the message again, and the queue stood still. Others get it whole. The log tells of it once for each queue.
func TestHeadersThatFitIntoNoFrameAreLeftOut(t *testing.T) {
	const frameMax = 4096
	b := brokerOn(t, vfs.NewMem())
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	var session sync.WaitGroup
	dial := func(frameMax int) (*amqp.Connection, *amqp.Channel) {
		near, far := net.Pipe()
		session.Go(func() {
			var first [8]byte
			if _, err := io.ReadFull(near, first[:]); err == nil {
				if Serve(near, first[:], Options{Broker: b, Logger: logger, Version: "4.3.6"}) {
					_ = near.Close()
				}
			}
		})
		c, err := amqp.Open(far, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/", FrameSize: frameMax})
		if err != nil {
			t.Fatal(err)
		}
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		return c, ch
	}
	large, publisher := dial(131072)
	small, ch := dial(frameMax)
	for _, q := range []string{"classic", "quorum"} {
		if _, err := publisher.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": q}); err != nil {
			t.Fatal(err)
		}
		headers := amqp.Table{"a": "kept", "large": strings.Repeat("x", 2*frameMax), "z": int64(1)}
		for range 2 {
			if err := publisher.Publish("", q, false, false, amqp.Publishing{Headers: headers, MessageId: "m", Body: []byte("body")}); err != nil {
				t.Fatal(err)
			}
		}
		deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			d, ok := <-deliveries
			if !ok {
				t.Fatal("the client has ended its connection")
			}
			left, _ := d.Headers[broker.LeftOutHeader].([]any)
			if len(d.Headers) != 3 || d.Headers["a"] != "kept" || d.Headers["z"] != int64(1) || len(left) != 1 || left[0] != "large" || d.MessageId != "m" || string(d.Body) != "body" {
				t.Errorf("%s: got %v, %q, %q", q, d.Headers, d.MessageId, d.Body)
			}
		}
		if n := strings.Count(logged.String(), "vhost=/ queue="+q+" "); n != 1 {
			t.Errorf("%d lines tell of %s:\n%s", n, q, logged.String())
		}
	}
	if _, err := publisher.QueueDeclare("got", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish("", "got", false, false, amqp.Publishing{Headers: amqp.Table{"large": strings.Repeat("x", 2*frameMax)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.QueueDeclare("got", true, false, false, false, nil); err != nil { // it has come
		t.Fatal(err)
	}
	d, ok, err := ch.Get("got", false)
	if err != nil || !ok || d.Headers[broker.LeftOutHeader] == nil {
		t.Fatalf("a get: %v, %v, %v", d.Headers, ok, err)
	}
	if err := d.Nack(false, true); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclarePassive("got", true, false, false, false, nil); err != nil { // it is back
		t.Fatal(err)
	}
	if d, ok, err = publisher.Get("got", true); err != nil || !ok || len(d.Headers["large"].(string)) != 2*frameMax {
		t.Errorf("another client gets %d headers, %v, %v; want all", len(d.Headers), ok, err)
	}
	_, _ = large.Close(), small.Close()
	session.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
