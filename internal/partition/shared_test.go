package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// A body that several queues share keeps its place on disk, which copies of pages name,
// when it is written once more because it dies in a queue that was not logged.
func TestSharedBodiesKeepTheirPlace(t *testing.T) {
	t.Run("the other queue does not change", func(t *testing.T) { sharedBody(t, false) })
	t.Run("the other queue gets smaller", func(t *testing.T) { sharedBody(t, true) })
}

func sharedBody(t *testing.T, lessen bool) {
	const messages = 5
	defs := []definition{
		{"durable", classic, queue.Unlimited(), DeadLetter{}},
		{"transient", transient, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "dead"}},
		{"dead", classic, queue.Unlimited(), DeadLetter{}},
		{"other", classic, queue.Unlimited(), DeadLetter{}},
	}
	routes := table{"dead": {"dead"}}
	w := open(t, vfs.NewCrashableMem(), defs, routes, 1_700_000_000_000, nil)
	serial := message.Serial(0)
	publish := func(n, size int, targets ...string) {
		t.Helper()
		ops := make([]Op, n)
		for i := range ops {
			serial++
			ops[i] = Op{Kind: Publish, Body: w.record(serial, true, size), TTL: -1, Priority: -1}
			for _, name := range targets {
				ops[i].Targets = append(ops[i].Targets, w.queues[name])
			}
		}
		w.n.Run(ops)
		if err := w.j.Commit(ops[n-1].Pos); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint := func() {
		t.Helper()
		if err := w.n.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		for range 8 { // further segments of the journal
			publish(8, 1000, "other")
			if _, err := w.n.Purge(w.queues["other"]); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
	}
	publish(messages, 10, "durable", "transient")
	checkpoint()
	w.now += 1000
	w.settle() // all die in the one queue
	left := messages
	if lessen {
		d, _, ok, err := w.n.Get(w.queues["durable"], true)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.n.bodies.Release(d.Body)
		left--
	}
	w.check(0)
	for range 3 {
		checkpoint()
	}
	fs := w.fs
	w.close()
	w = newWorld(t, fs, defs, routes, w.now, nil)
	if err := w.n.Recover(); err != nil {
		t.Fatal("recovery: ", err)
	}
	w.settle()
	for name, want := range map[string]int{"durable": left, "dead": messages} {
		n := 0
		_, _, err := w.n.Browse(w.queues[name], queue.Cursor{}, messages, func(_ queue.View, r message.Record, _ []byte) bool {
			n++
			return true
		})
		if err != nil || n != want {
			t.Errorf("%d messages of %q can be read, want %d: %v", n, name, want, err)
		}
	}
	w.check(0)
	w.close()
}
