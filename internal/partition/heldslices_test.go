package partition

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// DL-13.4: held deaths are tried again in slices, however many there are: nobody else's queue waits for
// all of them to be found. Each is found once, whether in memory or on disk.
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
		var cursor queue.SaveCursor
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
