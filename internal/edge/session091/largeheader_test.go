package session091

import (
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// A message whose headers fit into no frame of a client is sent to it all the same, as RabbitMQ does: many clients look
// at no bound. One that does ends its connection, and that is a failed delivery: a delivery limit ends it. The log says
// what has happened, once for each connection. (DL-11.3, DL-11.4)
func TestDL_11_3_HeadersTooLargeForAClientEndByTheDeliveryLimit(t *testing.T) {
	const limit, frameMax = 2, 4096
	b := brokerOn(t, vfs.NewMem())
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	var session sync.WaitGroup
	dial := func(frameMax int) *amqp.Connection {
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
		return c
	}
	publisher := dial(131072)
	ch, err := publisher.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("dead", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": limit, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
	}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Publish("", "q", false, false, amqp.Publishing{Headers: amqp.Table{"large": strings.Repeat("x", 2*frameMax)}}); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Close(); err != nil {
		t.Fatal(err)
	}
	session.Wait()
	q, dead := runtimeQueue(t, b, "q"), runtimeQueue(t, b, "dead")
	for i := range limit + 1 {
		if n := b.Node().Counts(q); n.Ready != 1 {
			t.Fatalf("%d ready after %d deliveries, want the message", n.Ready, i)
		}
		consumer := dial(frameMax)
		ended := consumer.NotifyClose(make(chan *amqp.Error, 1))
		if ch, err = consumer.Channel(); err != nil {
			t.Fatal(err)
		}
		_, _ = ch.Consume("q", "c", false, false, false, false, nil) // the end may come before its answer is heeded
		if err := <-ended; err == nil || err.Code != amqp.FrameError {
			t.Fatalf("the client has ended its connection with %v", err)
		}
		session.Wait()
	}
	if n := b.Node().Counts(q); n.Ready != 0 || n.Out != 0 {
		t.Fatalf("%d ready and %d out after %d deliveries, want it dead", n.Ready, n.Out, limit+1)
	}
	for b.Node().Counts(dead).Ready == 0 { // it is on its way
		runtime.Gosched()
	}
	told := 0
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, "headers") && strings.Contains(line, "vhost=/ queue=q") && strings.Contains(line, "frame_max=4096") && strings.Contains(line, "bytes=82") {
			told++
		}
	}
	if told != limit+1 {
		t.Errorf("%d lines of %d name the queue, the size and frame_max:\n%s", told, limit+1, logged.String())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
