package partition

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// mailWorld is a running node. Its messages die from quorum queues into classic ones and back, until they are at the
// end. All hops but one cross logs.
type mailWorld struct {
	t      *testing.T
	n      *Node
	j      *journal.Journal
	disk   *world
	queues map[string]*Queue
	routes table
	route  func(q *Queue) // called before q's dead are routed, with nothing locked; may be nil
	unused func(q *Queue) // the same for a queue that has expired
	now    func() int64   // nil: the system's clock
	drops  atomic.Bool    // dropped messages are no failure
	files  vfs.FS         // the file system it runs on; nil: the one it was started on
	large  bool           // its files are as large as a node's, and no hash of its state is kept

	vhostGone atomic.Bool
	rerouted  atomic.Pointer[table] // replaces routes once it is set

	mu        sync.Mutex
	answered  sync.Cond
	confirmed map[message.Serial]bool
}

var mailRoutes = table{"one": {"x"}, "two": {"q2"}, "three": {"x2"}, "four": {"end"}}

var mailQueues = []definition{
	mailQueue("q", quorum, "one", false), mailQueue("x", classic, "two", false), mailQueue("q2", quorum, "three", true),
	mailQueue("x2", classic, "four", false), mailQueue("end", quorum, "", false),
}

func mailQueue(name string, config queue.Config, exchange string, atLeastOnce bool) definition {
	return definition{name, config, settings(func(s *queue.Settings) {
		s.DeadLetter, s.AtLeastOnce = exchange != "", atLeastOnce
	}), DeadLetter{Exchange: exchange}}
}

func (w *mailWorld) RouteDead(q *Queue, exchange string, _ []string, _ message.Record, _ *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	if w.route != nil {
		w.route(q)
	}
	routes := w.routes
	if again := w.rerouted.Load(); again != nil {
		routes = *again
	}
	names, ok := routes[exchange]
	for _, name := range names {
		out = append(out, w.queues[name])
	}
	return out, ok, true
}

func (w *mailWorld) HasVHost(message.VHost, uint64) bool { return !w.vhostGone.Load() }

func (w *mailWorld) QueueUnused(q *Queue) {
	if w.unused != nil {
		w.unused(q)
	}
}

func (w *mailWorld) Dropped(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome, r message.Record, _ *deadletter.History) {
	if w.drops.Load() {
		return
	}
	w.t.Errorf("message %d was dropped: %s in %s, %s", r.Serial(), reason, q.Name, outcome)
}

// Answered implements Owner.
func (w *mailWorld) Answered(list []Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range list {
		if !a.Refused {
			w.confirmed[message.Serial(a.Token)] = true
		}
	}
	w.answered.Broadcast()
}

// waitConfirmed waits until n publishes are confirmed.
func (w *mailWorld) waitConfirmed(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.confirmed) < n {
		w.answered.Wait()
	}
}

// startMail runs a node on fs.
func startMail(t *testing.T, fs *vfs.MemFS, life uint64, fail func(string)) *mailWorld {
	t.Helper()
	return startQueues(t, fs, life, fail, mailQueues, mailRoutes)
}

// startQueues is startMail with the given queues and exchanges.
func startQueues(t *testing.T, fs *vfs.MemFS, life uint64, fail func(string), defs []definition, routes table, prepare ...func(*mailWorld)) *mailWorld {
	t.Helper()
	w := openMail(t, fs, life, fail, routes, prepare...)
	for i, d := range defs {
		w.create(&d, uint64(i+1))
	}
	w.start()
	return w
}

// create makes a queue.
func (w *mailWorld) create(d *definition, incarnation uint64) {
	q := &Queue{Incarnation: incarnation, VHost: "/", Name: d.name, Durable: true}
	w.n.Create(q, d.config, d.settings, d.dead)
	w.queues[d.name] = q
}

func (w *mailWorld) start() {
	w.t.Helper()
	if err := w.n.Recover(); err != nil {
		w.t.Fatal("recovery: ", err)
	}
	w.n.Start()
}

// openMail makes a node without queues that does not run yet.
func openMail(t *testing.T, fs *vfs.MemFS, life uint64, fail func(string), routes table, prepare ...func(*mailWorld)) *mailWorld {
	t.Helper()
	w := &mailWorld{t: t, queues: map[string]*Queue{}, routes: routes, confirmed: map[message.Serial]bool{}}
	for _, f := range prepare {
		f(w)
	}
	w.answered.L = &w.mu
	if w.files == nil {
		w.files = fs
	}
	if w.now == nil {
		w.now = func() int64 { return time.Now().UnixMilli() }
	}
	var err error
	segment := int64(16 << 10)
	if w.large {
		segment = 0 // the usual
	}
	w.j, err = journal.Open(journal.Options{FS: w.files, Dir: "journal", KeepDir: "keep", SegmentBytes: segment, Failpoint: fail})
	if err != nil {
		t.Fatal(err)
	}
	w.disk = &world{t: t, fs: fs, disk: w.files, j: w.j, large: w.large}
	if err := w.disk.openDisk(fail); err != nil {
		t.Fatal(err)
	}
	driver, err := cluster.New(cluster.Options{ID: 1, Journal: w.j, Failpoint: fail})
	if err != nil {
		t.Fatal(err)
	}
	w.n = New(Options{
		Partitions: 2, Journal: w.j, Bodies: w.disk.bodies, Index: w.disk.index, Keep: w.disk.keep, Budget: Budget{Index: 1, Bodies: 1 << 16, HotPages: 1},
		StateHash: !w.large, Checkpointing: Checkpointing{Bytes: 1 << 40, Every: time.Hour}, Router: w, Logger: slog.New(slog.DiscardHandler),
		Now: w.now, Failpoint: fail, DeadLettering: DeadLettering{RetryEvery: 5 * time.Millisecond},
		Cluster: driver, NodeID: 1, Origin: NewOrigin(1, int64(life)), OnFatal: func(err error) { t.Error(err) },
	})
	w.disk.n = w.n
	return w
}

