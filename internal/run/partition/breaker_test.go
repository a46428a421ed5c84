package partition

import (
	"fmt"
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

// A queue delivers again as soon as its breaker closes, however that is: nobody needs to publish or to come.
func TestAQueueDeliversWhenItsBreakerCloses(t *testing.T) {
	rule := queue.Breaker{Deaths: 2, Percent: 50, Window: 60_000}
	without := func(change func(*queue.Settings)) queue.Settings {
		s := settings(func(s *queue.Settings) { s.Breaker = rule })
		change(&s)
		return s
	}
	for _, config := range []queue.Config{classic, quorum} {
		for name, closes := range map[string]func(f *fleet, q *Queue, tried outstanding, c *queue.Consumer){
			"a message is acknowledged": func(f *fleet, q *Queue, tried outstanding, c *queue.Consumer) {
				f.leader.Run([]Op{{Kind: Ack, Queue: q, ID: tried.d.ID, Consumer: c}})
			},
			"by hand": func(f *fleet, q *Queue, _ outstanding, _ *queue.Consumer) {
				if before, err := f.leader.CloseBreaker(q); err != nil || before.State != queue.BreakerTrying {
					t.Errorf("closed by hand: %+v, %v", before, err)
				}
			},
			"the policy goes": func(f *fleet, q *Queue, _ outstanding, _ *queue.Consumer) {
				f.leader.Configure(q, without(func(s *queue.Settings) { s.Breaker = queue.Breaker{} }), DeadLetter{})
			},
			"the policy changes": func(f *fleet, q *Queue, _ outstanding, _ *queue.Consumer) {
				f.leader.Configure(q, without(func(s *queue.Settings) { s.Breaker.Deaths = 3 }), DeadLetter{})
			},
		} {
			t.Run(fmt.Sprint(config.Type, ", ", name), func(t *testing.T) {
				f := newFleet(t, []definition{{"q", config, without(func(*queue.Settings) {}), DeadLetter{}}}, nil)
				var told []queue.BreakerChange
				f.leader.OnBreaker = func(_ *Queue, change queue.BreakerChange, _ queue.Broken) { told = append(told, change) }
				q, s := f.queues["q"], &client{}
				c := &queue.Consumer{Tag: "c", Target: s, Prefetch: 3}
				if ok, err := f.leader.Attach(q, c, func() {}); !ok || err != nil {
					t.Fatal(ok, err)
				}
				for range 10 {
					f.publish("q", nil, -1)
				}
				f.work()
				got := s.take()
				for _, d := range got {
					f.leader.Run([]Op{{Kind: Reject, Queue: q, ID: d.d.ID, Consumer: c}})
				}
				f.work()
				// The third rejection has made room for others. None of them is delivered.
				if more := s.take(); len(got) != 3 || len(more) != 1 {
					t.Fatalf("%d deliveries, then %d", len(got), len(more))
				}
				f.now.Add(59_999)
				f.work()
				if more, b := s.take(), f.leader.Breaker(q); len(more) != 0 || b.State != queue.BreakerOpen {
					t.Fatalf("before the window is over it delivers %d, and is %+v", len(more), b)
				}
				f.now.Add(1)
				f.work()
				tries := s.take()
				if b := f.leader.Counts(q).Breaker; len(tries) != 1 || b.State != queue.BreakerTrying {
					t.Fatalf("when it is over it delivers %d, and is %+v", len(tries), b)
				}
				closes(f, q, tries[0], c)
				f.work()
				if more := s.take(); len(more) == 0 {
					t.Errorf("closed, it delivers %d", len(more))
				}
				if len(told) != 2 || told[0] != queue.BreakerOpens || told[1] < queue.BreakerCloses {
					t.Errorf("told of %v", told)
				}
				f.agree()
			})
		}
	}
}

// A queue whose breaker is open can be deleted. That of a group is open after a restart, from the log and from a checkpoint,
// nobody is told again, and it tries when its window is over. A classic one is closed.
func TestBreakerOverARestart(t *testing.T) {
	const window = 3600_000
	rule := settings(func(s *queue.Settings) { s.Breaker = queue.Breaker{Deaths: 1, Percent: 1, Window: window} })
	defs := []definition{{"c", classic, rule, DeadLetter{}}, {"q", quorum, rule, DeadLetter{}}, {"gone", quorum, rule, DeadLetter{}}}
	fs := vfs.NewCrashableMem()
	var clock atomic.Int64
	clock.Store(1_700_000_000_000)
	for life := range 4 {
		w := startQueues(t, fs, uint64(life+1), nil, defs, nil, func(w *mailWorld) { w.now = clock.Load })
		var told atomic.Int64
		w.n.OnBreaker = func(*Queue, queue.BreakerChange, queue.Broken) { told.Add(1) }
		if life == 0 {
			for i, d := range defs {
				w.killOne(d.name, message.Serial(i+1))
				w.enter(d.name, message.Serial(i+11), message.Serial(i+21))
			}
			w.remove("gone")
			defs = defs[:2]
		}
		open := func(name string, want queue.BreakerState) {
			t.Helper()
			if b := w.n.Counts(w.queues[name]).Breaker; b.State != want {
				t.Errorf("life %d: the breaker of %s is %v, want %v", life+1, name, b.State, want)
			}
			if w.takeOne(name, Return) != (want != queue.BreakerOpen) {
				t.Errorf("life %d: %s, whose breaker should be %v, delivers, or does not", life+1, name, want)
			}
		}
		switch life {
		case 0:
			open("c", queue.BreakerOpen)
			open("q", queue.BreakerOpen)
		case 1, 2:
			open("c", queue.BreakerClosed)
			open("q", queue.BreakerOpen)
		default:
			clock.Add(window)
			open("q", queue.BreakerTrying)
			w.takeOne("q", Ack)
			open("q", queue.BreakerClosed)
		}
		if n := told.Load(); n != map[int]int64{0: 3, 3: 1}[life] {
			t.Errorf("life %d: told %d times", life+1, n)
		}
		if life == 1 {
			if err := w.n.Checkpoint(); err != nil {
				t.Error(err)
			}
		}
		w.stop()
	}
}

// Clients do what they like with queues whose breakers open and close all the time, by themselves, by hand and by their policy.
// In the end each message was acknowledged once, or died once, and nothing is left behind.
func TestBreakersLoseAndDoubleNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const messages, clients = 2400, 4
	rule := func(dead bool) queue.Settings {
		return settings(func(s *queue.Settings) {
			s.DeadLetter, s.Breaker = dead, queue.Breaker{Deaths: 4, Percent: 20, Window: 8}
			s.Retry = queue.Retry{Type: queue.RetryFailed, Min: 1, Max: 3}
		})
	}
	defs := []definition{
		{"c", classic, rule(true), DeadLetter{Exchange: "dc"}}, {"q", quorum, rule(true), DeadLetter{Exchange: "dq"}},
		{"dc", classic, queue.Unlimited(), DeadLetter{}}, {"dq", quorum, queue.Unlimited(), DeadLetter{}},
	}
	w := startQueues(t, vfs.NewCrashableMem(), 1, nil, defs, table{"dc": {"dc"}, "dq": {"dq"}})
	defer w.stop()
	book := &breakerBook{ended: map[message.Serial]int{}, changes: map[queue.BreakerChange]int{}}
	w.n.OnBreaker = book.told
	sources := []*Queue{w.queues["c"], w.queues["q"]}
	done := make(chan struct{})
	var working, meddling sync.WaitGroup
	for k, q := range sources {
		for n := range clients {
			working.Go(func() {
				(&breakerClient{w: w, q: q, book: book, rng: rand.New(rand.NewPCG(uint64(n), uint64(k)))}).work(messages / clients)
			})
		}
		meddling.Go(func() {
			rng := rand.New(rand.NewPCG(99, uint64(k)))
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(1+rng.IntN(6)) * time.Millisecond):
				}
				switch rng.IntN(4) {
				case 0:
					if _, err := w.n.CloseBreaker(q); err != nil {
						t.Error(err)
					}
				case 1:
					s := rule(true)
					if rng.IntN(2) == 0 {
						s.Breaker = queue.Breaker{}
					}
					w.n.Configure(q, s, DeadLetter{Exchange: "d" + q.Name})
				default:
					if b := w.n.Counts(q).Breaker; b.State == queue.BreakerOpen && b.Until == 0 {
						t.Errorf("%+v", b)
					}
				}
			}
		})
	}
	working.Wait()
	close(done)
	meddling.Wait()
	for _, q := range sources {
		w.n.Configure(q, rule(true), DeadLetter{Exchange: "d" + q.Name})
		last := &breakerClient{w: w, q: q, book: book, rng: rand.New(rand.NewPCG(7, 7))}
		last.drain()
	}
	for _, q := range sources {
		w.calm(q.Name)
		book.collect(t, w, w.queues["d"+q.Name])
	}
	book.verify(t, messages*len(sources))
}

