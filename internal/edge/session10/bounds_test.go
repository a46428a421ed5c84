package session10_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// A client with the largest window there is gets messages.
func TestTheLargestWindow(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", "a", "b")
	c := n.open(t)
	c.begin(0, 1<<32-1)
	c.consumer(0, 0, "q", 0)
	c.send(0, &amqp10.Flow{
		NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1<<32 - 1, OutgoingWindow: 1000,
		Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](2),
	})
	awaitTransfer(c)
	awaitTransfer(c)
}

// A client that takes one transfer at a time gets all that waits for its window, in order.
func TestManyMessagesAndAWindowOfOne(t *testing.T) {
	const count = 3000
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", slices.Repeat([]string{"a"}, count)...)
	c := n.open(t)
	c.begin(0, 0)
	c.consumer(0, 0, "q", 0)
	for got := range uint32(count) {
		f := &amqp10.Flow{NextIncomingID: amqp10.Some(got), IncomingWindow: 1, OutgoingWindow: 1000}
		if got == 0 {
			f.Handle, f.DeliveryCount, f.LinkCredit = amqp10.Some[uint32](0), amqp10.Some[uint32](0), amqp10.Some[uint32](count)
		}
		c.send(0, f)
		if tr, _ := awaitTransfer(c); tr.DeliveryID.Value != got {
			t.Fatalf("delivery %d instead of %d", tr.DeliveryID.Value, got)
		}
	}
}

// A connection does not keep the memory of a message that has come.
func TestALargeMessageIsNotKept(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	const clients, size = 8, 8 << 20
	before := inUse()
	var all []*client
	for range clients {
		c := n.session(t)
		all = append(all, c)
		c.publisher(0, 0, "/exchanges/amq.topic/nowhere")
		first := one(0)
		first.More = true
		c.transfer(0, first, (&amqp10.Properties{Subject: []byte("s")}).Append(nil))
		body := text(string(make([]byte, size)))
		for rest := body; len(rest) > 0; {
			piece := rest[:min(len(rest), 100_000)]
			rest = rest[len(piece):]
			c.transfer(0, amqp10.Transfer{More: len(rest) > 0}, piece)
		}
		await[*amqp10.Disposition](c)
	}
	if kept := inUse() - before; kept > clients*size/2 {
		t.Errorf("%d bytes are kept of messages with %d", kept, clients*size)
	}
	runtime.KeepAlive(all)
}

// inUse is the memory that is not garbage.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A text of a client that does not fit into an error is cut, and stays text.
func TestLargeTextsInErrors(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	c.send(0, &amqp10.Attach{
		Name: []byte("c"), Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: []byte("/queues/" + strings.Repeat("é", 40_000))}), Target: composite(&amqp10.Target{}),
	})
	await[*amqp10.Attach](c)
	f, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	d, ok := f.is.(*amqp10.Detach)
	if !ok || d.Error == nil || len(d.Error.Description) > 3000 {
		t.Fatalf("%T %d bytes", f.is, len(d.Error.Description))
	}
}

// A link to an exchange with a routing key that no message can have is refused at once.
func TestALongRoutingKey(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	attach := func(key string) {
		c.send(0, &amqp10.Attach{
			Name: []byte("p"), Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), InitialDeliveryCount: amqp10.Some[uint32](0),
			Target: composite(&amqp10.Target{Address: []byte("/exchanges/amq.topic/" + key)}),
		})
		await[*amqp10.Attach](c)
	}
	attach(strings.Repeat("k", 256))
	d, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	c.want(d.is.(*amqp10.Detach).Error, amqp10.ConditionPreconditionFailed, "routing_key should be at most 255 bytes, actually was 256")
	attach(strings.Repeat("k", 255))
	await[*amqp10.Flow](c)
}

// A client may settle deliveries by any ranges, whole or not, and again: each is settled once, and what has no delivery costs nothing.
func TestRangesOfAll(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	const count = 2500
	n.publish(t, "q", slices.Repeat([]string{"a"}, count)...)
	c := n.open(t)
	c.begin(0, 1<<20)
	c.consumer(0, 0, "q", count)
	for range count {
		awaitTransfer(c)
	}
	accept := func(first, last uint32) {
		c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: first, Last: amqp10.Some(last), Settled: true, State: composite(&amqp10.Accepted{})})
	}
	for id := uint32(1); id < count; id += 2 {
		accept(id, id)
		accept(id, id)
	}
	accept(1<<30, 1<<31) // never sent
	accept(0, 1<<31-1)   // all there are
	c.send(0, &amqp10.End{})
	await[*amqp10.End](c)
	if q, err := n.channel(t).QueueDeclarePassive("q", true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("%d of %d are back: %v", q.Messages, count, err)
	}
}
