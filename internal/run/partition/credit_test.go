package partition

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// slow is a session that takes a number of messages and then no more until it is told to go on.
type slow struct {
	client
	taken atomic.Int64
	limit atomic.Int64
}

func (s *slow) Deliver(q *Queue, c *queue.Consumer, d *queue.Delivery) bool {
	taken := s.taken.Add(1)
	s.client.Deliver(q, c, d)
	return taken < s.limit.Load()
}

// A consumer of a quorum queue without a prefetch limit gets everything, in windows, and at most a window once its
// session is full.
func TestCredit(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := startMail(t, vfs.NewMem(), 1, nil)
	const total = 3*window + 100
	for _, noAck := range []bool{true, false} {
		var serial message.Serial
		for serial < total {
			w.publish(&serial, 400)
		}
		w.n.SettleAll()
		s := &slow{client: client{arrivedc: make(chan struct{}, 1)}}
		s.limit.Store(10)
		c := &queue.Consumer{Target: s, Tag: "c", NoAck: noAck}
		if ok, err := w.n.Attach(w.queues["q"], c, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		until := func(n int64) {
			t.Helper()
			for deadline := time.After(10 * time.Second); s.taken.Load() < n; {
				select {
				case <-s.arrivedc:
				case <-deadline:
					t.Fatalf("no ack %v: %d delivered, want %d", noAck, s.taken.Load(), n)
				}
			}
		}
		until(window)
		w.n.SettleAll()
		if got := s.taken.Load(); got > window {
			t.Fatalf("no ack %v: %d delivered to a session that is full, want %d at most", noAck, got, window)
		}
		s.limit.Store(1 << 40)
		w.n.Resume(w.queues["q"], c)
		until(int64(serial))
		var acks []Op
		for _, h := range s.take() {
			w.n.bodies.Release(h.d.Body)
			w.n.bodies.Release(h.d.History)
			if !noAck {
				acks = append(acks, Op{Kind: Ack, Queue: w.queues["q"], ID: h.d.ID, Consumer: c})
			}
		}
		w.n.Run(acks)
		if left, was := w.n.Detach(w.queues["q"], c, nil); left != 0 || !was {
			t.Errorf("no ack %v: detached %v, %d consumers are left", noAck, was, left)
		}
		if n := w.n.Counts(w.queues["q"]); n.Ready+n.Out != 0 {
			t.Errorf("no ack %v: %d ready and %d out are left", noAck, n.Ready, n.Out)
		}
	}
	w.stop()
}

// A consumer whose client gives its credit gets nothing before, never more than that, and a drain ends what is left once all
// there is was delivered (AMQP 1.0, 2.6.7).
func TestCreditOfAClient(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := startQueues(t, vfs.NewMem(), 1, nil, []definition{{"classic", classic, queue.Unlimited(), DeadLetter{}}, {"quorum", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	var serial message.Serial
	for _, name := range []string{"classic", "quorum"} {
		q := w.queues[name]
		publish := func(n int) {
			t.Helper()
			for range n {
				serial++
				if err := w.n.Enter([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial), TTL: -1, Priority: -1}}); err != nil {
					t.Fatal(err)
				}
			}
			w.n.SettleAll()
		}
		s := &client{arrivedc: make(chan struct{}, 1)}
		c := &queue.Consumer{Target: s, Tag: "c", Credited: true}
		publish(3)
		if ok, err := w.n.Attach(q, c, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		var acks []Op
		for _, step := range []struct {
			publish, more  int
			drain          bool
			got            int
			drained, ready int
		}{
			{0, 0, false, 0, 0, 3},
			{0, 2, false, 2, 0, 1},
			{1, -1, false, 0, 0, 2}, // taken back, and given again
			{0, 2, false, 1, 0, 1},
			{0, 5, true, 1, 4, 0},
			{2, 0, false, 0, 0, 2}, // the drain has ended its credit
			{0, 1, true, 1, 0, 1},
			{0, 4, false, 1, 0, 0},
			{2, 0, true, 2, 1, 0},
			{sliceLimit + 10, 0, false, 0, 0, sliceLimit + 10},
			{0, sliceLimit + 20, true, sliceLimit + 10, 10, 0},
		} {
			publish(step.publish)
			drained, ready, err := w.n.Grant(q, c, step.more, step.drain)
			if err != nil {
				t.Fatal(err)
			}
			w.n.SettleAll()
			got := s.take()
			for _, h := range got {
				w.n.bodies.Release(h.d.Body)
				w.n.bodies.Release(h.d.History)
				acks = append(acks, Op{Kind: Ack, Queue: q, ID: h.d.ID, Consumer: c})
			}
			if len(got) != step.got || drained != step.drained || ready != step.ready {
				t.Errorf("%s, %+v: %d delivered, %d drained, %d ready", name, step, len(got), drained, ready)
			}
		}
		w.n.Run(acks)
		if left, was := w.n.Detach(q, c, nil); left != 0 || !was {
			t.Errorf("%s: detached %v, %d consumers are left", name, was, left)
		}
		if n := w.n.Counts(q); n.Ready+n.Out != 0 {
			t.Errorf("%s: %d ready and %d out are left", name, n.Ready, n.Out)
		}
	}
	w.stop()
}
