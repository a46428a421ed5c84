package partition

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A queue with a single active consumer is the same after a checkpoint, a crash and the commands since. No death in
// it is lost, although deliveries of all its consumers had timed out at the cut.
func TestASingleActiveConsumerAfterAllTimedOutIsReplayed(t *testing.T) {
	single := quorum
	single.SingleActive = true
	defs := []definition{
		{"q", single, settings(func(s *queue.Settings) { s.ConsumerTimeout, s.DeadLetter, s.DeliveryLimit = 1000, true, -1 }), DeadLetter{Exchange: "x"}},
		{"d", classic, settings(func(*queue.Settings) {}), DeadLetter{}},
	}
	var clock atomic.Int64
	clock.Store(1_700_000_000_000)
	atClock := func(w *mailWorld) { w.now = clock.Load }
	fs := vfs.NewCrashableMem()
	w := startQueues(t, fs, 1, nil, defs, table{"x": {"d"}}, atClock)
	q := w.queues["q"]
	publish := func(w *mailWorld, s message.Serial) {
		q := w.queues["q"]
		_ = w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: -1, Priority: -1, Owner: w, Token: uint64(s)}}))
		w.n.Settle(q)
	}
	var cs [2]*queue.Consumer
	var ss [2]*client
	for k := range cs {
		ss[k] = &client{arrivedc: make(chan struct{}, 9)}
		cs[k] = &queue.Consumer{Tag: "c", Target: ss[k], Prefetch: 1}
		if ok, err := w.n.Attach(q, cs[k], func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	next := func(k int) outstanding {
		for {
			if got := ss[k].take(); len(got) > 0 {
				w.n.bodies.Release(got[0].d.Body)
				w.n.bodies.Release(got[0].d.History)
				return got[0]
			}
			select {
			case <-ss[k].arrivedc:
			case <-time.After(5 * time.Second):
				t.Fatalf("consumer %d gets nothing", k)
			}
		}
	}
	publish(w, 1)
	a := next(0)
	clock.Add(1500)
	w.n.Counts(q)
	b := next(1)
	clock.Add(1500)
	w.n.Counts(q)
	w.await("both have timed out", func() bool { return w.n.Counts(q).Ready == 1 })
	if _, _, ok, err := w.n.Get(q, true); !ok || err != nil { // otherwise it expires
		t.Fatal(ok, err)
	}
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.n.Run([]Op{{Kind: Ack, Queue: q, ID: a.d.ID, Consumer: cs[0]}})
	w.n.Settle(q)
	w.n.Run([]Op{{Kind: Ack, Queue: q, ID: b.d.ID, Consumer: cs[1]}})
	w.n.Settle(q)
	publish(w, 2)
	c := next(0)
	w.n.Run([]Op{{Kind: Reject, Queue: q, ID: c.d.ID, Consumer: cs[0]}})
	w.n.Settle(q)
	w.await("it is in d", func() bool { return w.n.Counts(w.queues["d"]).Ready == 1 && w.n.Counts(q).Transit == 0 })
	publish(w, 3) // goes to 0, who has it
	next(0)
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	w.stop()

	w = startQueues(t, after, 2, nil, defs, table{"x": {"d"}}, atClock)
	defer w.stop()
	q = w.queues["q"]
	w.n.Settle(q)
	w.await("what was out is back", func() bool { return w.n.Counts(q).Out == 0 })
	t.Logf("q has %d, d has %d", w.n.Counts(q).Ready, w.n.Counts(w.queues["d"]).Ready)
	if n := w.n.Counts(q).Ready; n != 1 {
		t.Errorf("q has %d messages ready, want one", n)
	}
	// From now on dead messages go to d: the newest first.
	var got []queue.Delivery
	for w.n.Counts(q).Ready > 0 {
		d, _, ok, err := w.n.Get(q, false)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.n.bodies.Release(d.Body)
		got = append(got, d)
	}
	dead := len(got)
	for _, d := range slices.Backward(got) {
		w.n.Run([]Op{{Kind: Reject, Queue: q, ID: d.ID, Consumer: d.By}})
		w.n.Settle(q)
	}
	w.await("all is on its way", func() bool { c := w.n.Counts(q); return c.Transit+c.Dying == 0 })
	t.Logf("%d died, d has %d", dead, w.n.Counts(w.queues["d"]).Ready)
	found := w.standing()
	t.Log(found)
	for s := message.Serial(2); s <= 3; s++ {
		if len(found[s]) != 1 {
			t.Errorf("message %d is in %v", s, found[s])
		}
	}
}

// standing returns the queues that each message is in.
func (w *mailWorld) standing() (found map[message.Serial][]string) {
	found = map[message.Serial][]string{}
	for name, q := range w.queues {
		_, _, err := w.n.Browse(q, queue.Cursor{}, 256, func(v queue.View, r message.Record, _ []byte) bool {
			found[r.Serial()] = append(found[r.Serial()], name)
			return true
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return found
}
