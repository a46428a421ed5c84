package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/run/cluster"
)

// Options says what is simulated. Seed and Model must be set.
type Options struct {
	Seed  uint64
	Model Model

	Nodes  int // at the start; 3 if 0
	Groups int // 2 if 0
	// Faults is how long things go wrong, Calm how long the cluster then has to
	// recover: 20 and 30 seconds of virtual time if 0.
	Faults, Calm time.Duration
	// Advance is called with every step of virtual time, to let another clock
	// follow. Nothing if nil.
	Advance func(time.Duration)

	SegmentBytes   int64 // of the journals; 32 KiB if 0
	TailBytes      int   // of cluster.Options; 24 KiB if 0, so that snapshots are needed
	MaxUncommitted int   // of cluster.Options; 64 KiB if 0
}

func (o Options) withDefaults() Options {
	o.Nodes = max(o.Nodes, 0)
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Groups == 0 {
		o.Groups = 2
	}
	if o.Faults == 0 {
		o.Faults = 20 * time.Second
	}
	if o.Calm == 0 {
		o.Calm = 30 * time.Second
	}
	if o.Advance == nil {
		o.Advance = func(time.Duration) {}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 32 << 10
	}
	if o.TailBytes == 0 {
		o.TailBytes = 24 << 10
	}
	if o.MaxUncommitted == 0 {
		o.MaxUncommitted = 64 << 10
	}
	return o
}

// World is one run.
type World struct {
	opts    Options
	rng     *rand.Rand
	diskRNG *rand.Rand // its numbers never matter, how many are drawn may differ
	now     int64      // virtual microseconds
	agenda  agenda
	nodes   []*node // by id, ascending; those removed are gone
	lastID  uint64
	net     network
	records map[uint64]*record
	trace   trace
	err     error
	calm    bool // faults are over
	quiet   bool // clients are, too
	still   bool // and so are hosts

	crashAt string          // the failpoint at which the next node crashes
	doomed  []*node         // crashed at a failpoint: they end when the event ends
	counts  map[string]int  // how often what happened
	lost    map[uint64]bool // nodes without their disk, to be replaced
}

// Result is what a run was like.
type Result struct {
	Trace  uint64         // a hash of everything that happened, in order
	Counts map[string]int // how often what happened
}

// Run simulates one world. An error says which invariant broke and shows the end of
// the history.
func Run(o Options) (Result, error) {
	o = o.withDefaults()
	w := &World{
		opts: o, rng: rand.New(rand.NewPCG(o.Seed, 1)), diskRNG: rand.New(rand.NewPCG(o.Seed, 2)),
		records: map[uint64]*record{}, counts: map[string]int{}, lost: map[uint64]bool{},
	}
	w.net = network{w: w, parts: map[uint64]int{}}
	for group := range o.Groups {
		w.records[uint64(group+1)] = newRecord()
	}
	for range o.Nodes {
		w.add()
	}
	w.schedule()
	w.until(o.Faults.Microseconds())
	w.heal()
	w.until((o.Faults + o.Calm/2).Microseconds())
	w.quiet = true
	w.until((o.Faults + o.Calm*5/6).Microseconds())
	w.still = true
	w.until((o.Faults + o.Calm).Microseconds())
	w.finish()
	for _, n := range w.nodes {
		if n.up {
			n.stop()
		}
	}
	for _, r := range w.records {
		w.counts["entries"] += len(r.entries)
	}
	if w.err != nil {
		return Result{w.trace.sum, w.counts}, fmt.Errorf("%w\n%s", w.err, strings.Join(w.trace.tail(), "\n"))
	}
	return Result{w.trace.sum, w.counts}, nil
}

// until lets everything happen that is planned up to a moment.
func (w *World) until(end int64) {
	for w.err == nil && w.agenda.Len() > 0 && w.agenda.events[0].at <= end {
		e := w.agenda.next()
		if e.at > w.now {
			w.opts.Advance(time.Duration(e.at-w.now) * time.Microsecond)
			w.now = e.at
		}
		e.do()
		w.bury()
	}
	w.now = max(w.now, end)
}

func (w *World) after(delay int64, do func()) { w.agenda.plan(w.now+delay, do) }

// every has something happen again and again, at random moments with the mean
// distance given, in microseconds.
func (w *World) every(mean int64, do func()) {
	w.after(1+int64(w.rng.ExpFloat64()*float64(mean)), func() {
		do()
		w.every(mean, do)
	})
}

