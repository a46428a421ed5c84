package session091

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/queue"
	"bartleby.mq/internal/topology"
)

// A message that cannot be read from disk ends the connection it was to be sent on
// with 541 and a line that names queue and place; it goes back to its queue, and so
// does what was to be sent behind it.
func TestUnreadableMessageGoesBack(t *testing.T) {
	b, err := broker.Open(broker.Options{FS: vfs.NewMem(), Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	near, far := net.Pipe()
	var session sync.WaitGroup
	session.Go(func() {
		var first [8]byte
		if _, err := io.ReadFull(near, first[:]); err != nil {
			return
		}
		Serve(near, first[:], Options{Broker: b, Logger: slog.New(slog.NewTextHandler(&logged, nil)), Version: "4.3.6"})
	})
	client, err := amqp.Open(far, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/"})
	if err != nil {
		t.Fatal(err)
	}
	closed := client.NotifyClose(make(chan *amqp.Error, 1))
	ch, err := client.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"q", "other"} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ch.Consume("other", "c", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: []byte("hello"), DeliveryMode: 2})
		if err != nil || !c.Wait() {
			t.Fatal("not confirmed", err)
		}
	}
	// Two deliveries under way, of which the first lies where there is no file.
	c := connectionOf(t, b, "other")
	c.chMu.Lock()
	channel := c.channels[1]
	c.chMu.Unlock()
	q := runtimeQueue(t, b, "q")
	nowhere := message.MakeLocation(message.InKeep, 77, 32)
	for i := range 2 {
		d, _, ok, err := b.Node().Get(q, false)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if i == 0 {
			b.Bodies().Release(d.Body)
			d.Body = b.Bodies().Adopt(nowhere)
		}
		c.deliver(&item{kind: itemGet, ch: channel, q: q, d: d})
	}
	c.flush(false)
	if err := <-closed; err == nil || err.Code != amqp.InternalError || !strings.Contains(err.Reason, "queue 'q'") {
		t.Errorf("the connection ended with %v, want 541 that names the queue", err)
	}
	session.Wait()
	if n := b.Node().Counts(q); n.Ready != 2 || n.Out != 0 {
		t.Errorf("%d ready and %d out, want both messages back", n.Ready, n.Out)
	}
	if live, _ := b.Bodies().Live(nowhere.Space(), nowhere.Segment()); live != 0 {
		t.Errorf("%d references to the place are left", live)
	}
	if text := logged.String(); !strings.Contains(text, "cannot be read") || !strings.Contains(text, "queue=q") || !strings.Contains(text, "keep:77:32") {
		t.Errorf("the log does not name queue and place:\n%s", text)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// lockedBuffer is a log that is written to and read by two goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// runtimeQueue is a queue as its partition runs it.
func runtimeQueue(t *testing.T, b *broker.Broker, name message.QueueName) (rt *partition.Queue) {
	t.Helper()
	b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		if q, ok := v.Queue(name); ok {
			rt = q.Runtime.(*partition.Queue)
		}
	})
	if rt == nil {
		t.Fatalf("there is no queue %s", name)
	}
	return rt
}

// connectionOf is the connection that consumes from a queue.
func connectionOf(t *testing.T, b *broker.Broker, name message.QueueName) *conn {
	t.Helper()
	var c *conn
	b.Node().RangeConsumers(runtimeQueue(t, b, name), func(k *queue.Consumer, _ bool) { c = k.Target.(*consumer).ch.c })
	if c == nil {
		t.Fatalf("nobody consumes from %s", name)
	}
	return c
}
