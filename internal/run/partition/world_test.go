package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/bodies"
)

// definition is a queue of a test's topology.
type definition struct {
	name     string
	config   queue.Config
	settings queue.Settings
	dead     DeadLetter
}

// table is a Router: exchanges by name, each a fanout.
type table map[string][]string

// world is a node with its queues, on a file system that can crash.
type world struct {
	t      testing.TB
	fs     *vfs.MemFS
	disk   vfs.FS // fs, perhaps with faults
	j      *journal.Journal
	n      *Node
	index  *store.Store
	keep   *bodyfile.Keep
	bodies *bodies.Store
	queues map[string]*Queue
	routes table
	now    int64

	lenient atomic.Bool // drops are no failures
	fatals  atomic.Int32
	faulty  bool // the disk may fail

	large bool // its files are as large as a node's
}

func (w *world) RouteDead(_ *Queue, exchange string, _ []string, _ message.Record, _ *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	names, ok := w.routes[exchange]
	for _, name := range names {
		out = append(out, w.queues[name])
	}
	return out, ok, true
}

func (w *world) HasVHost(message.VHost, uint64) bool { return true }

func (w *world) QueueUnused(*Queue) {}

func (w *world) Dropped(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome, r message.Record, _ *deadletter.History) {
	if w.lenient.Load() {
		return
	}
	w.t.Errorf("message %d was dropped: %s in %s, %s", r.Serial(), reason, q.Name, outcome)
}

// open makes a node on fs and recovers it. hook gets the names of failpoints.
func open(t testing.TB, fs *vfs.MemFS, defs []definition, routes table, now int64, hook func(string)) *world {
	t.Helper()
	w := newWorld(t, fs, defs, routes, now, hook)
	if err := w.n.Recover(); err != nil {
		t.Fatal("recovery: ", err)
	}
	w.settle()
	return w
}

// newWorld makes a node that has not recovered yet.
func newWorld(t testing.TB, fs *vfs.MemFS, defs []definition, routes table, now int64, hook func(string)) *world {
	t.Helper()
	w := &world{t: t, fs: fs, disk: fs, routes: routes, now: now, queues: map[string]*Queue{}}
	w.make(defs, hook)
	return w
}

// fatal is called when the disk failed.
func (w *world) fatal(err error) {
	if w.fatals.Add(1); !w.faulty {
		w.t.Error(err)
	}
}