func (w *World) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("seed %d, at %d µs: %s", w.opts.Seed, w.now, fmt.Sprintf(format, args...))
	}
}

// node returns the node of an id, nil if it is gone.
func (w *World) node(id uint64) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// add makes a node with an empty disk and starts it.
func (w *World) add() *node {
	w.lastID++
	n := &node{w: w, id: w.lastID, fs: newDisk(), stored: map[uint64]checkpoint{}, drift: 0.9 + 0.2*w.rng.Float64()}
	w.nodes = append(w.nodes, n)
	w.logf("node %d is new", n.id)
	w.start(n)
	return n
}

// start starts a node that is down.
func (w *World) start(n *node) {
	if n.up || w.lost[n.id] {
		return
	}
	w.logf("node %d starts", n.id)
	w.counts["starts"]++
	if err := n.start(); err != nil {
		w.fail("node %d does not start: %v", n.id, err)
	}
}

// tick gives a node its ticks while it lives.
func (w *World) tick(n *node, life int) {
	w.after(int64(100_000*n.drift), func() {
		if n.life != life || !n.up {
			return
		}
		if n.paused <= w.now {
			n.driver.Tick()
			w.settle(n)
		}
		w.tick(n, life)
	})
}

// settle has a node sync what it wrote, in two steps: the disk has it, and a
// moment later the node goes on.
func (w *World) settle(n *node) {
	if !n.up || n.syncing {
		return
	}
	if _, more := n.driver.Unsynced(); !more {
		return
	}
	n.syncing = true
	life := n.life
	w.after(20+w.rng.Int64N(100), func() {
		if n.life != life || !n.up {
			return
		}
		pos, _ := n.driver.Unsynced()
		if err := n.journal.Commit(pos); err != nil {
			w.fail("node %d: %v", n.id, err)
			return
		}
		w.logf("node %d syncs to %s", n.id, pos)
		w.after(w.syncTime(), func() {
			if n.life != life || !n.up {
				return
			}
			n.syncing = false
			n.driver.Durable()
			w.settle(n)
		})
	})
}

// syncTime is how long a sync takes.
func (w *World) syncTime() int64 {
	if !w.calm && w.rng.IntN(200) == 0 {
		w.counts["slow syncs"]++
		return w.rng.Int64N(2_000_000)
	}
	return 100 + w.rng.Int64N(2000)
}

// finish checks that the cluster has recovered: all members of a group are there,
// one leads, and all have applied everything that was ever decided.
func (w *World) finish() {
	for id := uint64(1); id <= uint64(w.opts.Groups) && w.err == nil; id++ {
		leader := w.leader(id)
		if leader == nil {
			w.fail("group %d has no leader after %v of calm", id, w.opts.Calm)
			return
		}
		members := leader.driver.Group(id).Status().Members
		rec := w.records[id]
		var left []Replica
		for _, n := range w.nodes {
			if !slices.Contains(members.Voters, n.id) && !slices.Contains(members.Learners, n.id) {
				continue
			}
			applied, hash := n.replicas[id].Hash()
			if applied != rec.last() || hash != 0 && hash != rec.states[applied] {
				w.fail("node %d group %d is at %d after %v of calm, decided is %d; the leader: %+v", n.id, id, applied, w.opts.Calm, rec.last(),
					leader.driver.Group(id).Status())
				return
			}
			left = append(left, n.replicas[id].Replica)
		}
		if len(left) < len(members.Voters)+len(members.Learners) {
			w.fail("group %d: of the members %v only %d are there", id, members, len(left))
			return
		}
		if err := w.opts.Model.Done(id, left); err != nil {
			w.fail("%v", err)
		}
	}
	if m, ok := w.opts.Model.(Hosts); ok && w.err == nil {
		if err := m.End(w.hosts()); err != nil {
			w.fail("%v", err)
		}
	}
}

// leader is the node that leads a group, that of the highest term if several think so.
func (w *World) leader(group uint64) *node {
	var best *node
	var term uint64
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if st := n.driver.Group(group).Status(); st.Leading && st.Term > term {
			best, term = n, st.Term
		}
	}
	return best
}

// status is a group as a node sees it.
func (n *node) status(group uint64) cluster.Status { return n.driver.Group(group).Status() }
