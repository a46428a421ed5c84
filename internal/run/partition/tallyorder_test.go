package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/queue"
)

// In one hold entries of a job expire, others come, and those expire too: recovery counts the same.
func TestTallyOfAHoldInOrder(t *testing.T) {
	there := mailQueue("there", classic, "", false)
	there.settings.TTL = 0
	defs := []definition{{"here", classic, queue.Unlimited(), DeadLetter{}}, there}
	w := startQueues(t, vfs.NewMem(), 1, nil, defs, table{})
	defer w.stop()
	q := w.queues["there"]
	h := w.n.lock(q.part)
	q.countSent(7, JobCame, 1, true)
	w.n.unlock(h)
	h = w.n.lock(q.part)
	for range 3 { // as entries with a TTL of 0 after one that was there
		q.countSent(7, JobExpired, 1, true)
		q.countSent(7, JobCame, 1, true)
	}
	redone := uint64(1)
	for _, c := range h.tally {
		if c.outcome == JobCame {
			redone += c.n
		} else if c.n > redone {
			t.Errorf("%d are told to leave, and %d are there", c.n, redone)
		} else {
			redone -= c.n
		}
	}
	w.n.unlock(h)
}
