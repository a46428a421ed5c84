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
