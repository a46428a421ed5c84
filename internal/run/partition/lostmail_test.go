package partition

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
)

// loseFrames replaces frames of the local partitions by what a repair writes over damage. For each frame it calls
// lost with the operations and their messages.
func loseFrames(t *testing.T, fs *vfs.MemFS, lost func(kinds map[string]bool) bool) {
	t.Helper()
	options := journal.Options{FS: fs, Dir: "journal", KeepDir: "keep", SegmentBytes: 16 << 10}
	var payloads [][]byte
	j, err := journal.Open(options)
	if err == nil {
		err = j.Recover(0, func(_ journal.Pos, payload []byte) error {
			payloads = append(payloads, bytes.Clone(payload))
			return nil
		})
	}
	if err == nil {
		err = j.Close()
	}
	if err == nil {
		err = fs.RemoveAll("journal")
	}
	if err == nil {
		j, err = journal.Open(options)
	}
	if err == nil {
		err = j.Recover(0, func(journal.Pos, []byte) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	some := false
	for _, payload := range payloads {
		kinds := map[string]bool{}
		if IsFrame(payload) {
			if err := ReadOperations(payload, func(o *Operation) { kinds[o.Kind] = true }); err != nil {
				t.Fatal(err)
			}
		}
		if len(kinds) > 0 && lost(kinds) {
			payload, some = LostFrame(), true
		}
		j.Append(payload)
	}
	if err := j.Close(); err != nil || !some {
		t.Fatalf("no frame was lost: %v", err)
	}
}

// A repair has skipped a frame: what it said about mail is lost, and nothing else. The node starts, the numbers that
// both logs know are reconciled, and later entries arrive.
func TestMailAfterLostFrames(t *testing.T) {
	for _, c := range []struct {
		name           string
		source, target queue.Config
		blocked        bool // nothing was sent before the damage
		lost           func() func(map[string]bool) bool
		arrive         []message.Serial // at least these
	}{
		{"a gap in an outbox", classic, quorum, true, func() func(map[string]bool) bool {
			sent := 0
			return func(kinds map[string]bool) bool {
				if kinds["mailOut"] {
					sent++
				}
				return kinds["mailOut"] && sent == 2
			}
		}, []message.Serial{1, 2, 3, 4}},
		{"a gap in front of an outbox", classic, quorum, true, func() func(map[string]bool) bool {
			sent := 0
			return func(kinds map[string]bool) bool {
				if kinds["mailOut"] {
					sent++
				}
				return kinds["mailOut"] && sent == 1
			}
		}, []message.Serial{1, 2, 3, 4}},
		{"an entry whose message was lost", classic, quorum, true, func() func(map[string]bool) bool {
			published := 0
			return func(kinds map[string]bool) bool {
				if kinds["publish"] {
					published++
				}
				return kinds["publish"] && published == 2
			}
		}, []message.Serial{1, 3, 4}},
		{"the end of an outbox", classic, quorum, false, func() func(map[string]bool) bool {
			published := 0
			return func(kinds map[string]bool) bool {
				if kinds["publish"] {
					published++
				}
				return published == 3
			}
		}, []message.Serial{1, 2, 3, 4}},
		{"what was taken", quorum, classic, false, func() func(map[string]bool) bool {
			taken := 0
			return func(kinds map[string]bool) bool {
				if kinds["mailIn"] {
					taken++
				}
				return kinds["mailIn"] && taken == 3
			}
		}, []message.Serial{1, 2, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defs := []definition{mailQueue("source", c.source, "x", false), mailQueue("target", c.target, "", false)}
			routes := table{"x": {"target"}}
			fs := vfs.NewCrashableMem()
			goOn := make(chan struct{})
			w := startQueues(t, fs, 1, func(step string) {
				if step == FailMailSent && c.blocked {
					<-goOn
				}
			}, defs, routes)
			publish := func(w *mailWorld, s message.Serial) {
				q := w.queues["source"]
				_ = w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: 1, Priority: -1}}))
				w.await("its way", func() bool {
					counts := w.n.Counts(q)
					return counts.Ready+counts.Dying == 0 && (c.blocked && counts.Transit == int(s) || counts.Messages() == 0)
				})
			}
			for s := range message.Serial(3) {
				publish(w, s+1)
			}
			if err := w.j.Sync(); err != nil {
				t.Fatal(err)
			}
			clone := fs.CrashClone(vfs.CrashCloneCfg{})
			close(goOn)
			w.stop()

			loseFrames(t, clone, c.lost())
			c.blocked = false
			for life := range uint64(2) {
				w = startQueues(t, clone, 2+life, nil, defs, routes)
				if life == 0 {
					publish(w, 4)
				}
				w.await("all have arrived", func() bool {
					found := map[message.Serial]bool{}
					_, _, err := w.n.Browse(w.queues["target"], queue.Cursor{}, 100, func(_ queue.View, r message.Record, _ []byte) bool {
						found[r.Serial()] = true
						return true
					})
					for _, s := range c.arrive {
						if !found[s] {
							return false
						}
					}
					return err == nil
				})
				w.await("nothing is in an outbox", func() bool {
					left := 0
					for _, o := range w.n.Outboxes() {
						left += o.Waiting + o.Stranded
					}
					return left == 0
				})
				if err := w.n.Checkpoint(); err != nil {
					t.Error(err)
				}
				w.stop()
			}
		})
	}
}

// A checkpoint has the entries that replace lost ones, too: after the next crash nothing depends on the frames before
// it.
func TestWhatTakesThePlaceOfLostMailIsInACheckpoint(t *testing.T) {
	defs := []definition{mailQueue("source", classic, "x", false), mailQueue("target", quorum, "", false)}
	routes := table{"x": {"target"}}
	for _, checkpoint := range []bool{false, true} {
		fs := vfs.NewCrashableMem()
		var goOn chan struct{}
		life := func(n uint64) *mailWorld {
			goOn = make(chan struct{})
			stop := goOn
			return startQueues(t, fs, n, func(step string) {
				if step == FailMailSent {
					<-stop
				}
			}, defs, routes)
		}
		publish := func(w *mailWorld, s message.Serial, transit int) {
			q := w.queues["source"]
			_ = w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: 1, Priority: -1}}))
			w.await("its way", func() bool { c := w.n.Counts(q); return c.Ready+c.Dying == 0 && c.Transit == transit })
		}
		crash := func(w *mailWorld) {
			if err := w.j.Sync(); err != nil {
				t.Fatal(err)
			}
			fs = fs.CrashClone(vfs.CrashCloneCfg{})
			close(goOn)
			w.stop()
		}
		w := life(1)
		for s := range message.Serial(3) {
			publish(w, s+1, int(s)+1)
		}
		crash(w)
		sent := 0
		loseFrames(t, fs, func(kinds map[string]bool) bool {
			if kinds["mailOut"] {
				sent++
			}
			return kinds["mailOut"] && sent == 2
		})
		w = life(2)
		publish(w, 4, 4)
		if checkpoint {
			if err := w.n.Checkpoint(); err != nil {
				t.Error(err)
			}
		}
		publish(w, 5, 5)
		crash(w)
		w = life(3)
		close(goOn)
		w.await("all have arrived", func() bool { return w.n.Counts(w.queues["target"]).Ready == 5 })
		w.stop()
		w = life(4)
		close(goOn)
		w.await("they are there", func() bool { return w.n.Counts(w.queues["target"]).Ready == 5 })
		w.stop()
	}
}
