package partition

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// DL-11.3: a process gives consumers and gets more numbers than there are before those of the next process, so the
// next one gives some again. The old holders are gone before that: no request is refused, and unsettled messages go
// to the new holders.
func TestNumbersOfAnEarlierProcessAreGivenAgain(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const messages = 2
	defs := []definition{mailQueue("q", quorum, "", false)}
	attach := func(w *mailWorld, prefetch int) (*client, *queue.Consumer) {
		s := &client{arrivedc: make(chan struct{}, messages)}
		c := &queue.Consumer{Target: s, Tag: "c", Prefetch: prefetch}
		if ok, err := w.n.Attach(w.queues["q"], c, func() {}); !ok || err != nil {
			t.Fatalf("consumer %x is not attached: %v", c.Number, err)
		}
		return s, c
	}
	release := func(w *mailWorld, d *queue.Delivery) {
		w.n.bodies.Release(d.Body)
		w.n.bodies.Release(d.History)
	}
	fs := vfs.NewCrashableMem()
	w := startQueues(t, fs, 1, func(string) {}, defs, nil)
	var ops []Op
	for serial := range message.Serial(messages) {
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{w.queues["q"]}, Body: w.record(serial), TTL: -1, Priority: -1})
	}
	_ = w.n.Await(w.n.Run(ops))
	s, before := attach(w, 1)
	within(t, "the first message is delivered", func() { <-s.arrivedc })
	got, _, ok, err := w.n.Get(w.queues["q"], false)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	w.n.Settle(w.queues["q"])
	left := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	release(w, &got)
	for _, h := range s.take() {
		release(w, &h.d)
	}
	w.stop()

	w = startQueues(t, left, 2, func(string) {}, defs, nil)
	defer w.stop()
	q := w.queues["q"]
	w.n.numbers.Store(before.Number - 1)
	s, c := attach(w, messages)
	if c.Number != before.Number {
		t.Fatalf("the consumer has the number %x, want %x", c.Number, before.Number)
	}
	for range messages {
		within(t, "what was unsettled comes", func() { <-s.arrivedc })
	}
	for _, h := range s.take() {
		w.n.Run([]Op{{Kind: Ack, Queue: q, ID: h.d.ID, Consumer: c}})
		release(w, &h.d)
	}
	w.n.Settle(q)
	if _, _, ok, err := w.n.Get(q, false); ok || err != nil { // with the number of the other get
		t.Errorf("a get: %v, %v", ok, err)
	}
	counts := w.n.Counts(q)
	if n := counts.Messages(); n != 0 || counts.Consumers != 1 {
		t.Errorf("%d messages and %d consumers are left, want 0 and 1", n, counts.Consumers)
	}
}
