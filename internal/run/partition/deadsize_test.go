package partition

import (
	"runtime"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/deathstore"
)

// idle is a queue's sink that gets no deliveries.
type idle struct{}

func (idle) Deliver(*queue.Consumer, *queue.Delivery) bool    { return true }
func (idle) Removed(queue.ID, message.Ref, message.Ref, bool) {}
func (idle) Died(deadletter.Reason, bool)                     {}
func (idle) Returned(queue.ID, queue.Counts, int64)           {}
func (idle) TookBack(*queue.Consumer, queue.ID)               {}
func (idle) Active(*queue.Consumer, bool, int)                {}
func (idle) TimedOut(*queue.Consumer, int)                    {}
func (idle) Broke(queue.BreakerChange, queue.Broken)          {}
func (idle) Ended(queue.ID, deadletter.Reason, bool)          {}

// All that is kept in memory about a dead letter beside its body takes at most 120
// bytes, with a history of its own: its entry, its delivery count, its TTL and what
// it died of.
func TestADeadLetterTakesLittle(t *testing.T) {
	const letters = 200_000
	memory := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	store := bodies.New()
	heap, slabs := memory(), store.Memory()
	settings := queue.Unlimited()
	settings.TTL = 86_400_000
	pages := &queue.Pages{Hot: index.HotPages}
	m := queue.New(queue.Config{Type: queue.Quorum}, settings, pages, idle{}, 1)
	for i := range int64(letters) {
		now := 1_700_000_000_000 + i*37
		var h deadletter.History
		for j := range 1 + i%3 {
			h.Record(&deadletter.Event{
				Queue: "orders.eu", Reason: deadletter.Rejected, Time: now - 1000*j, Expiration: -1,
				Exchange: "orders", Keys: []string{"orders.created"}, NextExchange: "dead", NextKeys: []string{"orders.created"},
				Cause: deadletter.Cause{ConsumerTag: "amq.ctag-0123456789abcdefghijkl", Connection: "10.0.0.1:50000 -> 10.0.0.2:5672", User: "guest"},
			})
		}
		e := queue.Entry{Priority: -1, TTL: -1, Content: queue.Content{
			Body: 1, Size: 100, Logged: true, History: deathstore.Keep(store, h.Append(nil)), Counts: queue.Counts{Deliveries: uint32(1 + i%3)},
		}}
		m.Enqueue(now, &e)
	}
	each := float64(memory()-heap+store.Memory()-slabs) / letters
	t.Logf("a dead letter takes %.1f bytes, %.1f of them in pages", each, float64(pages.Bytes())/letters)
	if each > 120 {
		t.Errorf("a dead letter takes %.1f bytes, want at most 120", each)
	}
	runtime.KeepAlive(m)
}
