package broker

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// What a dead letter does not find because somebody takes it away at that moment is gone for good before the letter is: a
// crash could bring the one back, and the other not.
func TestADeadLetterWaitsForRemovalsThatItSees(t *testing.T) {
	d := newDisk()
	c := start(t, d, nil)
	declare(t, c, "q")
	declare(t, c, "work", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "q"})
	decl, err := c.FindReadable("work")
	if err != nil {
		t.Fatal(err)
	}
	work := runtimeOf(decl)
	p := &Publication{Key: []byte("work")}
	if err := c.Check(p); err != nil {
		t.Fatal(err)
	}
	body := c.Store(p)
	defer c.b.bodies.Release(body)
	rec := message.Record(c.b.bodies.Bytes(body))
	release := d.holdSyncs()
	defer release()
	var all sync.WaitGroup
	c.b.topo.RLock() // so that the letter comes behind who takes the queue away, and nothing is away yet
	all.Go(func() {
		if _, err := c.b.As("guest", "/").DeleteQueue("q", false, false); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the queue is to be deleted", func() bool {
		if c.b.topo.TryRLock() {
			c.b.topo.RUnlock()
			return false
		}
		return true
	})
	all.Go(func() {
		targets, _, _ := deadRouter{c.b}.RouteDead(work, "", []string{"q"}, rec, &deadletter.History{}, nil)
		if len(targets) != 0 {
			t.Error("the queue is still there")
		}
	})
	eventually(t, "the letter waits for the topology", func() bool {
		stacks := make([]byte, 8<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "deadRouter.RouteDead(")
	})
	c.b.topo.RUnlock()
	blocked(t, 2)
	release()
	all.Wait()
}
