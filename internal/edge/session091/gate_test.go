package session091

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// While a queue asks again and again for room that there is not, another partition's gets the place that becomes free,
// unless the first has it: if both went without nobody would ask again.
func TestWhoIsRefusedKeepsNobodyFromTheRoom(t *testing.T) {
	g := &gate{}
	g.limit.Store(1)
	for range 1000 {
		g.used.Store(1)
		var asked, took atomic.Int64 // how often the other has asked, and when it got the place
		var enough atomic.Bool
		var other sync.WaitGroup
		other.Go(func() {
			for !enough.Load() {
				if n := asked.Add(1); g.TryTake() {
					took.Store(n)
					return
				}
			}
		})
		for asked.Load() < 10 {
			runtime.Gosched()
		}
		g.used.Add(-1)
		mine := g.TryTake()
		begun := asked.Load()
		enough.Store(mine)
		other.Wait()
		if at := took.Load(); mine != (at == 0) || at > begun {
			t.Fatalf("one got the place: %v; the other when it asked for the %dth time, of %d by then", mine, at, begun)
		}
	}
}

// limitedClient is a client of a broker on disk, with the durable queues a and b.
func limitedClient(t *testing.T) (b *broker.Broker, ch *amqp.Channel) {
	t.Helper()
	b, err := broker.Open(broker.Options{FS: vfs.NewMem(), Dir: "data", GlobalQos: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	client, end := connect(t, b)
	t.Cleanup(end)
	if ch, err = client.Channel(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	return b, ch
}

func consume(t *testing.T, ch *amqp.Channel, queue, tag string) <-chan amqp.Delivery {
	t.Helper()
	d, err := ch.Consume(queue, tag, false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// BR-9.9: a message that is set aside makes room for all queues of the channel.
func TestBR_9_9_WhatIsSetAsideMakesRoomForOtherQueues(t *testing.T) {
	b, ch := limitedClient(t)
	if err := ch.Qos(1, 0, true); err != nil {
		t.Fatal(err)
	}
	consume(t, ch, "a", "a")
	other := consume(t, ch, "b", "b")
	c := connectionOf(t, b, "a")
	_, letGo := StopSending(c)
	client, end := connect(t, b)
	defer end()
	publisher, err := client.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if confirm, err := publisher.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{Body: []byte(name)}); err != nil || !confirm.Wait() {
			t.Fatal("not confirmed", err)
		}
	}
	c.out.Waiting(func(it *item) {
		if it.kind == itemDelivery { // it lies where there is no file
			b.Bodies().Release(it.d.Body)
			it.d.Body = b.Bodies().Adopt(message.MakeLocation(message.InKeep, 77, 32))
		}
	})
	letGo()
	select {
	case d := <-other:
		if string(d.Body) != "b" {
			t.Errorf("%q came", d.Body)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing comes from the other queue")
	}
}

// A channel knows the queues that have consumers under its limit, each once.
func TestChannelKnowsTheQueuesUnderItsLimit(t *testing.T) {
	b, client := limitedClient(t)
	consume(t, client, "a", "1")
	consume(t, client, "a", "2")
	consume(t, client, "b", "3")
	if _, err := client.Consume("b", "4", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	ch := connectionOf(t, b, "a").channels[1]
	ofA, ofB := runtimeQueue(t, b, "a"), runtimeQueue(t, b, "b")
	check := func(when string, a, b int) {
		t.Helper()
		ch.mu.Lock()
		defer ch.mu.Unlock()
		want := map[*partition.Queue]int{}
		if a > 0 {
			want[ofA] = a
		}
		if b > 0 {
			want[ofB] = b
		}
		if len(ch.queues) != len(want) || ch.queues[ofA] != a || ch.queues[ofB] != b {
			t.Errorf("%s: %d and %d consumers of %d queues, want %d and %d", when, ch.queues[ofA], ch.queues[ofB], len(ch.queues), a, b)
		}
	}
	check("consumed", 2, 1)
	if err := client.Cancel("1", false); err != nil {
		t.Fatal(err)
	}
	check("cancelled", 1, 1)
	if _, err := client.QueueDelete("b", false, false, false); err != nil {
		t.Fatal(err)
	}
	check("deleted", 1, 0)
	if err := client.Cancel("2", false); err != nil {
		t.Fatal(err)
	}
	check("cancelled", 0, 0)
}
