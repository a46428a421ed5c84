package partition

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// DL-8.12, BR-7.9: messages that were due before their queue is removed have died and left, whether or not its
// x-expires has passed meanwhile, and however many they are. Messages that come during the removal do not delay it.
func TestWhatIsDueLeavesItsQueueBeforeItGoes(t *testing.T) {
	const messages = 6000
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defs := []definition{
				{"source", source, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
				mailQueue("target", source, "", false),
			}
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"target"}})
			defer w.stop()
			q := w.queues["source"]
			publish := func(from, to message.Serial, ttl int64) {
				var ops []Op
				for s := from; s < to; s++ {
					ops = append(ops, Op{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: ttl, Priority: -1, Owner: w, Token: uint64(s)})
				}
				_ = w.n.Await(w.n.Run(ops))
				w.n.Settle(q)
			}
			// Nothing ticks it any longer, as when a node starts after its x-expires has passed.
			w.n.Configure(q, settings(func(s *queue.Settings) { s.DeadLetter, s.Expires = true, 0 }), DeadLetter{Exchange: "x"})
			publish(0, messages, 5)
			publish(messages, messages+10, 1<<40)
			for due := w.n.Now() + 5; w.n.Now() <= due; {
				runtime.Gosched()
			}
			w.n.SettleDeaths(q)
			c, err := w.n.Delete(q, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.n.Deleted(q, c)
			counts := w.n.Counts(w.queues["target"])
			if n := counts.Messages(); n != messages {
				t.Errorf("%d dead letters in the target, want %d", n, messages)
			}
		})
	}
}

// BR-7.9, DL-2.2: a deletion kills nothing. A message that becomes due during the deletion is deleted with its queue,
// and counted as a message.
func TestWhatBecomesDueDuringADeletionIsDeleted(t *testing.T) {
	const messages = 10
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defs := []definition{
				{"source", source, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
				mailQueue("target", source, "", false),
			}
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"target"}})
			defer w.stop()
			w.drops.Store(true)
			q := w.queues["source"]
			// The worker expires nothing in a queue that is to be deleted; only the deletion could.
			w.n.Configure(q, settings(func(s *queue.Settings) { s.DeadLetter, s.Expires = true, 0 }), DeadLetter{Exchange: "x"})
			var ops []Op
			for s := range message.Serial(messages) {
				ops = append(ops, Op{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: 100, Priority: -1, Owner: w, Token: uint64(s)})
			}
			_ = w.n.Await(w.n.Run(ops))
			w.n.Settle(q)
			due := w.n.Now() + 100
			w.n.SettleDeaths(q)
			for w.n.Now() <= due {
				runtime.Gosched()
			}
			c, err := w.n.Delete(q, nil)
			if err != nil {
				t.Fatal(err)
			}
			c = w.n.Deleted(q, c)
			arrived := w.n.Counts(w.queues["target"])
			if lost := c.Stats.Dead[deadletter.Expired][deadletter.Deleted]; lost != 0 || c.Ready+arrived.Ready != messages {
				t.Errorf("%d of %d messages are deleted, %d arrived, and %d died and went", c.Ready, messages, arrived.Ready, lost)
			}
		})
	}
}

// If the clock is set back while a queue is removed, nothing becomes due early. The removal neither waits nor blocks
// the queue until the clock is back where it was.
func TestARemovalDoesNotWaitForAClockThatWentBack(t *testing.T) {
	defs := []definition{{"source", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}}, {"target", classic, queue.Unlimited(), DeadLetter{}}}
	w := open(t, vfs.NewMem(), defs, table{"x": {"target"}}, 1000, nil)
	q := w.queues["source"]
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1, true, 10), TTL: 100, Priority: -1}})
	looks := 0
	w.n.Now = func() int64 {
		if looks++; looks == 1 {
			return 5000
		}
		return 1000
	}
	within(t, "the queue has settled", func() { w.n.SettleDeaths(q) })
}

// within fails if f takes more than ten seconds.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("not in 10 s: %s", what)
	}
}

// The removal of a queue waits for what has died, not for what goes on dying without end. That also holds if the
// clock is set back meanwhile, and if a death that cannot be read stays.
func TestARemovalDoesNotWaitForEndlessDeaths(t *testing.T) {
	for _, source := range []queue.Config{classic, quorum} {
		for _, c := range []struct {
			name       string
			back       int64 // milliseconds by which the clock is set back
			unreadable bool  // there is a death that cannot be read
		}{{"plain", 0, false}, {"the clock is set back", 3_600_000, false}, {"one cannot be read", 0, true}} {
			t.Run(source.Type.String()+", "+c.name, func(t *testing.T) { removeAmidDeaths(t, source, c.back, c.unreadable) })
		}
	}
}

