package partition

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// client is a consumer's side that collects deliveries.
type client struct {
	mu       sync.Mutex
	got      []outstanding
	arrivedc chan struct{} // capacity 1: something was delivered; nil: nobody waits
}

func (c *client) Deliver(q *Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, outstanding{q: q, d: *d})
	select {
	case c.arrivedc <- struct{}{}:
	default:
	}
	return true
}

func (c *client) Flush()                                {}
func (c *client) QueueGone(*Queue, *queue.Consumer)     {}
func (c *client) TimedOut(*Queue, *queue.Consumer, int) {}
func (c *client) take() (got []outstanding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, c.got = c.got, nil
	return got
}

// Several clients publish, consume and reject at once while checkpoints are written and files compacted; then the
// machine is killed. Every message whose publish was committed is in exactly one place, and no reference is left when
// all are gone.
func TestInvariantIWithManyClients(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defs, routes := crashTopology()
	fs := vfs.NewCrashableMem()
	w := open(t, fs, defs, routes, 1_700_000_000_000, nil)
	var clock atomic.Int64
	clock.Store(w.now)
	w.n.Now = func() int64 { return clock.Add(1) / 4 }
	clock.Store(w.now * 4)
	w.n.DeadLettering.RetryEvery = 2 * time.Millisecond
	w.n.Start()

	var mu sync.Mutex
	known := ledger{}
	var serials atomic.Uint64
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			c := &client{}
			consumer := &queue.Consumer{Target: c, Prefetch: 10}
			mine := w.queues[[]string{"a", "m", "d", "c"}[n]]
			if _, err := w.n.Attach(mine, consumer, func() {}); err != nil {
				t.Error(err)
			}
			for range 400 {
				serial := message.Serial(serials.Add(1))
				base := bases[rng.IntN(len(bases))]
				mu.Lock()
				known[serial] = fate{base: base, persistent: true, acked: map[string]bool{}}
				mu.Unlock()
				op := []Op{{Kind: Publish, Targets: []*Queue{w.queues[base]}, Body: w.record(serial, true, 100), TTL: -1, Priority: -1}}
				r := w.n.Run(op)
				if rng.IntN(4) == 0 {
					if err := w.n.Await(r); err != nil {
						t.Error(err)
					}
					mu.Lock()
					f := known[serial]
					f.committed = r.journal != 0
					known[serial] = f
					mu.Unlock()
				}
				w.settleAll(rng, c, consumer, known, &mu)
			}
			w.n.Detach(mine, consumer, nil)
			for _, h := range c.take() {
				w.n.Run([]Op{{Kind: Return, Queue: h.q, ID: h.d.ID, Consumer: consumer, How: queue.ReturnClosed}})
				w.n.bodies.Release(h.d.Body)
				w.n.bodies.Release(h.d.History)
			}
		})
	}
	var compactor sync.WaitGroup
	stop := make(chan struct{})
	compactor.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := w.n.Checkpoint(); err != nil {
					t.Error(err)
				}
				w.putAway(true)
				if _, err := w.n.Compact(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	clients.Wait()
	close(stop)
	compactor.Wait()
	w.n.Stop()

	rng := rand.New(rand.NewPCG(3, 3))
	mu.Lock()
	defer mu.Unlock()
	recoverAndVerify(t, crashed{"the end", crash(fs, rng), known.clone(), clock.Load() / 4}, defs, routes, rng)
	for _, p := range w.n.parts {
		if p.longest > 4*sliceLimit {
			t.Errorf("a partition was held for %d entries at once", p.longest)
		}
	}
	w.settle()
	known.verify(t, w.find(), true)
	(&player{world: w}).drain()
	w.close()
}

// settleAll settles the client's deliveries in all ways.
func (w *world) settleAll(rng *rand.Rand, c *client, consumer *queue.Consumer, known ledger, mu *sync.Mutex) {
	for _, h := range c.take() {
		serial := w.read(h.d.Body).Serial()
		op := Op{Kind: Reject, Queue: h.q, ID: h.d.ID, Consumer: consumer}
		mu.Lock()
		f := known[serial]
		switch rng.IntN(3) {
		case 0:
			op.Kind = Ack
		case 1:
			op.Kind, op.How = Return, queue.ReturnNack
		default:
			if h.q.Name == "m" {
				f.rejects++
			}
		}
		if op.Kind == Ack || op.Kind == Reject && h.q.Name == "c" {
			f.acked[h.q.Name] = false
		}
		known[serial] = f
		mu.Unlock()
		w.n.Run([]Op{op})
		w.n.bodies.Release(h.d.Body)
		w.n.bodies.Release(h.d.History)
	}
}

// No hold handles more than a slice, however much is due at once.
func TestHoldsAreBounded(t *testing.T) {
	defs := []definition{
		{"in", classic, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "out"}},
		{"out", quorum, queue.Unlimited(), DeadLetter{}},
	}
	w := open(t, vfs.NewCrashableMem(), defs, table{"out": {"out"}}, 1_700_000_000_000, nil)
	const messages = 20 * sliceLimit
	ops := make([]Op, messages)
	for i := range ops {
		ops[i] = Op{Kind: Publish, Targets: []*Queue{w.queues["in"]}, Body: w.record(message.Serial(i+1), true, 10), TTL: -1, Priority: -1}
	}
	w.n.Run(ops[:messages/2])
	w.now += 1000
	w.settle() // all expire at once
	if c := w.n.Counts(w.queues["out"]); c.Ready != messages/2 {
		t.Errorf("%d messages expired, want %d", c.Ready, messages/2)
	}
	w.n.Configure(w.queues["in"], settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "out"})
	w.n.Run(ops[messages/2:])
	w.n.Configure(w.queues["in"], settings(func(s *queue.Settings) { s.DeadLetter, s.MaxLength = true, 1 }), DeadLetter{Exchange: "out"})
	if c := w.n.Counts(w.queues["in"]); c.Ready != 1 {
		t.Errorf("%d messages are ready beyond the limit, want 1: a trim shows at once", c.Ready)
	}
	w.settle()
	if c := w.n.Counts(w.queues["out"]); c.Ready != messages-1 {
		t.Errorf("%d messages died, want %d", c.Ready, messages-1)
	}
	for _, p := range w.n.parts {
		if p.longest > 3*sliceLimit {
			t.Errorf("a partition was held for %d entries at once, a slice is %d", p.longest, sliceLimit)
		}
	}
	// Order is kept on the way (DL-1.9).
	last := message.Serial(0)
	_, _, err := w.n.Browse(w.queues["out"], queue.Cursor{}, messages, func(_ queue.View, r message.Record, _ []byte) bool {
		if r.Serial() <= last {
			t.Fatalf("message %d stands behind %d", r.Serial(), last)
		}
		last = r.Serial()
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	w.check(0)
	w.close()
}