func (w *mailWorld) stop() {
	w.n.Stop()
	w.disk.close()
}

// reject consumes from a queue and rejects everything until done is closed.
func (w *mailWorld) reject(name string, done <-chan struct{}) {
	q := w.queues[name]
	s := &client{arrivedc: make(chan struct{}, 1)}
	c := &queue.Consumer{Target: s, Tag: name, Prefetch: 64}
	if ok, err := w.n.Attach(q, c, func() {}); !ok || err != nil {
		if !Lost(err) {
			w.t.Errorf("consume: %v, %v", ok, err)
		}
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
			ops = append(ops, Op{Kind: Reject, Queue: q, ID: h.d.ID, Consumer: c})
			w.n.bodies.Release(h.d.Body)
			w.n.bodies.Release(h.d.History)
		}
		w.n.Run(ops)
	}
}

// record makes a message, with one reference.
func (w *mailWorld) record(serial message.Serial) message.Ref {
	e := message.Envelope{Serial: serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 64, Persistent: true}
	ref, b := w.n.bodies.Alloc(e.Size())
	body := e.Put(b)
	for i := range body {
		body[i] = byte(serial)
	}
	message.Record(b).Seal()
	return ref
}

func (w *mailWorld) publish(serial *message.Serial, batch int) {
	var ops []Op
	for range batch {
		*serial++
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{w.queues["q"]}, Body: w.record(*serial), TTL: -1, Priority: -1, Owner: w, Token: uint64(*serial)})
	}
	_ = w.n.Await(w.n.Run(ops))
}

// where returns the queues in which each message is ready.
func (w *mailWorld) where() (found map[message.Serial][]string, moving int) {
	found = map[message.Serial][]string{}
	for _, d := range mailQueues {
		q := w.queues[d.name]
		c := w.n.Counts(q)
		moving += c.Transit + c.Out + c.Dying + c.Held
		var cursor queue.Cursor
		for done := false; !done; {
			var err error
			cursor, done, err = w.n.Browse(q, cursor, 256, func(v queue.View, r message.Record, _ []byte) bool {
				for _, b := range r.Body() {
					if b != byte(r.Serial()) {
						w.t.Fatalf("message %d in %s has another's body", r.Serial(), d.name)
					}
				}
				found[r.Serial()] = append(found[r.Serial()], d.name)
				return true
			})
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return found, moving
}

// A node dies at some step of moves between groups and local queues. In its next life every message whose publish was
// confirmed is in one place, and nothing stays on its way.
func TestMailAfterACrash(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ends := map[string]int{}
	defer func() {
		if ends["end"] == 0 || ends["x"] == 0 {
			t.Errorf("messages did not come all the way: %v", ends)
		}
	}()
	points := slices.Concat(Failpoints, cluster.Failpoints, journal.Failpoints)
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		point, left := points[rng.IntN(len(points))], rng.IntN(60)
		fs := vfs.NewCrashableMem()
		chance := rand.New(rand.NewPCG(seed, 8)) // for the crash, guarded by mu
		var running atomic.Pointer[mailWorld]
		var mu sync.Mutex
		var clone *vfs.MemFS
		var known map[message.Serial]bool
		w := startMail(t, fs, 2*seed+1, func(name string) {
			if name != point {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			w := running.Load()
			if left--; left == 0 && w != nil {
				w.mu.Lock()
				known = maps.Clone(w.confirmed)
				clone = crash(fs, chance)
				w.mu.Unlock()
			}
		})
		running.Store(w)
		done := make(chan struct{})
		var clients sync.WaitGroup
		for _, name := range []string{"q", "x", "q2", "x2"} {
			clients.Go(func() { w.reject(name, done) })
		}
		var serial message.Serial
		for range 40 {
			w.publish(&serial, 1+rng.IntN(20))
			switch rng.IntN(8) {
			case 0:
				if err := w.n.Checkpoint(); err != nil {
					t.Error("checkpoint: ", err)
				}
			case 1:
				if _, err := w.n.Compact(); err != nil {
					t.Error("compaction: ", err)
				}
			}
			w.waitConfirmed(int(serial) - rng.IntN(60)) // some are pending when the next come
		}
		close(done)
		clients.Wait()
		mu.Lock()
		if clone == nil {
			w.mu.Lock()
			known = maps.Clone(w.confirmed)
			clone = crash(fs, chance)
			w.mu.Unlock()
		}
		mu.Unlock()
		w.stop()

		if t.Failed() {
			return
		}
		again := startMail(t, clone, 2*seed+2, nil)
		deadline := time.Now().Add(10 * time.Second)
		found, moving := again.where()
		for moving > 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
			found, moving = again.where()
		}
		if moving > 0 {
			t.Errorf("seed %d, %s: %d messages stay on their way", seed, point, moving)
		}
		for s := range known {
			if len(found[s]) != 1 {
				t.Errorf("seed %d, %s: message %d was confirmed and is in %v", seed, point, s, found[s])
			}
		}
		for s, places := range found {
			if len(places) > 1 {
				t.Errorf("seed %d, %s: message %d is in %v", seed, point, s, places)
			}
		}
		again.stop()
		for _, places := range found {
			ends[places[0]]++
		}
		if t.Failed() {
			return
		}
	}
}
