package partition

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// killOne publishes a message to a queue and rejects it.
func (w *mailWorld) killOne(name string, serial message.Serial) {
	w.t.Helper()
	q := w.queues[name]
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial), TTL: -1, Priority: -1}})
	w.n.Settle(q)
	d, _, ok, err := w.n.Get(q, false)
	if !ok || err != nil {
		w.t.Fatal(ok, err)
	}
	by := d.By
	w.n.Run([]Op{{Kind: Reject, Queue: q, ID: d.ID, Consumer: by}})
	w.n.Settle(q)
	w.n.bodies.Release(d.Body)
}

// remove deletes a queue and returns what it did.
func (w *mailWorld) remove(name string) Stats {
	w.t.Helper()
	q := w.queues[name]
	c, err := w.n.Delete(q, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c = w.n.Deleted(q, c)
	return c.Stats
}

// buried waits until everything that was deleted is buried: then the deaths that went with it are counted.
func (w *mailWorld) buried() {
	w.t.Helper()
	w.await("all is buried", func() bool {
		for _, p := range w.n.all {
			if p.graves.Load() {
				return false
			}
		}
		return true
	})
}

// await waits until f is true.
func (w *mailWorld) await(what string, f func() bool) {
	w.t.Helper()
	within(w.t, what, func() {
		for !f() {
			runtime.Gosched()
		}
	})
}

// DL-18.3, DL-18.4: every death is counted once with its outcome, whenever its queue is deleted. A death on its way
// to another log arrives or is refused there, and counts so.
func TestADeathIsCountedWhenItsQueueIsGone(t *testing.T) {
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	for _, c := range []struct {
		name           string
		source, target queue.Config
		atLeastOnce    bool
		full, noRoute  bool
		want           deadletter.Outcome
		arrives        int
	}{
		{"classic to quorum", classic, quorum, false, false, false, deadletter.Routed, 1},
		{"quorum to classic", quorum, classic, false, false, false, deadletter.Routed, 1},
		{"quorum to a classic queue that is full", quorum, classic, false, true, false, deadletter.TargetRefused, 0},
		{"classic to quorum, held", classic, quorum, true, false, false, deadletter.Routed, 1},
		{"quorum to classic, held", quorum, classic, true, false, false, deadletter.Routed, 1},
		{"quorum to a classic queue that is full, held", quorum, classic, true, true, false, deadletter.Deleted, 0},
		{"classic to a quorum queue that is full, held", classic, quorum, true, true, false, deadletter.Deleted, 0},
		{"classic, held without a route", classic, quorum, true, false, true, deadletter.Deleted, 0},
		{"quorum, held without a route", quorum, classic, true, false, true, deadletter.Deleted, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			target := queue.Unlimited()
			if c.full {
				target = full
			}
			routes := table{"x": {"target"}}
			if c.noRoute {
				routes = table{"x": nil}
			}
			sent, goOn := make(chan struct{}), make(chan struct{})
			once := sync.OnceFunc(func() { close(sent) })
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(name string) {
				if name == FailMailSent {
					once()
					<-goOn
				}
			}, []definition{mailQueue("source", c.source, "x", c.atLeastOnce), {"target", c.target, target, DeadLetter{}}}, routes)
			defer w.stop()
			w.drops.Store(true)
			w.killOne("source", 1)
			if c.noRoute {
				q := w.queues["source"]
				w.await("it is held", func() bool {
					counts := w.n.Counts(q)
					return counts.Held == 1
				})
			} else {
				within(t, "it is on its way", func() { <-sent })
			}
			total := w.remove("source")
			close(goOn)
			w.await("nothing is on its way", func() bool {
				for _, box := range w.n.Outboxes() {
					if box.Waiting > 0 {
						return false
					}
				}
				return true
			})
			w.buried()
			late := w.n.Late(c.source.Type)
			total.Add(&late)
			for outcome := range deadletter.Outcomes {
				want := uint64(0)
				if outcome == c.want {
					want = 1
				}
				if n := total.Dead[deadletter.Rejected][outcome]; n != want {
					t.Errorf("%d deaths are counted as %s, want %d", n, outcome, want)
				}
			}
			deaths := w.n.Deaths(c.source.Type, AtMostOnce, deadletter.Rejected) + w.n.Deaths(c.source.Type, AtLeastOnce, deadletter.Rejected)
			if deaths != 1 {
				t.Errorf("%d deaths are counted in all, want 1", deaths)
			}
			arrived := w.n.Counts(w.queues["target"])
			if arrived.Ready != c.arrives {
				t.Errorf("%d dead letters in the target, want %d", arrived.Ready, c.arrives)
			}
		})
	}
}

// Deaths that were not routed yet when their queue is deleted are counted.
func TestADeathThatGoesWithItsQueueIsCounted(t *testing.T) {
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			began, goOn := make(chan struct{}), make(chan struct{})
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, []definition{mailQueue("source", source, "x", false), mailQueue("target", source, "", false)},
				table{"x": {"target"}}, func(w *mailWorld) {
					w.route = func(*Queue) {
						close(began)
						<-goOn
					}
				})
			w.drops.Store(true)
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.killOne("source", 1)
			}()
			within(t, "it is being routed", func() { <-began })
			total := w.remove("source")
			close(goOn)
			<-done
			w.buried()
			late := w.n.Late(source.Type)
			total.Add(&late)
			w.stop()
			if n := total.Dead[deadletter.Rejected][deadletter.Deleted]; n != 1 {
				t.Errorf("%d deaths are counted as deleted, want 1", n)
			}
			if n := w.queues["target"].m.Totals().Ready; n != 0 {
				t.Errorf("%d dead letters arrived that are counted as deleted", n)
			}
			if n := w.n.Deaths(source.Type, AtMostOnce, deadletter.Rejected); n != 1 {
				t.Errorf("%d deaths are counted in all, want 1", n)
			}
		})
	}
}

