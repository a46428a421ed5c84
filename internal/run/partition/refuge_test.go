package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// lostWorld is a node whose dead letters lead nowhere, each for another reason. The queue "lost" takes them; it is made
// when it is first needed.
type lostWorld struct {
	*mailWorld
	never bool // it cannot be made

	mu       sync.Mutex
	lost     *Queue
	declared bool // the declarations have it
	making   sync.WaitGroup
	begun    bool
	failed   bool
	ready    []func()
}

func finding(name string, config queue.Config, exchange string, more func(*queue.Settings)) definition {
	return definition{name, config, settings(func(s *queue.Settings) {
		s.DeadLetter, s.LostAndFound = exchange != "", true
		if more != nil {
			more(s)
		}
	}), DeadLetter{Exchange: exchange}}
}

// limited is a queue without a dead-letter exchange, in which a message may fail once.
func limited(name string) definition {
	return finding(name, quorum, "", func(s *queue.Settings) { s.DeliveryLimit = 0 })
}

// The sources, and why their dead letters lead nowhere.
var lostQueues = []definition{
	finding("missing", classic, "gone", nil), finding("missing-quorum", quorum, "gone", nil),
	finding("no route", classic, "none", nil), finding("no route-quorum", quorum, "none", nil),
	finding("refused", classic, "full", nil), limited("limit"),
	{"small", classic, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish }), DeadLetter{}},
}

var lostWhy = map[string]deadletter.Outcome{
	"missing": deadletter.MissingExchange, "missing-quorum": deadletter.MissingExchange, "no route": deadletter.NoRoute,
	"no route-quorum": deadletter.NoRoute, "refused": deadletter.TargetRefused, "limit": deadletter.NoExchange,
}

func startLost(t *testing.T, fs *vfs.MemFS, life uint64, declared bool, fail func(string)) *lostWorld {
	t.Helper()
	w := &lostWorld{declared: declared}
	w.mailWorld = openMail(t, fs, life, fail, table{"none": {}, "full": {"small"}})
	w.n.Refuge = w
	for i, d := range lostQueues {
		w.create(&d, uint64(i+1))
	}
	if declared {
		w.declare()
	}
	w.start()
	return w
}

// declare makes the queue.
func (w *lostWorld) declare() {
	q := &Queue{Incarnation: 100, VHost: "/", Name: "lost", Durable: true}
	w.n.Create(q, classic, queue.Unlimited(), DeadLetter{})
	w.lost = q
}

// Find implements Refuge.
func (w *lostWorld) Find(q *Queue, _ deadletter.Outcome, lost bool, _ *deadletter.History, ready func()) (*Queue, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !lost || q.Name == "lost" || w.failed:
		return nil, false
	case w.lost != nil:
		return w.lost, false
	}
	if ready != nil {
		w.ready = append(w.ready, ready)
	}
	if !w.begun {
		w.begun = true
		w.making.Go(func() {
			for range 100 {
				runtime.Gosched()
			}
			w.mu.Lock()
			if w.failed = w.never; !w.never {
				w.declared = true
				w.declare()
			}
			ready := w.ready
			w.mu.Unlock()
			for _, f := range ready {
				f()
			}
		})
	}
	return nil, true
}

func (w *lostWorld) stop() {
	w.making.Wait()
	w.mailWorld.stop()
}

// fail consumes from a queue and rejects everything, or lets it fail if it has no dead-letter exchange, until done is
// closed.
func (w *lostWorld) fail(name string, done <-chan struct{}) {
	q := w.queues[name]
	s := &client{arrivedc: make(chan struct{}, 1)}
	c := &queue.Consumer{Target: s, Tag: name, Prefetch: 64}
	if ok, err := w.n.Attach(q, c, func() {}); !ok || err != nil {
		w.t.Errorf("consume: %v, %v", ok, err)
		return
	}
	for {
		select {
		case <-done:
			return // without a word, as in a crash
		case <-s.arrivedc:
		}
		var ops []Op
		for _, h := range s.take() {
			op := Op{Kind: Reject, Queue: q, ID: h.d.ID, Consumer: c}
			if name == "limit" {
				op.Kind, op.How = Return, queue.ReturnReject
			}
			ops = append(ops, op)
			w.n.bodies.Release(h.d.Body)
			w.n.bodies.Release(h.d.History)
		}
		w.n.Run(ops)
	}
}

