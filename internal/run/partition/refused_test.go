package partition

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// DL-10.9: a message that a queue has refused is dead after a kill, too, whatever was done with it before. Its
// publisher knows that it was refused, and the queue would exceed its limit.
func TestARefusedMessageIsDeadAfterAKill(t *testing.T) {
	full := settings(func(s *queue.Settings) {
		s.MaxLength, s.Overflow, s.DeadLetter = 1, queue.RejectPublishDLX, true
	})
	defs := []definition{
		{"first", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "full"}},
		{"full", classic, full, DeadLetter{Exchange: "dead"}},
		{"dead", classic, queue.Unlimited(), DeadLetter{}},
	}
	routes := table{"full": {"full"}, "dead": {"dead"}}
	for _, way := range []string{"published", "published with a delay", "died elsewhere"} {
		for _, checkpointed := range []bool{false, true} {
			fs := vfs.NewCrashableMem()
			var left *vfs.MemFS
			var w *world
			w = open(t, fs, defs, routes, 1_700_000_000_000, imageAtDeath(t, fs, &w, &left, checkpointed, func() bool { return w.queues["full"].m.Totals().Dying > 0 }))
			op := Op{Kind: Publish, Targets: []*Queue{w.queues["full"]}, Body: w.record(1, true, 10), TTL: -1, Priority: -1}
			w.n.Run([]Op{op})
			op.Body = w.record(2, true, 10)
			switch way {
			case "published with a delay":
				op.Delay = 1000
			case "died elsewhere":
				op.Targets = []*Queue{w.queues["first"]}
			}
			ops := []Op{op}
			w.n.Run(ops)
			if way == "died elsewhere" {
				d, _, ok, err := w.n.Get(w.queues["first"], false)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				w.n.Run([]Op{{Kind: Reject, Queue: w.queues["first"], ID: d.ID}})
				w.n.bodies.Release(d.Body)
			} else if !ops[0].Refused {
				t.Errorf("%s: the queue is full and took it", way)
			}
			w.close()
			if left == nil {
				t.Fatalf("%s: nothing was refused", way)
			}

			w = open(t, left, defs, routes, 1_700_000_000_000, nil)
			if n := w.queues["full"].m.Totals(); n.Ready != 1 || n.Delayed != 0 {
				t.Errorf("%s, checkpointed %t: the queue has %+v", way, checkpointed, n)
			}
			w.n.RetryAllHeld() // as the node does at its start
			w.settle()
			found := w.find()
			for serial, name := range map[message.Serial]string{1: "full", 2: "dead"} {
				at := found[serial]
				if len(at) != 1 || at[0].queue != name || at[0].view.Dead {
					t.Errorf("%s, checkpointed %t: message %d is at %v, want it in %s", way, checkpointed, serial, at, name)
				} else if serial == 2 && at[0].history.Deaths[0].Reason != deadletter.MaxLen {
					t.Errorf("%s: it died of %v", way, at[0].history.Deaths[0].Reason)
				}
			}
			w.check(0)
			w.close()
		}
	}
}

// imageAtDeath is a hook for open that takes an image of the disk when an entry has died and was not moved yet. dies
// says that it is the right entry: synced, and after a checkpoint if that is asked for.
func imageAtDeath(t *testing.T, fs *vfs.MemFS, w **world, left **vfs.MemFS, checkpointed bool, dies func() bool) func(point string) {
	return func(point string) {
		if *w == nil || point != FailDeathMarked || *left != nil || !dies() {
			return
		}
		if checkpointed {
			if err := (*w).n.Checkpoint(); err != nil {
				t.Error(err)
			}
		}
		if err := (*w).j.Commit((*w).j.Append([]byte{frameVersion})); err != nil {
			t.Error(err)
		}
		*left = fs.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 1))})
	}
}
