package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A message that a transaction has rejected is dead after a kill, too, even if it was not moved yet. It has as many
// failed deliveries as its consumer saw.
func TestWhatATransactionRejectsIsDeadAfterAKill(t *testing.T) {
	defs := []definition{
		{"q", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "dead"}},
		{"other", classic, queue.Unlimited(), DeadLetter{}},
		{"dead", classic, queue.Unlimited(), DeadLetter{}},
	}
	routes := table{"dead": {"dead"}}
	for _, checkpointed := range []bool{false, true} {
		fs := vfs.NewCrashableMem()
		var left *vfs.MemFS
		var w *world
		w = open(t, fs, defs, routes, 1_700_000_000_000, imageAtDeath(t, fs, &w, &left, checkpointed, func() bool { return true }))
		q := w.queues["q"]
		publish := func(to string, serial message.Serial) Op {
			return Op{Kind: Publish, Targets: []*Queue{w.queues[to]}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}
		}
		w.n.Run([]Op{publish("q", 1)})
		d, _, ok, err := w.n.Get(q, false)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := w.n.RunWhole([]Op{publish("other", 2), {Kind: Reject, Queue: q, ID: d.ID, Failed: true}}); err != nil {
			t.Fatal(err)
		}
		w.n.bodies.Release(d.Body)
		w.close()
		if left == nil {
			t.Fatal("nothing died")
		}

		w = open(t, left, defs, routes, 1_700_000_000_000, nil)
		if n := w.queues["q"].m.Totals(); n.Ready != 0 || n.Held != 1 {
			t.Errorf("checkpointed %t: the queue has %+v", checkpointed, n)
		}
		w.n.RetryAllHeld() // as the node does at its start
		w.settle()
		found := w.find()
		for serial, name := range map[message.Serial]string{1: "dead", 2: "other"} {
			at := found[serial]
			if len(at) != 1 || at[0].queue != name || at[0].view.Dead {
				t.Errorf("checkpointed %t: message %d is at %v, want it in %s", checkpointed, serial, at, name)
			} else if serial == 1 && at[0].view.Counts.Deliveries != 1 {
				t.Errorf("checkpointed %t: it has failed %d times, want once", checkpointed, at[0].view.Counts.Deliveries)
			}
		}
		w.check(0)
		w.close()
	}
}
