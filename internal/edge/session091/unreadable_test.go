package session091

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// A message that can be neither read from disk nor set aside ends the connection it was to
// be sent on with 541 and a line that names queue and place; it goes back to its queue, and
// so does what was to be sent behind it.
func TestUnreadableMessageGoesBack(t *testing.T) {
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "set-aside") {
			return errors.New("no room")
		}
		return nil
	}))
	b, err := broker.Open(broker.Options{FS: files, Dir: "data"})
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
		if Serve(near, first[:], Options{Broker: b, Logger: slog.New(slog.NewTextHandler(&logged, nil)), Version: "4.3.6"}) {
			_ = near.Close()
		}
	})
	client, err := amqp.Open(far, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/"})
	if err != nil {
		t.Fatal(err)
	}
	closed := client.NotifyClose(make(chan *amqp.Error, 1))
	ch := confirmingConsumer(t, client)
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
	c.out.Flush(false)
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

// rotten is what bodies begin with that rot on disk.
const rotten = "this will rot"

// A message that is lost on disk is set aside, and the client gets the others: a consumer
// whose prefetch limit it was within, a get that then has the next message, and a get that
// has none.
func TestLostMessageIsPassedOver(t *testing.T) {
	files := vfs.NewMem()
	bodies := map[string][]string{
		"next": {rotten, "a"}, "none": {rotten}, "consumed": {rotten, "b", rotten, rotten, "c", rotten},
		"unacknowledged": {rotten, "b", rotten, rotten, "c", rotten},
	}
	kinds := []string{"classic", "quorum"}
	b := brokerOn(t, files)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	client, end := connect(t, b)
	ch, err := client.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		mode := amqp.Persistent
		if kind == "quorum" {
			mode = amqp.Transient // it keeps them all the same
		}
		for name, list := range bodies {
			name = kind + " " + name
			if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
				t.Fatal(err)
			}
			for _, body := range list {
				c, err := ch.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{Body: []byte(body), DeliveryMode: mode})
				if err != nil || !c.Wait() {
					t.Fatal("not confirmed", err)
				}
			}
		}
	}
	end()
	if err := errors.Join(b.Node().Checkpoint(), b.Close()); err != nil {
		t.Fatal(err)
	}
	rotAll(t, files, "data/journal")
	b = brokerOn(t, files)
	client, end = connect(t, b)
	if ch, err = client.Channel(); err != nil {
		t.Fatal(err)
	}
	if err := ch.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if d, ok, err := ch.Get(kind+" next", true); err != nil || !ok || string(d.Body) != "a" || d.MessageCount != 0 {
			t.Errorf("%s: get returned %q before %d, %t, %v; want the second message", kind, d.Body, d.MessageCount, ok, err)
		}
		if d, ok, err := ch.Get(kind+" none", false); err != nil || ok {
			t.Errorf("%s: get returned %q, %v; want none", kind, d.Body, err)
		}
		for name, noAck := range map[string]bool{" consumed": false, " unacknowledged": true} {
			deliveries, err := ch.Consume(kind+name, kind+name, noAck, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"b", "c"} {
				d := <-deliveries
				if string(d.Body) != want {
					t.Errorf("%s%s: %q was delivered, want %q", kind, name, d.Body, want)
				}
				if noAck {
					continue
				}
				if err := d.Ack(true); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	end()
	for _, kind := range kinds {
		for name, want := range map[string]uint64{"next": 1, "none": 1, "consumed": 4, "unacknowledged": 4} {
			n := b.Node().Counts(runtimeQueue(t, b, message.QueueName(kind+" "+name)))
			if n.Messages() != 0 || n.Stats.SetAside != want {
				t.Errorf("%s %s: %d messages are left and %d were set aside, want 0 and %d", kind, name, n.Messages(), n.Stats.SetAside, want)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func brokerOn(t *testing.T, files vfs.FS) *broker.Broker {
	t.Helper()
	b, err := broker.Open(broker.Options{FS: files, Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// connect connects a client; end closes it and waits for its session.
func connect(t *testing.T, b *broker.Broker) (client *amqp.Connection, end func()) {
	t.Helper()
	near, far := net.Pipe()
	var session sync.WaitGroup
	session.Go(func() {
		var first [8]byte
		if _, err := io.ReadFull(near, first[:]); err == nil {
			if Serve(near, first[:], Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"}) {
				_ = near.Close()
			}
		}
	})
	client, err := amqp.Open(far, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return client, func() {
		t.Helper()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		session.Wait()
	}
}

// rotAll changes a byte of each body in a directory that is to rot.
func rotAll(t *testing.T, files vfs.FS, dir string) {
	t.Helper()
	names, err := files.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		f, err := files.OpenReadWrite(files.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; ; at++ {
			next := bytes.Index(b[at:], []byte(rotten))
			if next < 0 {
				break
			}
			at += next
			n++
			if _, err := f.WriteAt([]byte{'T'}, int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n != 20 {
		t.Fatalf("%d bodies have rotted, want 20", n)
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
	for _, k := range b.Node().Consumers(runtimeQueue(t, b, name)) {
		c = k.Target.(*consumer).ch.c
	}
	if c == nil {
		t.Fatalf("nobody consumes from %s", name)
	}
	return c
}

// confirmingConsumer opens channel 1 in confirm mode, declares the queues q and other, and consumes other, by which the connection
// is found (connectionOf).
func confirmingConsumer(t *testing.T, client *amqp.Connection) *amqp.Channel {
	t.Helper()
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
	return ch
}
