package broker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// These tests make the node wait for its disks where it might have something locked that it should not have. A
// program built with the tag invariants ends if it does. See package held.

// Queues are deleted while a checkpoint that has them is being written.
func TestNoLockWhileQueuesAreDeletedInACheckpoint(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			var c *Connection
			var armed atomic.Bool
			c = start(t, newDisk(), func(at string) {
				if at != partition.FailCheckpointCut || !armed.CompareAndSwap(true, false) {
					return
				}
				var one sync.WaitGroup
				one.Go(func() { // who writes the checkpoint has locks of its own
					if n, err := c.DeleteQueue("goes", false, false); err != nil || n != 1000 {
						t.Errorf("deleted with %d messages, %v", n, err)
					}
				})
				one.Wait()
			})
			mustDeclare(t, c, "goes", amqp091.Field{Key: "x-queue-type", Value: kind})
			for i := range 1000 {
				offer(t, c, "goes", fmt.Sprint(i))
			}
			armed.Store(true)
			if err := c.b.node.Checkpoint(); err != nil || armed.Load() {
				t.Fatal(err, armed.Load())
			}
		})
	}
}

// A policy reaches queues whose pages are on disk, and the deaths that it causes are routed.
func TestNoLockWhileAPolicyReachesPagesOnDisk(t *testing.T) {
	var spills atomic.Int32
	c := startWith(t, newDisk(), Options{Storage: Storage{IndexBudget: 1, CacheBudget: 1 << 12, HotPages: 1}, Failpoint: func(at string) {
		if at == partition.FailSpill {
			spills.Add(1)
		}
	}})
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "long", toDLQ...)
	messages := 0
	send := func() {
		offer(t, c, "long", fmt.Sprint(messages))
		messages++
	}
	for range 4000 {
		send()
	}
	eventually(t, "that pages are on disk", func() bool {
		send() // who looked for pages a moment ago, and found none, looks again only with what comes
		return spills.Load() > 0
	})
	for _, limit := range []int64{int64(messages / 2), 10} {
		d := topology.PolicyDecl{Name: "short", Pattern: "^long$", Definition: topology.Definition{"max-length": limit}, Priority: int64(0)}
		if _, err := c.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: d}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "that what was too much is dead", func() bool { return ready(t, c, "dlq") == messages-10 })
}
