package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// After a start, records on disk are read into memory a few megabytes at a time, however many messages a slice may
// have. Large messages that exceed memory can still die, be retried, and be replayed.
func TestLargeMessagesOnDiskAreReadAFewAtATime(t *testing.T) {
	const messages, size, most = 64, warmBytes / 8, 2 * warmBytes
	atLeastOnce := func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce, s.Overflow = true, true, queue.RejectPublish }
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	for _, c := range []struct {
		name           string
		source, target queue.Settings
		do             func(w *world)
		arrive         int
	}{
		{"they die", settings(func(s *queue.Settings) { s.DeadLetter = true }), queue.Unlimited(), func(w *world) {
			w.now += 1000
			w.settle()
		}, messages},
		{"held ones are tried again", settings(atLeastOnce), full, func(w *world) {
			w.n.RetryAllHeld()
		}, 0},
		{"they are moved", queue.Unlimited(), queue.Unlimited(), func(w *world) {
			var moves []Move
			_, _, err := w.n.Glance(w.queues["source"], queue.Cursor{}, messages, func(v queue.View) bool {
				moves = append(moves, Move{ID: v.ID, Targets: []*Queue{w.queues["target"]}, History: []byte{1}})
				return true
			})
			if err != nil {
				w.t.Fatal(err)
			}
			moved, err := w.n.Move(w.t.Context(), w.queues["source"], moves)
			if err != nil {
				w.t.Fatal(err)
			}
			for i, m := range moved {
				if m.What != MoveDone {
					w.t.Errorf("move %d: %v", i, m)
				}
			}
		}, messages},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			defs := []definition{{"source", classic, c.source, DeadLetter{Exchange: "x"}}, {"target", classic, c.target, DeadLetter{}}}
			w := open(t, fs, defs, table{"x": {"target"}}, 1000, nil)
			for s := range message.Serial(messages) {
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: w.record(s, true, size), TTL: 100, Priority: -1}})
			}
			if c.arrive == 0 {
				w.now += 1000
				w.settle()
			}
			if err := w.n.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			w.close()

			w = open(t, fs, defs, table{"x": {"target"}}, w.now, nil)
			peak := int64(0)
			w.n.Now = func() int64 {
				peak = max(peak, w.n.bodies.Memory())
				return w.now
			}
			c.do(w)
			if peak > most {
				t.Errorf("%d bytes were in memory at once, want %d at most", peak, most)
			}
			if n := w.n.Counts(w.queues["target"]).Ready; n != c.arrive {
				t.Errorf("%d messages in the target, want %d", n, c.arrive)
			}
			left := w.n.Counts(w.queues["source"])
			if n := left.Messages(); n != messages-c.arrive {
				t.Errorf("%d messages in the source, want %d", n, messages-c.arrive)
			}
		})
	}
}
