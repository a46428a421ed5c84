//go:build !race && !invariants

package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// In the steady state a message is published, delivered and acknowledged without an allocation. The race detector
// makes some of its own, and so do locks that know their holders.
func TestPublishDeliverAckDoesNotAllocate(t *testing.T) {
	for name, persistent := range map[string]bool{"transient": false, "persistent": true} {
		w := benchWorld(t)
		q, s := w.queues["in"], &taker{n: w.n}
		c := &queue.Consumer{Target: s, Prefetch: 100}
		if _, err := w.n.Attach(q, c, func() {}); err != nil {
			t.Fatal(err)
		}
		publish := []Op{{Kind: Publish, Targets: []*Queue{q}, TTL: -1, Priority: -1}}
		ack := []Op{{Kind: Ack, Queue: q, Consumer: c}}
		turn := func() {
			publish[0].Body = w.record(1, persistent, 100)
			w.n.Run(publish)
			ack[0].ID = s.last
			w.n.Run(ack)
		}
		for range 10_000 {
			turn()
		}
		if err := w.j.Flush(); err != nil { // the journal's files are small here, and new ones are made
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1000, turn); n != 0 {
			t.Errorf("%s: %v allocations for a message", name, n)
		}
		if err := w.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
