package partition

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/run/bodies"
)

const (
	awayBudget = 8 << 20 // for bodies
	awayIndex  = 1 << 30
)

// awayNode starts a node with this budget for bodies, enough for the index, and the usual number of hot pages.
func awayNode(t *testing.T, fs *vfs.MemFS, life uint64, defs []definition, budget int64, prepare ...func(*mailWorld)) *mailWorld {
	w := openMail(t, fs, life, nil, nil, prepare...)
	w.n.Budget.Bodies, w.n.Budget.Index = budget, awayIndex
	for _, p := range w.n.all {
		p.pages.Hot = index.HotPages
	}
	for i := range defs {
		w.create(&defs[i], uint64(i+1))
	}
	w.start()
	return w
}

// awayBody is the byte of which a message's body consists.
func awayBody(s message.Serial) byte { return byte(s%251) + 1 }

// pour publishes messages of size bytes to the queues, each to one of them.
func (w *mailWorld) pour(defs []definition, from, n message.Serial, size int, persistent bool) {
	w.t.Helper()
	for s := from; s < from+n; s++ {
		e := message.Envelope{Serial: s, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: size, Persistent: persistent}
		ref, b := w.n.bodies.Alloc(e.Size())
		body := e.Put(b)
		for i := range body {
			body[i] = awayBody(s)
		}
		message.Record(b).Seal()
		q := w.queues[defs[int(s)%len(defs)].name]
		if err := w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: ref, TTL: -1, Priority: -1}})); err != nil {
			w.t.Fatal(err)
		}
	}
}

// overBudget says whether bodies exceed their budget.
func (w *mailWorld) overBudget() bool { return w.n.bodies.Memory() > w.n.Budget.Bodies }

// drain takes all messages from the queues and returns how many there were. Each must be what was published.
func (w *mailWorld) drain(defs []definition, size int) (n message.Serial) {
	w.t.Helper()
	var window bodies.Window
	defer window.Free()
	for i := range defs {
		for {
			d, _, ok, err := w.n.Get(w.queues[defs[i].name], true)
			if err != nil {
				w.t.Fatal(err)
			}
			if !ok {
				break
			}
			b, err := w.n.bodies.Read(d.Body, &window)
			if err != nil {
				w.t.Fatal(err)
			}
			r := message.Record(b)
			if want := bytes.Repeat([]byte{awayBody(r.Serial())}, size); !bytes.Equal(r.Body(), want) {
				w.t.Fatalf("message %d is not what was published", r.Serial())
			}
			w.n.bodies.Release(d.Body)
			n++
		}
	}
	return n
}

func awayQueues(n int, config queue.Config) (defs []definition) {
	for i := range n {
		defs = append(defs, definition{fmt.Sprint("q", i), config, queue.Unlimited(), DeadLetter{}})
	}
	return defs
}

// However short a queue is, messages that the journal has leave memory when there are too many: large messages, of
// which many queues have a few, and small ones if there are only small ones.
func TestBodiesLeaveMemoryFromShortQueues(t *testing.T) {
	for _, c := range []struct {
		name     string
		queues   int
		config   queue.Config
		messages message.Serial
		size     int
	}{
		{"a classic one of large messages", 1, classic, 300, 128 << 10},
		{"a quorum one of large messages", 1, quorum, 300, 128 << 10},
		{"many classic ones", 300, classic, 3000, 10 << 10},
		{"many quorum ones", 300, quorum, 3000, 10 << 10},
		{"many classic ones of small messages", 100, classic, 24000, 1 << 10},
		{"a classic one of small messages", 1, classic, 8000, 3 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fs, defs := vfs.NewMem(), awayQueues(c.queues, c.config)
			w := awayNode(t, fs, 1, defs, awayBudget)
			ready := func() (n int) {
				for i := range defs {
					n += w.n.Counts(w.queues[defs[i].name]).Ready
				}
				return n
			}
			w.pour(defs, 1, c.messages, c.size, true)
			w.await("bodies leave memory", func() bool { return !w.overBudget() && ready() == int(c.messages) })
			if n := w.drain(defs, c.size); n != c.messages {
				t.Errorf("%d messages came of %d", n, c.messages)
			}

			w.pour(defs, 1, c.messages, c.size, true)
			w.await("bodies leave memory again", func() bool { return !w.overBudget() && ready() == int(c.messages) })
			if err := w.n.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			w.pour(defs, c.messages+1, c.messages/2, c.size, true) // these are only in the journal
			w.await("bodies leave memory with a checkpoint", func() bool { return !w.overBudget() })
			w.stop()
			w = awayNode(t, fs, 2, defs, awayBudget)
			defer w.stop()
			if n, want := w.drain(defs, c.size), c.messages+c.messages/2; n != want {
				t.Errorf("%d messages came of %d after a restart", n, want)
			}
		})
	}
}

