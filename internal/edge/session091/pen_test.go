package session091

import (
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What a connection sends with is taken apart at its end, when whoever has the pen has laid it
// down: another goroutine may be reading a message from disk just then, into memory that would
// be given to somebody else meanwhile, and what it cannot send must still come back. What the
// client is told last waits for the pen, too.
func TestTheEndOfAConnectionWaitsForThePen(t *testing.T) {
	b := brokerOn(t, vfs.NewMem())
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var session sync.WaitGroup
	session.Go(func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		var first [8]byte
		if _, err := io.ReadFull(near, first[:]); err == nil {
			Serve(near, first[:], Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"})
		}
	})
	client, err := amqp.Dial("amqp://guest:guest@" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ch := confirmingConsumer(t, client)
	if c, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: []byte("hello"), DeliveryMode: 2}); err != nil || !c.Wait() {
		t.Fatal("not confirmed", err)
	}
	c := connectionOf(t, b, "other")
	q := runtimeQueue(t, b, "q")
	d, _, ok, err := b.Node().Get(q, false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	c.chMu.Lock()
	channel := c.channels[1]
	c.chMu.Unlock()
	c.out.mu.Lock()
	for c.out.held {
		c.out.mu.Unlock()
		runtime.Gosched()
		c.out.mu.Lock()
	}
	c.out.held = true // as of a partition that sends a delivery
	c.out.mu.Unlock()
	var closed sync.WaitGroup
	closed.Go(func() {
		if err := client.Close(); err != nil {
			t.Errorf("the client was not told that its connection is closed: %v", err)
		}
	})
	<-c.ended
	for shut := false; !shut; runtime.Gosched() {
		c.out.mu.Lock()
		shut = c.out.shut
		c.out.mu.Unlock()
	}
	c.out.stuck = append(c.out.stuck, item{kind: itemGet, ch: channel, q: q, d: d}) // it could not be read
	c.layDown()
	closed.Wait()
	session.Wait()
	if n := b.Node().Counts(q); n.Ready != 1 || n.Out != 0 {
		t.Errorf("%d ready and %d out, want the message back", n.Ready, n.Out)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Whoever has the pen may lay it down right after the writer has looked for the last time: what is
// left to the writer then is sent all the same.
func TestTheLastWordsAreSentByWhoKeepsThePen(t *testing.T) {
	near, far := net.Pipe()
	c := &conn{broker: new(broker.Broker), nc: near, ended: make(chan struct{})}
	c.out.wakec = make(chan struct{}, 1)
	c.out.held = true // as of a partition that sends a delivery
	c.out.putMethod(0, amqp091.ConnectionCloseOk{})
	c.writeAll() // the pen is not there
	c.out.held = false
	c.out.wire = append(c.out.wire, "half a frame"...) // what the socket did not take of the delivery
	var got []byte
	var client sync.WaitGroup
	client.Go(func() { got, _ = io.ReadAll(far) })
	if !c.out.keep() {
		t.Fatal("nobody has the pen, and it could not be kept")
	}
	c.writeTaken()
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	client.Wait()
	if want := string(amqp091.AppendMethod([]byte("half a frame"), 0, amqp091.ConnectionCloseOk{})); string(got) != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// A connection that is to be closed because a message can neither be read nor set aside keeps what is behind it until its
// consumers are gone: none of them is resumed, and the writer, who has nothing to send, waits for the end.
func TestTheWriterDoesNotWaitForRoomThatWhatIsStuckTakes(t *testing.T) {
	for name, pending := range map[string]int64{"full": highWater, "nearly empty": 1} {
		t.Run(name, func(t *testing.T) {
			c := &conn{broker: new(broker.Broker)}
			c.out.stuck = []item{{kind: itemGet}}
			c.out.pending.Store(pending)
			c.out.paused = []pausedConsumer{{}} // which has no queue: to resume it panics
			c.writeAll()
			if len(c.out.paused) > 0 || c.out.held {
				t.Errorf("%d consumers wait, the pen is held: %v", len(c.out.paused), c.out.held)
			}
		})
	}
}
