//go:build !race

package queue

import "testing"

// In the steady state a message comes in, goes to a consumer and is acknowledged without an allocation. The race
// detector makes some of its own.
func TestEnqueueDeliverAckDoesNotAllocate(t *testing.T) {
	for name, config := range map[string]Config{"classic": {MaxPriority: -1}, "quorum": {Type: Quorum}} {
		sink := &nobody{}
		m := New(config, Unlimited(), &Pages{}, sink, 1)
		c := &Consumer{Prefetch: 100}
		m.Attach(1, c)
		e := Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: 60_000}
		now := int64(1_700_000_000_000)
		turn := func() {
			now++
			id, _ := m.Enqueue(now, &e)
			m.Flow(now, id)
			if !m.Ack(sink.last, c) {
				t.Fatal("was not delivered")
			}
		}
		for range 10_000 {
			turn()
		}
		if n := testing.AllocsPerRun(1000, turn); n != 0 {
			t.Errorf("%s: %v allocations for a message", name, n)
		}
	}
}
