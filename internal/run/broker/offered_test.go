package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// A queue is deleted while a message of it is offered to a queue in another log, which takes it. The node dies before
// the deletion is stored: the queue is back, and the message is at its target and nowhere else.
func TestAnOfferedMessageIsNotDoubledByADeletion(t *testing.T) {
	d := newDisk()
	var armed atomic.Bool
	taken, goOn := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(taken) })
	c := start(t, d, func(name string) {
		if name == partition.FailMailTaken && armed.Load() {
			once()
			<-goOn
		}
	})
	mustDeclare(t, c, "a")
	mustDeclare(t, c, "b", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
	if !offer(t, c, "a", "m") {
		t.Fatal("not routed")
	}
	find := func(name message.QueueName) *partition.Queue {
		q, err := c.find(name, func(topology.Resource) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return runtimeOf(q)
	}
	from, to := find("a"), find("b")
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: "a"}
	var moves []partition.Move
	_, _, err := c.b.node.Browse(from, queue.Cursor{}, 10, func(v queue.View, _ message.Record, _ []byte) bool {
		moves = append(moves, partition.Move{ID: v.ID, Targets: []*partition.Queue{to}, History: h.Append(nil)})
		return true
	})
	if err != nil || len(moves) != 1 {
		t.Fatal(err, len(moves))
	}
	armed.Store(true)
	var all sync.WaitGroup
	all.Go(func() { _, _ = c.b.node.Move(context.Background(), from, moves) })
	<-taken
	release := d.holdSyncs()
	defer release()
	all.Go(func() { _, _ = c.b.As("guest", "/").DeleteQueue("a", false, false) })
	<-d.held // the deletion is being stored
	armed.Store(false)
	close(goOn)
	eventually(t, "the answer is heard", func() bool { return len(c.b.node.Outboxes()) == 0 })
	if !c.b.node.HasDeleted(from) {
		t.Fatal("not deleted")
	}
	if err := c.b.data.Journal.Sync(); err != nil { // as any confirm of anybody does
		t.Fatal(err)
	}
	after := start(t, d.crash(), nil)
	eventually(t, "nothing is on its way", func() bool { return len(after.b.node.Outboxes()) == 0 })
	if a, b := holds(t, after, "a"), holds(t, after, "b"); a != 0 || b != 1 {
		t.Errorf("after the crash a has %d messages and b %d, want 0 and 1", a, b)
	}
	release()
	all.Wait()
}
