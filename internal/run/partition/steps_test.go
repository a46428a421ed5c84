package partition

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// If messages go to very many queues, each slice is bounded by the entries that it makes: for publishes, deaths and
// moves, in local queues and in groups.
func TestASliceIsBoundedByWhatItMakes(t *testing.T) {
	const targets, messages = 200, 300
	const most = sliceSteps + 2*targets + sliceLimit // in a group a command may follow others of the same hold
	for _, kind := range []queue.Config{classic, quorum} {
		t.Run(kind.Type.String(), func(t *testing.T) {
			defs := []definition{dying("q", kind, "fan"), {"held", kind, settings(func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce = true, true }), DeadLetter{Exchange: "fan"}}, {"plain", kind, queue.Unlimited(), DeadLetter{}}}
			var names []string
			for i := range targets {
				names = append(names, fmt.Sprint("t", i))
				defs = append(defs, definition{names[i], kind, queue.Unlimited(), DeadLetter{}})
			}
			w := startQueues(t, vfs.NewMem(), 1, nil, defs, table{"fan": names})
			fan := make([]*Queue, targets)
			for i, name := range names {
				fan[i] = w.queues[name]
			}
			arrived := 0
			look := func(what string, cause func()) {
				t.Helper()
				for _, p := range w.n.all {
					p.mu.Lock()
					p.longest = 0
					p.mu.Unlock()
				}
				cause()
				arrived += messages
				w.await(what, func() bool {
					w.n.SettleAll()
					for _, q := range fan {
						if w.n.Counts(q).Ready < arrived {
							return false
						}
					}
					return true
				})
				longest := 0
				for _, p := range w.n.all {
					p.mu.Lock()
					longest = max(longest, p.longest)
					p.mu.Unlock()
				}
				if longest > most || longest < targets {
					t.Errorf("%s: others waited for %d entries, want %d at most", what, longest, most)
				}
			}
			serial := message.Serial(0)
			publish := func(ttl int64, to ...*Queue) {
				ops := make([]Op, messages)
				for i := range ops {
					serial++
					ops[i] = Op{Kind: Publish, Targets: to, Body: w.record(serial), TTL: ttl, Priority: -1}
				}
				if err := w.n.Await(w.n.Run(ops)); err != nil {
					t.Fatal(err)
				}
			}
			look("publishes", func() { publish(-1, fan...) })
			look("deaths", func() { publish(1, w.queues["q"]) })
			look("deaths at least once", func() { publish(1, w.queues["held"]) })
			look("moves", func() {
				publish(-1, w.queues["plain"])
				w.n.SettleAll()
				var moves []Move
				_, _, err := w.n.Browse(w.queues["plain"], queue.Cursor{}, messages, func(v queue.View, _ message.Record, _ []byte) bool {
					moves = append(moves, Move{ID: v.ID, Targets: fan, History: []byte{1}})
					return true
				})
				if err != nil || len(moves) != messages {
					t.Fatal(err, len(moves))
				}
				moved, err := w.n.Move(t.Context(), w.queues["plain"], moves)
				for i := range moved {
					if moved[i].What != MoveDone {
						t.Fatalf("move %d: %+v, %v", i, moved[i], err)
					}
				}
			})
			w.stop()
		})
	}
}
