package partition

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
)

// DL-13.4: held deaths are retried in slices, however many there are: no other queue waits until all are found. Each
// is found once, in memory or on disk.
func TestHeldDeathsAreFoundInSlices(t *testing.T) {
	const messages = 10 * sliceLimit
	source := settings(func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce, s.Overflow = true, true, queue.RejectPublish })
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	config := queue.Config{Durable: true, MaxPriority: 3}
	defs := []definition{{"source", config, source, DeadLetter{Exchange: "x"}}, {"target", classic, full, DeadLetter{}}}
	routes := table{"x": {"target"}}
	fs := vfs.NewMem()
	w := open(t, fs, defs, routes, 1000, nil)
	for s := message.Serial(1); s <= messages; s++ {
		ttl := int64(100)
		if s%3 == 0 {
			ttl = -1
		}
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: w.record(s, true, 10), TTL: ttl, Priority: int(s % 4)}})
	}
	w.now += 200
	w.settle()
	for _, cold := range []bool{false, true} {
		if cold {
			if err := w.n.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			w.close()
			w = open(t, fs, defs, routes, w.now, nil)
		}
		q := w.queues["source"]
		var all, found []queue.ID
		q.m.RangeHeld(func(d queue.Death) bool {
			all = append(all, d.ID)
			return true
		})
		var held []queue.Death
		var cursor index.SaveCursor
		for done := false; !done; {
			held, cursor, done = q.m.HeldFrom(cursor, 1, held[:0])
			for i := range held {
				found = append(found, held[i].ID)
			}
			if len(held) > sliceLimit {
				t.Errorf("%d at once", len(held))
			}
		}
		if len(all) != messages-messages/3 || !slices.Equal(all, found) {
			t.Errorf("cold %t: %d of %d held deaths were found, or in another order", cold, len(found), len(all))
		}
		q.part.longest = 0
		w.n.RetryAllHeld()
		w.settle()
		if q.part.longest > 3*sliceLimit {
			t.Errorf("a partition was held for %d entries at once, a slice is %d", q.part.longest, sliceLimit)
		}
		if n := w.n.Counts(q).Held; n != len(all) {
			t.Errorf("%d are held afterwards, want %d", n, len(all))
		}
	}
}

// DL-13.10, strict: held deaths are deleted in slices when at-least-once is switched off, and none of them goes to
// its target.
func TestHeldDeathsAreForgottenInSlices(t *testing.T) {
	const messages = 10 * sliceLimit
	held := func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce, s.Overflow = true, true, queue.RejectPublish }
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	dead := DeadLetter{Exchange: "x"}
	config := queue.Config{Durable: true, Strict: true, MaxPriority: -1}
	defs := []definition{{"source", config, settings(held), dead}, {"target", classic, full, DeadLetter{}}}
	w := open(t, vfs.NewMem(), defs, table{"x": {"target"}}, 1000, nil)
	q := w.queues["source"]
	for s := message.Serial(1); s <= messages; s++ {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s, true, 10), TTL: 100, Priority: -1}})
	}
	w.now += 200
	w.settle()
	if n := w.n.Counts(q); n.Held != messages {
		t.Fatalf("%+v", n)
	}
	q.part.longest = 0
	w.n.Configure(w.queues["target"], queue.Unlimited(), DeadLetter{})
	w.n.Configure(q, settings(func(s *queue.Settings) { held(s); s.AtLeastOnce = false }), dead)
	if q.part.longest > 2*sliceLimit || q.part.longest == 0 {
		t.Errorf("%d were deleted at once", q.part.longest)
	}
	w.n.RetryAllHeld()
	w.settle()
	c := w.n.Counts(q)
	if c.Messages() != 0 || c.Stats.Dead[deadletter.Expired][deadletter.Deleted] != messages {
		t.Errorf("%+v", c)
	}
	if c := w.n.Counts(w.queues["target"]); c.Messages() != 0 {
		t.Errorf("the target has %+v", c)
	}
	if n, m := w.n.Deaths(queue.Classic, AtLeastOnce, deadletter.Expired), w.n.Deaths(queue.Classic, AtMostOnce, deadletter.Expired); n != messages || m != 0 {
		t.Errorf("%d and %d deaths are counted", n, m)
	}
	w.check(0)
}
