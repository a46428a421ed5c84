package broker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/partition"
)

// These let the node wait for its disks where it has something locked that it should not have, or may: a program built
// with the tag invariants ends if it does. See package held.

// Queues are deleted while a checkpoint is written that has them.
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
			declare(t, c, "goes", amqp091.Field{Key: "x-queue-type", Value: kind})
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