func removeAmidDeaths(t *testing.T, source queue.Config, back int64, unreadable bool) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defs := []definition{
		{"source", source, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
		mailQueue("target", source, "", false),
	}
	var serial atomic.Uint64
	var behind atomic.Int64 // the clock
	var ended, endless atomic.Bool
	began, goOn := make(chan struct{}), make(chan struct{})
	var publish func()
	w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"target"}}, func(w *mailWorld) {
		w.route = func(*Queue) { // while some are routed, more die
			if endless.CompareAndSwap(false, true) {
				close(began)
				<-goOn
			}
			if now := w.n.Now(); !ended.Load() {
				for w.n.Now() == now {
					runtime.Gosched()
				}
				publish()
			}
		}
		w.now = func() int64 { return time.Now().UnixMilli() - behind.Load() }
	})
	defer w.stop()
	q := w.queues["source"]
	publish = func() {
		s := message.Serial(serial.Add(1))
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: 0, Priority: -1}})
		w.n.Settle(q)
	}
	if unreadable {
		leaveDead(t, w, q, publish)
	}
	go publish()
	<-began
	waiting := func() bool {
		q.part.mu.Lock()
		defer q.part.mu.Unlock()
		return len(q.calmc) > 0
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		w.n.SettleDeaths(q)
	}()
	within(t, "somebody waits for the first death", func() {
		for !waiting() {
			runtime.Gosched()
		}
	})
	behind.Store(back)
	close(goOn)
	defer ended.Store(true)
	within(t, "the first death has left", func() { <-settled })
	c := w.n.Counts(w.queues["target"])
	if n := c.Messages(); n == 0 {
		t.Error("what died before has not left")
	}
}

// leaveDead makes a message die in a queue that is not routed, as if it could not be read.
func leaveDead(t *testing.T, w *mailWorld, q *Queue, publish func()) {
	t.Helper()
	route := func(on bool) {
		q.part.mu.Lock()
		q.routing = on
		q.part.mu.Unlock()
	}
	route(true) // by nobody
	publish()
	var dead []queue.Death
	within(t, "it dies", func() {
		for len(dead) == 0 {
			_ = w.n.with(q, func(*hold) { dead = q.m.Deaths(-1, nil) })
			runtime.Gosched()
		}
	})
	q.spoil([]queue.ID{dead[0].ID})
	route(false)
}

// A caller that waits for the deaths of a queue goes on when another one deletes the queue.
func TestWhoWaitsForDeathsIsToldThatTheQueueIsGone(t *testing.T) {
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defs := []definition{
				{"source", source, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
				mailQueue("target", source, "", false),
			}
			began, goOn := make(chan struct{}), make(chan struct{})
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"target"}}, func(w *mailWorld) {
				w.route = func(*Queue) {
					close(began)
					<-goOn
				}
			})
			defer w.stop()
			w.drops.Store(true)
			q := w.queues["source"]
			go w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1), TTL: 0, Priority: -1}})
			<-began
			settled := make(chan struct{})
			go func() {
				defer close(settled)
				w.n.SettleDeaths(q)
			}()
			within(t, "somebody waits", func() {
				for waits := false; !waits; runtime.Gosched() {
					q.part.mu.Lock()
					waits = len(q.calmc) > 0
					q.part.mu.Unlock()
				}
			})
			c, err := w.n.Delete(q, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.n.Deleted(q, c)
			close(goOn)
			within(t, "who waits goes on", func() { <-settled })
		})
	}
}

// Deadlines of other queues do not wait for the removal of an expired one.
func TestTheRemovalOfAnUnusedQueueHoldsUpNoOther(t *testing.T) {
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defs := []definition{mailQueue("target", source, "", false)}
			for i := range 8 { // several share a partition with the expired one
				name := fmt.Sprint("source-", i)
				defs = append(defs, definition{name, source, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}})
			}
			defs = append(defs, definition{"goes", source, settings(func(s *queue.Settings) { s.Expires = 1 }), DeadLetter{}})
			goOn, found := make(chan struct{}), make(chan struct{})
			var times atomic.Int64
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"target"}}, func(w *mailWorld) {
				w.unused = func(*Queue) {
					if times.Add(1) == 1 {
						close(found)
					}
					<-goOn
				}
			})
			defer w.stop()
			defer close(goOn)
			within(t, "the queue expires", func() { <-found })
			for i := range 8 {
				q := w.queues[fmt.Sprint("source-", i)]
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(message.Serial(i)), TTL: 5, Priority: -1}})
			}
			within(t, "all messages have expired", func() {
				for n := 0; n < 8; runtime.Gosched() {
					c := w.n.Counts(w.queues["target"])
					n = c.Messages()
				}
			})
			if n := times.Load(); n != 1 {
				t.Errorf("the queue was found to be unused %d times at once", n)
			}
		})
	}
}

// DL-8.12: queues whose x-expires passes at the same moment are removed without waiting for each other. One after the
// other, each would wait for two syncs of its own, and dead letters might meet a removal for all that time; a removal
// that never ends would block all others.
func TestDL_8_12_QueuesThatExpireTogetherGoTogether(t *testing.T) {
	const queues = 8
	for _, config := range []queue.Config{classic, quorum} {
		t.Run(config.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			var defs []definition
			for i := range queues {
				defs = append(defs, definition{fmt.Sprint("q-", i), config, settings(func(s *queue.Settings) { s.Expires = 1 }), DeadLetter{}})
			}
			goOn := make(chan struct{})
			var found sync.WaitGroup
			found.Add(queues)
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{}, func(w *mailWorld) {
				w.unused = func(*Queue) {
					select {
					case <-goOn: // found again, because nothing removes it here
						return
					default:
					}
					found.Done()
					<-goOn
				}
			})
			defer w.stop()
			defer close(goOn)
			within(t, "all queues are on their way out", found.Wait)
		})
	}
}
