package partition

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/queue"
)

// A message to more queues than a hold should handle is published in several holds. All queues have it, once, also
// after a restart.
func TestAPublishToVeryManyQueuesIsSeveralHolds(t *testing.T) {
	const targets = 2*sliceSteps + 1
	var defs []definition
	for i := range targets {
		defs = append(defs, definition{fmt.Sprint("t", i), classic, queue.Unlimited(), DeadLetter{}})
	}
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	for _, refusing := range []int{-1, 0, targets - 1} {
		t.Run(fmt.Sprint("full: ", refusing), func(t *testing.T) {
			defs := append([]definition(nil), defs...)
			if refusing >= 0 {
				defs[refusing].settings = full
			}
			fs := vfs.NewMem()
			w := startQueues(t, fs, 2, nil, defs, nil)
			all := make([]*Queue, targets)
			for i := range defs {
				all[i] = w.queues[defs[i].name]
			}
			for _, p := range w.n.parts {
				p.mu.Lock()
				p.longest = 0
				p.mu.Unlock()
			}
			ops := []Op{{Kind: Publish, Targets: all, Body: w.record(1), TTL: -1, Priority: -1}}
			if err := w.n.Await(w.n.Run(ops)); err != nil || ops[0].Refused != (refusing >= 0) {
				t.Errorf("refused: %v, %v", ops[0].Refused, err)
			}
			for _, p := range w.n.parts {
				p.mu.Lock()
				if p.longest > sliceSteps || p.longest == 0 {
					t.Errorf("others waited for %d entries, want %d at most", p.longest, sliceSteps)
				}
				p.mu.Unlock()
			}
			w.stop()
			w = startQueues(t, fs, 2, nil, defs, nil)
			for i := range defs {
				want := 1
				if i == refusing {
					want = 0
				}
				if n := w.n.Counts(w.queues[defs[i].name]).Ready; n != want {
					t.Fatalf("%s has %d messages, want %d", defs[i].name, n, want)
				}
			}
			w.stop()
		})
	}
}