// breakerBook is what is known of the messages: how often each was acknowledged or has died.
type breakerBook struct {
	mu      sync.Mutex
	ended   map[message.Serial]int
	changes map[queue.BreakerChange]int
	serial  message.Serial
}

// told implements Options.OnBreaker.
func (b *breakerBook) told(_ *Queue, change queue.BreakerChange, _ queue.Broken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes[change]++
}

func (b *breakerBook) end(s message.Serial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[s]++
}

func (b *breakerBook) next() message.Serial {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serial++
	return b.serial
}

// collect counts the dead letters in a queue.
func (b *breakerBook) collect(t *testing.T, w *mailWorld, q *Queue) {
	var cursor queue.Cursor
	for done := false; !done; {
		var err error
		cursor, done, err = w.n.Browse(q, cursor, 256, func(_ queue.View, r message.Record, _ []byte) bool {
			b.end(r.Serial())
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (b *breakerBook) verify(t *testing.T, messages int) {
	for s := range message.Serial(messages) {
		if n := b.ended[s+1]; n != 1 {
			t.Errorf("message %d has ended %d times", s+1, n)
		}
	}
	if b.changes[queue.BreakerOpens] == 0 || b.changes[queue.BreakerReset]+b.changes[queue.BreakerCloses] == 0 {
		t.Errorf("no breaker opens, or none closes: %v", b.changes)
	}
}

// breakerClient publishes to a queue and consumes from it.
type breakerClient struct {
	w    *mailWorld
	q    *Queue
	book *breakerBook
	rng  *rand.Rand

	session  *client
	consumer *queue.Consumer
}

func (c *breakerClient) attach() {
	c.session = &client{arrivedc: make(chan struct{}, 1)}
	c.consumer = &queue.Consumer{Target: c.session, Tag: "c", Prefetch: c.rng.IntN(20), NoAck: c.rng.IntN(8) == 0}
	if ok, err := c.w.n.Attach(c.q, c.consumer, func() {}); !ok || err != nil {
		c.w.t.Error(ok, err)
	}
}

// leave ends the client's connection: what it has not settled comes back.
func (c *breakerClient) leave() {
	c.w.n.Quit([]Seat{{c.q, c.consumer}}, nil)()
	for _, h := range c.session.take() {
		c.ended(&h.d)
	}
}

// ended counts a delivery without acknowledgement, and releases it.
func (c *breakerClient) ended(d *queue.Delivery) {
	if d.NoAck {
		c.book.end(message.Record(c.w.disk.read(d.Body)).Serial())
	}
	c.w.n.bodies.Release(d.Body)
	c.w.n.bodies.Release(d.History)
}

func (c *breakerClient) work(messages int) {
	c.attach()
	fails := true // the service behind it is down for a while
	for i := range messages {
		c.w.enter(c.q.Name, c.book.next())
		if i%40 == 0 {
			fails = !fails
		}
		switch c.rng.IntN(30) {
		case 0:
			c.leave()
			c.attach()
		case 1:
			c.get(fails)
		}
		c.settle(fails)
		if c.rng.IntN(10) == 0 {
			time.Sleep(time.Duration(c.rng.IntN(3000)) * time.Microsecond)
		}
	}
	c.leave()
}

func (c *breakerClient) settle(fails bool) {
	var ops []Op
	for _, h := range c.session.take() {
		if !h.d.NoAck {
			ops = append(ops, c.op(&h.d, c.consumer, fails))
		}
		c.ended(&h.d)
	}
	c.w.n.Run(ops)
}

// op settles a delivery in some way.
func (c *breakerClient) op(d *queue.Delivery, by *queue.Consumer, fails bool) Op {
	op := Op{Kind: Ack, Queue: c.q, ID: d.ID, Consumer: by}
	switch n := c.rng.IntN(10); {
	case n < 2:
		op.Kind, op.How = Return, []queue.ReturnKind{queue.ReturnNack, queue.ReturnReject}[n]
	case fails && n < 9:
		op.Kind = Reject
	default:
		c.book.end(message.Record(c.w.disk.read(d.Body)).Serial())
	}
	return op
}

func (c *breakerClient) get(fails bool) {
	d, _, ok, err := c.w.n.Get(c.q, c.rng.IntN(3) == 0)
	if err != nil {
		c.w.t.Error(err)
	}
	if !ok {
		return
	}
	if !d.NoAck {
		c.w.n.Run([]Op{c.op(&d, d.By, fails)})
	}
	c.ended(&d)
}

// drain acknowledges until the queue is empty.
func (c *breakerClient) drain() {
	c.attach()
	defer c.leave()
	c.w.await("the queue is empty", func() bool {
		var ops []Op
		for _, h := range c.session.take() {
			if !h.d.NoAck {
				c.book.end(message.Record(c.w.disk.read(h.d.Body)).Serial())
				ops = append(ops, Op{Kind: Ack, Queue: c.q, ID: h.d.ID, Consumer: c.consumer})
			}
			c.ended(&h.d)
		}
		c.w.n.Run(ops)
		n := c.w.n.Counts(c.q)
		return n.Ready+n.Out+n.Delayed == 0
	})
}
