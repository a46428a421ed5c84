package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// holding is a queue that holds its dead, which go nowhere.
func holding(t *testing.T, messages message.Serial) (*world, *Queue) {
	t.Helper()
	source := settings(func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce, s.Overflow = true, true, queue.RejectPublish })
	w := open(t, vfs.NewMem(), []definition{{"source", classic, source, DeadLetter{Exchange: "x"}}}, table{"x": nil}, 1000, nil)
	q := w.queues["source"]
	for s := message.Serial(1); s <= messages; s++ {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s, true, 10), TTL: 0, Priority: -1}})
	}
	w.settle()
	if c := w.n.Counts(q); c.Held != int(messages) {
		t.Fatalf("%d deaths are held, want %d", c.Held, messages)
	}
	return w, q
}

// ends are how many deaths of the queue were counted with this outcome, before it was deleted and since.
func (w *world) ends(before *Stats, o deadletter.Outcome) uint64 {
	late := w.n.Late(queue.Classic)
	return before.Dead[deadletter.Expired][o] + late.Dead[deadletter.Expired][o]
}

// A queue is deleted with the declarations locked. The deletion does not look at its held deaths, however many they
// are. They are counted when they are buried, in slices.
func TestHeldDeathsEndInSlices(t *testing.T) {
	const messages = 10 * sliceLimit
	w, q := holding(t, messages)
	q.part.longest = 0
	c, err := w.n.Delete(q, nil)
	if err != nil || c.Held != messages {
		t.Fatalf("deleted with %d held deaths, %v", c.Held, err)
	}
	if n := w.ends(&c.Stats, deadletter.Deleted); n != 0 {
		t.Errorf("%d deaths are counted by whoever deletes", n)
	}
	slices := 1
	for q.part.bury() {
		slices++
	}
	if slices < messages/sliceLimit {
		t.Errorf("%d deaths were given up in %d slices", messages, slices)
	}
	if n := w.ends(&c.Stats, deadletter.Deleted); n != messages {
		t.Errorf("%d deaths are counted as deleted, want %d", n, messages)
	}
	w.check(0)
}

// A held death that was sent to other logs is counted once, by the answers, whether they come before or after it is
// buried.
func TestAHeldDeathCountsOnceByItsAnswers(t *testing.T) {
	const yes, no = outbox.Taken, outbox.Gone
	for name, c := range map[string]struct {
		before, after []outbox.Answer // from three targets
		want          deadletter.Outcome
	}{
		"taken before":             {[]outbox.Answer{yes, yes, yes}, nil, deadletter.Routed},
		"taken and refused before": {[]outbox.Answer{no, yes, no}, nil, deadletter.Routed},
		"refused before":           {[]outbox.Answer{no, no, no}, nil, deadletter.Deleted},
		"taken before and after":   {[]outbox.Answer{yes}, []outbox.Answer{yes, yes}, deadletter.Routed},
		"taken, refused after":     {[]outbox.Answer{yes}, []outbox.Answer{no, no}, deadletter.Routed},
		"refused, taken after":     {[]outbox.Answer{no}, []outbox.Answer{no, yes}, deadletter.Routed},
		"refused, refused after":   {[]outbox.Answer{no}, []outbox.Answer{no, no}, deadletter.Deleted},
		"taken after":              {nil, []outbox.Answer{yes, no, yes}, deadletter.Routed},
		"refused after":            {nil, []outbox.Answer{no, no, no}, deadletter.Deleted},
	} {
		t.Run(name, func(t *testing.T) {
			w, q := holding(t, 2)
			var sent queue.Death
			q.m.RangeHeld(func(d queue.Death) bool {
				sent = d
				return false
			})
			const first = 77
			for k := range uint64(3) {
				q.waiting.ask(sent.ID, first+k)
			}
			n := w.n
			stats, err := n.Delete(q, nil)
			if err != nil {
				t.Fatal(err)
			}
			target := uint64(first)
			answer := func(list []outbox.Answer) {
				for _, a := range list {
					h := n.outboxes.hold()
					e := outbox.Entry{Target: target, Source: q.Incarnation, ID: sent.ID, Reason: sent.Reason}
					n.outboxes.takenLate(&e, a)
					n.unlock(h)
					target++
				}
			}
			answer(c.before)
			w.settle()
			answer(c.after)
			want := map[deadletter.Outcome]uint64{deadletter.Deleted: 1} // the other one
			want[c.want]++
			for _, o := range []deadletter.Outcome{deadletter.Routed, deadletter.Deleted} {
				if got := w.ends(&stats.Stats, o); got != want[o] {
					t.Errorf("%d deaths are counted as %s, want %d", got, o, want[o])
				}
			}
			if len(n.outboxes.ended)+len(n.outboxes.late) > 0 {
				t.Errorf("%d queues and %d deaths are remembered", len(n.outboxes.ended), len(n.outboxes.late))
			}
			w.check(0)
		})
	}
}
