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
		if err := w.n.Await(w.n.Run(ops)); err != nil {
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

// A dead letter that was on disk only goes on being so where nobody waits for it, and is in
// memory where somebody does; one in a scratch file comes into memory, for a target may log it.
func TestDeadLettersStayOnDisk(t *testing.T) {
	const messages = 300 // more than a page: the last one is never put away
	dies := settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 })
	for _, c := range []struct {
		from   string
		config queue.Config
		target string
		onDisk bool
	}{
		{"logged", classic, "idle", true},
		{"logged", classic, "busy", false},
		{"loose", transient, "idle", false},
	} {
		t.Run(c.from+" to "+c.target, func(t *testing.T) {
			defs := []definition{
				{c.from, c.config, dies, DeadLetter{Exchange: "dead"}},
				{"idle", classic, queue.Unlimited(), DeadLetter{}},
				{"busy", classic, queue.Unlimited(), DeadLetter{}},
			}
			w := open(t, vfs.NewCrashableMem(), defs, table{"dead": {c.target}}, 1_700_000_000_000, nil)
			if _, err := w.n.Attach(w.queues["busy"], &queue.Consumer{Target: &taker{n: w.n}, Prefetch: 1}, func() {}); err != nil {
				t.Fatal(err)
			}
			for i := range messages {
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues[c.from]}, Body: w.record(message.Serial(i+1), true, 10), TTL: -1, Priority: -1}})
			}
			if err := w.j.Flush(); err != nil {
				t.Fatal(err)
			}
			w.putAway(false)
			w.now += 1000
			w.settle()
			places := w.find()[1] // the first, which was put away
			if len(places) != 1 || places[0].queue != c.target || places[0].view.Body.OnDisk() != c.onDisk {
				t.Errorf("the message is in %v, want it in %s, on disk only: %v", places, c.target, c.onDisk)
			}
			if err := w.queues[c.target].m.Check(); err != nil {
				t.Error(err)
			}
			w.close()
		})
	}
}

// What a start drops, since it was not logged, gives its place on disk up: else that file
// would be kept for nothing.
func TestWhatIsDroppedAtTheStartGivesUpItsPlace(t *testing.T) {
	const messages = 300
	defs := []definition{{"loose", classic, queue.Unlimited(), DeadLetter{}}, {"logged", quorum, queue.Unlimited(), DeadLetter{}}}
	fs := vfs.NewCrashableMem()
	w := open(t, fs, defs, nil, 1_700_000_000_000, nil)
	for i := range messages {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["loose"], w.queues["logged"]}, Body: w.record(message.Serial(i+1), false, 10), TTL: -1, Priority: -1}})
	}
	w.putAway(false)
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.close()
	w = open(t, fs, defs, nil, w.now, nil)
	if n := len(w.find()); n != messages {
		t.Fatalf("%d messages are there", n)
	}
	if n, err := w.n.Purge(w.queues["logged"]); n != messages || err != nil {
		t.Fatal(n, err)
	}
	w.settle()
	if n := w.n.Counts(w.queues["loose"]).Ready; n != 0 {
		t.Fatalf("%d messages that were not logged are there", n)
	}
	w.bodies.RangeSegments(func(space message.Space, segment uint32, live, _ int64) bool {
		if live != 0 {
			t.Errorf("%d messages are said to be in %s %d, of none", live, space, segment)
		}
		return true
	})
	w.close()
}
