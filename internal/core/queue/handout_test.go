package queue

import (
	"slices"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// handed is an away that notes which body was delivered for which entry.
type handed struct {
	*away
	got map[ID]message.Ref
}

func (h *handed) Deliver(_ *Consumer, d *Delivery) bool {
	h.got[d.ID] = d.Body
	return true
}

// newHanded returns an empty queue and a consumer of it. Consumers may take half an hour for a delivery, and failed
// messages wait for a minute.
func newHanded(quorum bool) (*handed, *Consumer) {
	settings := Unlimited()
	settings.ConsumerTimeout = 30 * 60_000
	settings.Retry = Retry{Type: RetryAll, Min: 60_000, Max: 60_000}
	config, log := Config{MaxPriority: -1, Durable: true}, index.Outcomes
	if quorum {
		config.Type, log = Quorum, index.Commands
	} else {
		settings.Rules.Profile = deadletter.ApsaraMQ
	}
	h := &handed{&away{pages: &Pages{Hot: 1, Log: log}, cold: &attic{pages: map[index.PageID][]byte{}}, now: 1_700_000_000_000}, map[ID]message.Ref{}}
	h.Machine = New(config, settings, h.pages, h, h.now)
	h.SetCold(h.cold)
	h.pages.Begin(1)
	return h, &Consumer{Tag: "c"}
}

// deliverAll enqueues n messages. The first is offered to other queues, the others are delivered.
func (h *handed) deliverAll(n int, c *Consumer) (offered ID) {
	level := h.level(-1)
	h.fill(1, func() int64 { return -1 })
	offered = index.MakeID(level, 1)
	h.Offer(offered)
	for i := 1; i < n; i++ {
		h.Enqueue(h.now, &Entry{Content: Content{Body: message.Ref(1000 + 100*i), Size: 10, Logged: true}, Priority: -1, TTL: -1})
	}
	h.Attach(h.now, c)
	for more := true; more; {
		more = h.Pump(h.now, sliceLimit)
	}
	return offered
}

// A delivery has the body of its entry, even if the consumer's watch is searched before it and meets entries of the
// same page.
func TestDeliveryHasItsOwnBody(t *testing.T) {
	for name, quorum := range map[string]bool{"classic": false, "quorum": true} {
		t.Run(name, func(t *testing.T) {
			const n = 6 * index.PageSize
			h, c := newHanded(quorum)
			offered := h.deliverAll(n, c)
			level := offered.Lane()
			// One from the middle of a page comes back now, all others half a minute later.
			early := index.MakeID(level, 3*index.PageSize+77)
			h.Return(h.now, early, c, ReturnNack)
			h.now += 30_000
			for seq := uint64(2); seq <= n; seq++ {
				if id := index.MakeID(level, seq); id != early && !h.Return(h.now, id, c, ReturnNack) {
					t.Fatalf("entry %d was not out", seq)
				}
			}
			h.Pause(c)
			h.Withdraw(offered) // the head of the queue is there again: its middle may be put away
			h.now += 20_000
			h.Tick(h.now, sliceLimit)
			h.putAllAway()
			if d, ok := h.Get(h.now, true); !ok || d.ID != offered {
				t.Fatalf("got %v, %v", d.ID, ok)
			}
			for h.Totals().Ready == 0 {
				h.now += 1000
				h.Tick(h.now, sliceLimit) // reads the one of its page that is due
			}
			if !slices.ContainsFunc(h.Survey(level), func(p index.PageView) bool { return p.Number == 3 && p.Split }) {
				t.Fatal("the page is not split")
			}
			clear(h.got)
			h.Resume(c)
			h.Pump(h.now, sliceLimit)
			if want := message.Ref(1000 + 100*(early.Seq()-1)); len(h.got) != 1 || message.Ref(h.cold.Locate(h.got[early])) != want {
				t.Errorf("delivered %v, want %d as %d", h.got, early, want)
			}
			if err := h.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The search for settled deliveries of a consumer reads no page that was put away.
func TestWatchReadsNothing(t *testing.T) {
	for name, quorum := range map[string]bool{"classic": false, "quorum": true} {
		t.Run(name, func(t *testing.T) {
			const n = 40 * index.PageSize
			h, c := newHanded(quorum)
			offered := h.deliverAll(n, c)
			for seq := uint64(2); seq <= n; seq++ {
				h.Return(h.now, index.MakeID(offered.Lane(), seq), c, ReturnNack)
			}
			h.Pause(c)
			h.Withdraw(offered)
			h.putAllAway()
			h.cold.reads = 0
			h.Resume(c)
			h.Flow(h.now, 0)
			if c.Out() != 1 || h.cold.reads > 0 {
				t.Errorf("%d deliveries read %d pages", c.Out(), h.cold.reads)
			}
			if err := h.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