// A stranded death is counted once: when it has a place again, in whatever log, or when it is deleted with its
// virtual host.
func TestAStrandedDeathIsCountedOnce(t *testing.T) {
	for _, source := range []queue.Config{classic, quorum} {
		other := quorum
		if source.Type == queue.Quorum {
			other = classic
		}
		for _, end := range []string{"same", "other", "both", "gone"} {
			t.Run(fmt.Sprint(source.Type, " to ", end), func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				sent, goOn := make(chan struct{}), make(chan struct{})
				once := sync.OnceFunc(func() { close(sent) })
				w := startQueues(t, vfs.NewCrashableMem(), 1, func(name string) {
					if name == FailMailSent {
						once()
						<-goOn
					}
				}, []definition{
					mailQueue("source", source, "x", false), mailQueue("goes", other, "", false),
					mailQueue("same", source, "", false), mailQueue("other", other, "", false), mailQueue("another", other, "", false),
				}, table{"x": {"goes"}})
				w.drops.Store(true)
				w.killOne("source", 1)
				within(t, "it is on its way", func() { <-sent })
				w.remove("goes")
				close(goOn)
				w.await("it is stranded", func() bool { return w.n.Stranded() == 1 })
				again, arrive, want := table{"x": {end}}, 1, deadletter.Routed
				switch end {
				case "both":
					again, arrive = table{"x": {"same", "other", "another"}}, 3
				case "gone":
					again, arrive, want = table{}, 0, deadletter.Deleted
					w.remove("source")
					w.vhostGone.Store(true)
				}
				w.rerouted.Store(&again)
				w.n.RetryStranded()
				w.await("it has gone where it leads now", func() bool { return len(w.n.Outboxes()) == 0 })
				arrived := 0
				for _, name := range []string{"same", "other", "another"} {
					c := w.n.Counts(w.queues[name])
					arrived += c.Ready
				}
				if arrived != arrive {
					t.Errorf("it has arrived %d times, want %d", arrived, arrive)
				}
				total := w.n.Late(source.Type)
				c := w.n.Counts(w.queues["source"])
				total.Add(&c.Stats)
				for outcome := range deadletter.Outcomes {
					n := total.Dead[deadletter.Rejected][outcome]
					if outcome == want && n != 1 || outcome != want && n != 0 {
						t.Errorf("%d deaths are counted as %s", n, outcome)
					}
				}
				w.stop()
			})
		}
	}
}

// BR-14.1, DL-21.1: if a death's target is deleted between routing and the move, the death is routed again. The
// deletion may not be stored yet, and after a crash the target would be back without the message.
func TestADeathWhoseTargetGoesMeanwhileIsRoutedAnew(t *testing.T) {
	for _, atLeastOnce := range []bool{false, true} {
		t.Run(fmt.Sprint("at least once ", atLeastOnce), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defs := []definition{mailQueue("source", classic, "x", atLeastOnce), mailQueue("goes", classic, "", false), mailQueue("stays", classic, "", false)}
			var w *mailWorld
			looked := 0
			w = startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"goes", "stays"}}, func(made *mailWorld) {
				made.route = func(*Queue) {
					switch looked++; looked {
					case 1:
						w.remove("goes") // this look still finds it
					case 2:
						w.rerouted.Store(&table{"x": {"stays"}})
					}
				}
			})
			defer w.stop()
			w.killOne("source", 1)
			w.await("the death has arrived", func() bool { return w.n.Counts(w.queues["stays"]).Ready == 1 })
			if looked != 2 {
				t.Errorf("targets were looked for %d times, want 2: what arrives must be decided anew", looked)
			}
		})
	}
}

// Deaths that were deleted with a queue of a group are counted by the process that buried them. The next process
// applies the log again and buries them again, but does not count them, because it has reset its counters before
// that.
func TestDeathsOfTheProcessBeforeAreNotCounted(t *testing.T) {
	fs := vfs.NewCrashableMem()
	w := startQueues(t, fs, 1, nil, []definition{mailQueue("source", quorum, "x", true)}, table{"x": nil})
	w.drops.Store(true)
	const deaths = 5
	for serial := range message.Serial(deaths) {
		w.killOne("source", serial+1)
	}
	q := w.queues["source"]
	w.await("all are held", func() bool { return w.n.Counts(q).Held == deaths })
	w.remove("source")
	w.buried()
	counted := func() uint64 { return w.n.Late(queue.Quorum).Dead[deadletter.Rejected][deadletter.Deleted] }
	if n := counted(); n != deaths {
		t.Errorf("%d deaths are counted, want %d", n, deaths)
	}
	if err := w.j.Sync(); err != nil {
		t.Fatal(err)
	}
	left := fs.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 1))})
	w.stop()
	w = startQueues(t, left, 2, nil, nil, table{"x": nil})
	defer w.stop()
	w.drops.Store(true)
	w.buried()
	if n := counted(); n != 0 {
		t.Errorf("%d deaths of the process before are counted", n)
	}
}