// A transient message that cannot be written, as on a full disk, stays in memory: the node goes on, and tries again
// later.
func TestWhatCannotBePutAwayStaysInMemory(t *testing.T) {
	const messages, size = 12_000, 3 << 10
	var refused atomic.Int64
	fs := vfs.NewMem()
	full := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".scratch") || op.Kind != errorfs.OpFileWrite && op.Kind != errorfs.OpFileWriteAt {
			return nil
		}
		refused.Add(1)
		return syscall.ENOSPC
	}))
	defs := awayQueues(1, classic)
	w := awayNode(t, fs, 1, defs, awayBudget, func(w *mailWorld) { w.files = full })
	w.pour(defs, 1, messages, size, false)
	w.await("something cannot be written", func() bool { return refused.Load() > 0 })
	w.await("the worker rests until it may try again", func() bool { return !w.queues[defs[0].name].part.relief.cooling.Load() })
	if n := w.drain(defs, size); n != messages {
		t.Errorf("%d messages came of %d", n, messages)
	}
	if n := refused.Load(); n > 50 {
		t.Errorf("it was tried %d times", n)
	}
	w.stop()
}

// The head of a queue is needed first, so messages furthest from it leave memory first.
func TestTheHeadOfAShortQueueStaysInMemory(t *testing.T) {
	for _, config := range []queue.Config{classic, quorum} {
		const messages, size = 300, 128 << 10
		defs := awayQueues(1, config)
		w := awayNode(t, vfs.NewMem(), 1, defs, messages*size/2*tightShare)
		w.pour(defs, 1, messages, size, true)
		w.await("all are there", func() bool { return w.n.Counts(w.queues["q0"]).Ready == messages })
		w.n.ShortOfMemory(true)
		w.await("bodies leave memory", func() bool { return w.n.bodies.Memory() <= messages*size/2 })
		var there []bool
		if _, _, err := w.n.Glance(w.queues["q0"], queue.Cursor{}, messages, func(v queue.View) bool {
			there = append(there, !v.Body.OnDisk())
			return true
		}); err != nil {
			t.Fatal(err)
		}
		for i, is := range there {
			if want := i < messages/3; want && !is || i > messages*2/3 && is {
				t.Fatalf("of %v: message %d of %d is in memory: %t", config, i, messages, is)
			}
		}
		w.stop()
	}
}

// While the node's memory is nearly used up, bodies have less of it, even if nobody publishes.
func TestBodiesLeaveMemoryWhenTheNodeIsShortOfIt(t *testing.T) {
	const messages, size = 200, 64 << 10
	defs := awayQueues(1, classic)
	w := awayNode(t, vfs.NewMem(), 1, defs, 2*messages*size)
	defer w.stop()
	w.pour(defs, 1, messages, size, true)
	if w.n.bodies.Memory() < messages*size {
		t.Error("bodies leave memory where there is enough")
	}
	w.n.ShortOfMemory(true)
	w.await("bodies leave memory", func() bool { return w.n.bodies.Memory() <= w.n.Budget.Bodies/tightShare })
	w.n.ShortOfMemory(false)
	if n := w.drain(defs, size); n != messages {
		t.Errorf("%d messages came of %d", n, messages)
	}
}

// If nothing is left to be put away, the queues are not all looked at again.
func TestSweepsDoNotLookAtWhatIsCold(t *testing.T) {
	const messages, size = 3000, 10 << 10
	defs := awayQueues(1000, classic)
	w := awayNode(t, vfs.NewMem(), 1, defs, 1) // there is always too much
	defer w.stop()
	w.pour(defs, 1, messages, size, true)
	for _, p := range w.n.all {
		w.await("all bodies leave memory", func() bool {
			p.relief.work()
			h := w.n.lock(p)
			defer w.n.unlock(h)
			return !p.pages.HasBodies()
		})
	}
}

// After relief has put away what it could, it pauses; after a sweep in vain it pauses longer, unless the index has
// grown much. A sweep in progress goes on. While nothing can be written, no bodies are put away.
func TestReliefPauses(t *testing.T) {
	for _, tt := range []struct {
		name          string
		set           func(r *relief, m *memory)
		now           int64
		bodies, index bool
	}{
		{"it has done nothing yet", func(*relief, *memory) {}, 1, true, true},
		{"bodies pause", func(r *relief, _ *memory) { r.cooled.Store(50) }, 49, false, true},
		{"no longer", func(r *relief, _ *memory) { r.cooled.Store(50) }, 50, true, true},
		{"there are more bodies", func(r *relief, _ *memory) { r.cooled.Store(50); r.cooling.Store(true) }, 49, true, true},
		{"none can be written", func(r *relief, m *memory) { r.cooling.Store(true); m.scratchAgain.Store(50) }, 49, false, true},
		{"sweeps pause", func(r *relief, _ *memory) { r.sweepAgain.Store(50) }, 49, true, false},
		{"a sweep goes on", func(r *relief, _ *memory) { r.sweepAgain.Store(50); r.sweeping.Store(true) }, 49, true, true},
		{"one was in vain", func(r *relief, m *memory) { r.vainUntil.Store(50); m.index.Store(150) }, 49, true, false},
		{"the index has grown", func(r *relief, m *memory) { r.vainUntil.Store(50); m.index.Store(151) }, 49, true, true},
	} {
		n := &Node{Options: Options{Budget: Budget{Index: 100}}}
		n.memory.n = n
		p := &Partition{node: n}
		p.relief.p = p
		tt.set(&p.relief, &n.memory)
		if bodies, index := p.relief.may(true, true, tt.now); bodies != tt.bodies || index != tt.index {
			t.Errorf("%s: it may for bodies %v, for the index %v; want %v, %v", tt.name, bodies, index, tt.bodies, tt.index)
		}
		if bodies, index := p.relief.may(false, false, tt.now); bodies || index {
			t.Errorf("%s: it may though nothing is short", tt.name)
		}
	}
}
