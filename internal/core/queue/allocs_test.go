//go:build !race

package queue

import "testing"

// In the steady state a message comes in, goes to a consumer and is acknowledged without an allocation. The race
// detector makes some of its own.
func TestEnqueueDeliverAckDoesNotAllocate(t *testing.T) {
	breaks := Unlimited()
	breaks.Breaker = Breaker{Deaths: 50, Percent: 30, Window: 60_000}
	for name, queue := range map[string]struct {
		Config
		Settings
	}{"classic": {Config{MaxPriority: -1}, Unlimited()}, "quorum": {Config{Type: Quorum}, Unlimited()}, "with a breaker": {Config{MaxPriority: -1}, breaks}} {
		sink := &nobody{}
		m := New(queue.Config, queue.Settings, &Pages{}, sink, 1)
		c := &Consumer{Prefetch: 100}
		m.Attach(1, c)
		e := Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: 60_000}
		now := int64(1_700_000_000_000)
		turn := func() {
			now++
			id, _ := m.Enqueue(now, &e)
			m.Flow(now, id)
			if !m.Ack(now, sink.last, c) {
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
