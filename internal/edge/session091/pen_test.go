package session091

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
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
			if Serve(near, first[:], Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"}) {
				_ = near.Close()
			}
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
	letGo := c.out.Halt() // as a partition that sends a delivery
	var closed sync.WaitGroup
	closed.Go(func() {
		if err := client.Close(); err != nil {
			t.Errorf("the client was not told that its connection is closed: %v", err)
		}
	})
	<-c.sock.Ended()
	c.out.Keep(&item{kind: itemGet, ch: channel, q: q, d: d}) // it could not be read
	letGo()
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