// make makes the node of a world.
func (w *world) make(defs []definition, hook func(string)) {
	t := w.t
	t.Helper()
	var err error
	w.j, err = journal.Open(journal.Options{FS: w.disk, OnFatal: w.fatal, Dir: "journal", KeepDir: "keep", SegmentBytes: 16 << 10, Failpoint: hook})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.openDisk(hook); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	w.n = New(Options{
		Partitions: 3, Journal: w.j, Index: w.index, Keep: w.keep, Bodies: w.bodies, Router: w, Logger: slog.New(slog.DiscardHandler),
		Now: func() int64 { return w.now }, Failpoint: hook, OnFatal: w.fatal, StateHash: true,
	})
	for _, p := range w.n.parts {
		p.pages.Hot = 0
	}
	for i, d := range defs {
		q := &Queue{Incarnation: uint64(i + 1), VHost: "/", Name: d.name, Durable: d.config.Durable}
		w.n.Create(q, d.config, d.settings, d.dead)
		w.queues[d.name] = q
		// Its entries begin in the middle of a page, so that there are soon several pages.
		meta := append([]byte{1}, 1)
		if d.config.Type == queue.Quorum {
			meta = append([]byte{1}, 32)
		}
		for range meta[1] {
			meta = binary.AppendUvarint(meta, 240)
		}
		if err := q.m.RestoreMeta(append(meta, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
}

// openDisk opens the stores of messages besides the journal.
func (w *world) openDisk(hook func(string)) (err error) {
	if hook == nil {
		hook = func(string) {}
	}
	if w.keep, err = bodyfile.OpenKeep(w.disk, "keep", hook); err != nil {
		return err
	}
	file := int64(16 << 10)
	if w.large {
		file = 0 // the usual
	}
	scratch, err := bodyfile.OpenScratch(w.disk, "scratch", file)
	if err != nil {
		return err
	}
	if w.index, err = store.OpenUnlogged(w.disk, "index", slog.New(slog.DiscardHandler), w.fatal); err != nil {
		return err
	}
	w.bodies = bodies.New()
	w.bodies.Attach(bodies.Disk{Journal: w.j, Keep: w.keep, Scratch: scratch})
	return nil
}

// close closes what is on disk. A second call does nothing.
func (w *world) close() {
	if w.index == nil {
		return
	}
	_ = w.j.Close()
	_ = w.index.Close()
	w.keep.Close()
	w.index = nil
}

// putAway takes everything out of memory that may leave.
func (w *world) putAway(index bool) {
	for _, q := range w.queues {
		h := w.n.lock(q.part)
		if !q.gone {
			q.m.SweepAgain(index)
			q.m.PutAway(10, index)
		}
		w.n.unlock(h)
	}
}

// settle does by hand the work of the workers: everything that is due or left to them.
func (w *world) settle() {
	for again := true; again; {
		again = false
		for _, p := range w.n.parts {
			p.tick()
			p.routeLater()
			p.bury()
			again = again || len(p.later)+len(p.buried) > 0 || len(p.timers) > 0 && p.timers[0].due <= w.now
		}
	}
}

// record makes a message of size bytes, with one reference.
func (w *world) record(serial message.Serial, persistent bool, size int) message.Ref {
	e := message.Envelope{
		Serial: serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: size, Persistent: persistent,
	}
	ref, b := w.n.bodies.Alloc(e.Size())
	body := e.Put(b)
	for i := range body {
		body[i] = byte(serial)
	}
	message.Record(b).Seal() // as everything from a client
	return ref
}

// read returns a record, in memory or on disk.
func (w *world) read(ref message.Ref) message.Record {
	b, err := w.bodies.Read(ref, new(bodies.Window))
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// place is where a message was found.
type place struct {
	queue   string
	view    queue.View
	history deadletter.History
}

// find shows every message in every queue.
func (w *world) find() map[message.Serial][]place {
	found := map[message.Serial][]place{}
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		var cursor queue.Cursor
		for done := false; !done; {
			var err error
			cursor, done, err = w.n.Browse(w.queues[name], cursor, 100, func(v queue.View, r message.Record, history []byte) bool {
				p := place{queue: name, view: v}
				if len(history) > 0 {
					h, err := deadletter.Parse(history)
					if err != nil {
						w.t.Errorf("message %d in %s has a history that cannot be read", r.Serial(), name)
					}
					p.history = h
				}
				for _, b := range r.Body() {
					if b != byte(r.Serial()) {
						w.t.Fatalf("message %d in %s has another's body", r.Serial(), name)
					}
				}
				found[r.Serial()] = append(found[r.Serial()], p)
				return true
			})
			switch {
			case err == nil:
			case w.faulty && errors.Is(err, errInjected):
				done = false // it fails once, and the next look continues there
			default:
				w.t.Fatal(err)
			}
		}
	}
	return found
}

// check finds faults inside the node: in machines, and references that are lost or kept for nothing. outside is how
// many references the test itself holds.
func (w *world) check(outside int) {
	w.t.Helper()
	refs := map[message.Ref]bool{}
	for name, q := range w.queues {
		if err := q.m.Check(); err != nil {
			w.t.Fatalf("queue %s: %v", name, err)
		}
		q.m.Browse(queue.Cursor{}, 1<<30, func(v queue.View) bool {
			refs[v.Body] = true
			if v.History != 0 {
				refs[v.History], refs[w.n.bodies.Base(v.History)] = true, true
			}
			return true
		})
		if q.routing || q.touched {
			w.t.Fatalf("queue %s: nobody works, routing %v, touched %v", name, q.routing, q.touched)
		}
	}
	delete(refs, 0)
	if live := w.n.bodies.Held(); live > len(refs)+outside {
		w.t.Fatalf("%d allocations live, %d are of queued messages", live, len(refs))
	}
}

func crash(fs *vfs.MemFS, rng *rand.Rand) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 20, 50, 80, 100}[rng.IntN(5)], RNG: rng})
}

func settings(change func(*queue.Settings)) queue.Settings {
	s := queue.Unlimited()
	change(&s)
	return s
}

var (
	classic   = queue.Config{Durable: true, MaxPriority: -1}
	quorum    = queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1}
	transient = queue.Config{MaxPriority: -1}
)

func (p place) String() string { return fmt.Sprintf("%s (%+v)", p.queue, p.view) }
