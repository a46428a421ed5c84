package queue

import (
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

// DL-2.1: an entry that comes back during a purge in slices, to a place that the purge has passed, is delivered.
func TestWhatComesBackDuringAPurgeIsDelivered(t *testing.T) {
	m := New(Config{Type: Quorum, Durable: true, MaxPriority: -1}, Unlimited(), &Pages{Hot: 16}, &nobody{}, 1)
	for range 3000 {
		id, _ := m.Enqueue(1, &Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: -1})
		m.Flow(1, id)
	}
	d, ok := m.Get(1, false)
	var purging index.Purging
	if _, more := m.PurgeSome(&purging, 300, nil); !ok || !more {
		t.Fatal("nothing to get, or no slices")
	}
	m.Return(1, d.ID, nil, ReturnNack)
	m.Flow(1, 0)
	for more := true; more; {
		_, more = m.PurgeSome(&purging, 300, nil)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if again, ok := m.Get(1, false); !ok || again.ID != d.ID {
		t.Errorf("%d messages are ready, and %v comes", m.Totals().Ready, again.ID)
	}
}