// where returns the queues of each message, and how many are on their way.
func (w *lostWorld) where() (found map[message.Serial][]string, why map[message.Serial]deadletter.Outcome, moving int) {
	found, why = map[message.Serial][]string{}, map[message.Serial]deadletter.Outcome{}
	var queues []*Queue
	for _, q := range w.queues {
		queues = append(queues, q)
	}
	w.mu.Lock()
	if w.lost != nil {
		queues = append(queues, w.lost) // the last: letters go there meanwhile
	}
	w.mu.Unlock()
	for _, q := range queues {
		name, c := q.Name, w.n.Counts(q)
		moving += c.Transit + c.Out + c.Dying + c.Held
		var cursor queue.Cursor
		for done := false; !done; {
			var err error
			cursor, done, err = w.n.Browse(q, cursor, 256, func(_ queue.View, r message.Record, history []byte) bool {
				found[r.Serial()] = append(found[r.Serial()], name)
				if name == "lost" {
					why[r.Serial()] = deadletter.HeadLost(history)
				}
				return true
			})
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return found, why, moving
}

// settled waits until nothing is on its way.
func (w *lostWorld) settled() (found map[message.Serial][]string, why map[message.Serial]deadletter.Outcome, moving int) {
	deadline := time.Now().Add(10 * time.Second)
	for {
		found, why, moving = w.where()
		if moving == 0 || time.Now().After(deadline) {
			return found, why, moving
		}
		runtime.Gosched()
	}
}

func (w *lostWorld) send(name string, serials ...message.Serial) {
	var ops []Op
	for _, s := range serials {
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{w.queues[name]}, Body: w.record(s), TTL: -1, Priority: -1, Owner: w, Token: uint64(s)})
	}
	if err := w.n.Await(w.n.Run(ops)); err == nil && !w.queues[name].Replicated() {
		w.mailWorld.mu.Lock()
		for _, s := range serials {
			w.confirmed[s] = true
		}
		w.answered.Broadcast()
		w.mailWorld.mu.Unlock()
	}
}

