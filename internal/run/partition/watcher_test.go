package partition

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/queue"
)

// watcher is a session that writes down what it hears, in order.
type watcher struct {
	name string
	log  *watched
}

type watched struct {
	mu    sync.Mutex
	lines []string
	w     *mailWorld
}

func (l *watched) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// take returns what was heard since the last call.
func (l *watched) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Join(l.lines, ", ")
	l.lines = nil
	return lines
}

func (s *watcher) Deliver(_ *Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	s.log.add("%s gets %d", s.name, d.ID.Seq())
	s.log.w.n.bodies.Release(d.Body)
	s.log.w.n.bodies.Release(d.History)
	return true
}

func (s *watcher) Flush() {}

func (s *watcher) QueueGone(*Queue, *queue.Consumer) {}

func (s *watcher) TimedOut(*Queue, *queue.Consumer, int) {}

func (s *watcher) Active(active bool, ready int) {
	s.log.add("%s active %v of %d", s.name, active, ready)
}

func (s *watcher) TookBack(ids []queue.ID) {
	var seqs []uint64
	for _, id := range ids {
		seqs = append(seqs, id.Seq())
	}
	s.log.add("%s lost %v", s.name, seqs)
}

// BR-9.5, DL-12.7: a session hears, in order with its deliveries, whether its consumer is the active one of a quorum queue, and which
// deliveries a timeout has taken back. It hears it first when it has attached.
func TestWatchersHearOfActivityAndTimeouts(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	single := quorum
	single.SingleActive = true
	var clock atomic.Int64
	clock.Store(1_700_000_000_000)
	w := startQueues(t, vfs.NewCrashableMem(), 1, nil, []definition{{"q", single, settings(func(s *queue.Settings) { s.ConsumerTimeout = 1000 }), DeadLetter{}}}, nil,
		func(w *mailWorld) { w.now = clock.Load })
	defer w.stop()
	q, log := w.queues["q"], &watched{w: w}
	attach := func(name string, priority int64) *queue.Consumer {
		t.Helper()
		c := &queue.Consumer{Tag: name, Target: &watcher{name, log}, Priority: priority}
		if ok, err := w.n.Attach(q, c, func() { log.add("%s attached", name) }); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return c
	}
	heard := func(want string) {
		t.Helper()
		w.n.Settle(q)
		if got := log.take(); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	a := attach("a", 0)
	heard("a attached, a active true of 0")
	b := attach("b", 0)
	heard("b attached")
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1), TTL: -1, Priority: -1}})
	heard("a gets 1")
	clock.Add(1001)
	w.await("the timeout", func() bool {
		w.n.Counts(q)
		log.mu.Lock()
		defer log.mu.Unlock()
		return slices.Contains(log.lines, "b gets 1")
	})
	heard("b active true of 1, a active false of 0, a lost [1], b gets 1")
	q.part.mu.Lock()
	held := q.m.HeldBy(b)
	q.part.mu.Unlock()
	if len(held) != 1 {
		t.Fatalf("b has %d", len(held))
	}
	d := Op{Kind: Ack, Queue: q, ID: held[0].ID, Consumer: a}
	w.n.Run([]Op{d})
	heard("")
	c := attach("c", 5)
	heard("c attached")
	d.Consumer = b
	w.n.Run([]Op{d})
	heard("c active true of 0, b active false of 0")
	if _, was := w.n.Detach(q, c, nil); !was {
		t.Fatal("c was not attached")
	}
	heard("a active true of 0")
}