// Dead letters that lead nowhere wait for the lost and found, which is made when the first of them needs it. A node dies
// at some step of that. In its next life every message whose publish was confirmed is in one place, nothing waits for
// ever, and what is in the lost and found says why.
func TestLostLettersAfterACrash(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ends := map[string]int{}
	points := slices.Concat(Failpoints, cluster.Failpoints, journal.Failpoints)
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		point, left := points[rng.IntN(len(points))], 1+rng.IntN(40)
		fs := vfs.NewCrashableMem()
		chance := rand.New(rand.NewPCG(seed, 8)) // guarded by mu, as all that follows
		var mu sync.Mutex
		var w *lostWorld
		var clone *vfs.MemFS
		var known map[message.Serial]bool
		var declared bool
		die := func() {
			w.mailWorld.mu.Lock()
			known = maps.Clone(w.confirmed)
			clone = crash(fs, chance)
			w.mailWorld.mu.Unlock()
		}
		begun := startLost(t, fs, 2*seed+1, false, func(name string) {
			if name != point {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 && w != nil {
				die()
				// The declarations are stored before anything enters the queue, and the test's fault is at worst to have one
				// queue too many.
				declared = true
			}
		})
		mu.Lock()
		w = begun
		mu.Unlock()
		done := make(chan struct{})
		var clients sync.WaitGroup
		for name := range lostWhy {
			clients.Go(func() { begun.fail(name, done) })
		}
		var serial message.Serial
		source := map[message.Serial]string{}
		names := slices.Sorted(maps.Keys(lostWhy))
		for range 25 {
			for _, name := range names {
				var list []message.Serial
				for range 1 + rng.IntN(4) {
					serial++
					source[serial] = name
					list = append(list, serial)
				}
				begun.send(name, list...)
			}
			if rng.IntN(8) == 0 {
				if err := begun.n.Checkpoint(); err != nil {
					t.Error("checkpoint: ", err)
				}
			}
			begun.waitConfirmed(int(serial) - rng.IntN(60))
		}
		close(done)
		clients.Wait()
		mu.Lock()
		if clone == nil {
			die()
			declared = true
		}
		mu.Unlock()
		begun.stop()
		if t.Failed() {
			return
		}
		again := startLost(t, clone, 2*seed+2, declared, nil)
		found, why, moving := again.settled()
		if moving > 0 {
			t.Errorf("seed %d, %s: %d messages stay on their way", seed, point, moving)
		}
		for s := range known {
			if len(found[s]) != 1 {
				t.Errorf("seed %d, %s: message %d from %s was confirmed and is in %v", seed, point, s, source[s], found[s])
			}
		}
		for s, places := range found {
			if len(places) > 1 {
				t.Errorf("seed %d, %s: message %d is in %v", seed, point, s, places)
			}
			if places[0] == "lost" && why[s] != lostWhy[source[s]] {
				t.Errorf("seed %d: message %d from %s is lost because of %s, want %s", seed, s, source[s], why[s], lostWhy[source[s]])
			}
			ends[fmt.Sprint(source[s], " ", places[0] == "lost")]++
		}
		again.stop()
		if t.Failed() {
			return
		}
	}
	for name := range lostWhy {
		if ends[name+" true"] == 0 {
			t.Errorf("no message of %s came to the lost and found: %v", name, ends)
		}
	}
}

// What goes to the lost and found is counted as that, and nothing of it is a drop. If the queue cannot be made, the same
// letters are dropped with the outcome that they would have had without it, and nothing waits for ever.
func TestLostLettersAreCounted(t *testing.T) {
	for _, never := range []bool{false, true} {
		t.Run(fmt.Sprintf("never made %v", never), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			w := startLost(t, vfs.NewCrashableMem(), 1, false, nil)
			defer w.stop()
			w.never = never
			w.drops.Store(never)
			done := make(chan struct{})
			var clients sync.WaitGroup
			for name := range lostWhy {
				clients.Go(func() { w.fail(name, done) })
			}
			serial := message.Serial(0)
			for name := range lostWhy {
				for range 30 {
					serial++
					w.send(name, serial)
				}
			}
			w.waitConfirmed(int(serial))
			deadline := time.Now().Add(10 * time.Second)
			counted := func(name string) (counts dropCounts, total uint64) {
				c := w.n.Counts(w.queues[name])
				for r := range c.Stats.Dead {
					for o := range c.Stats.Dead[r] {
						total += c.Stats.Dead[r][o]
					}
				}
				return c.Stats.Dead, total
			}
			for name, why := range lostWhy {
				want := deadletter.LostAndFound
				if never {
					want = why
				}
				reason := deadletter.Rejected
				if name == "limit" {
					reason = deadletter.DeliveryLimit
				}
				counts, total := counted(name)
				for total < 30 && time.Now().Before(deadline) {
					runtime.Gosched()
					counts, total = counted(name)
				}
				if got := counts[reason][want]; got != 30 || total != 30 {
					t.Errorf("%s: %d deaths with outcome %s, %d in all, want 30: %v", name, got, want, total, counts)
				}
			}
			close(done)
			clients.Wait()
			_, why, moving := w.settled()
			if moving > 0 || len(why) != int(serial) && !never || len(why) != 0 && never {
				t.Errorf("%d are in the lost and found, %d on their way", len(why), moving)
			}
		})
	}
}
