package partition

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// sliceLimit is how many entries are handled in one hold of a lock.
const sliceLimit = 512

// sliceSteps is how many entries a slice may make in addition, because each message may go to several queues. Only a
// single operation exceeds it: one death or move to more queues, or a publish to more quorum queues of one group.
const sliceSteps = 8 * sliceLimit

// Router decides where dead letters go. Its methods are called with no partition locked, except Dropped.
type Router interface {
	// RouteDead appends the queues to which the exchange routes the dead letter. exists is false if there is no such
	// exchange. byKeys says that the answer depends only on the exchange and the keys.
	RouteDead(q *Queue, exchange string, keys []string, r message.Record, h *deadletter.History, out []*Queue) (targets []*Queue, exists, byKeys bool)
	// HasVHost says whether the virtual host that a queue of this incarnation was in still exists; another one of the
	// same name does not count. The answer is on disk.
	HasVHost(v message.VHost, incarnation uint64) bool
	// QueueUnused reports that a queue's x-expires has passed. It may wait: only other expired queues wait for it.
	QueueUnused(q *Queue)
	// Dropped reports a dead message that went nowhere: that had no way out of a cycle or, with nil for r and h, that failed too
	// often in a queue without a dead-letter exchange. A partition may be locked. Dropped must not block, and must
	// not keep r or h.
	Dropped(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome, r message.Record, h *deadletter.History)
}

// Refuge finds queues for dead letters that lead nowhere. Its methods are called with no partition locked.
type Refuge interface {
	// Find is asked what becomes of a dead letter of q that would be dropped with this outcome: why says it. If the queue
	// that it needs is being made, waits is true, the dead letter stays in its queue, and ready, if not nil, is called once
	// the queue is there or cannot be made; then Find is asked again. Find itself waits for nothing, and ready must not wait either.
	// Otherwise found is the lost and found, where the letter goes; nil: it is dropped. lost says whether it may go there.
	Find(q *Queue, why deadletter.Outcome, lost bool, h *deadletter.History, ready func()) (found *Queue, waits bool)
}

// Options configure a Node.
type Options struct {
	Partitions int
	Journal    *journal.Journal
	Bodies     *bodies.Store
	Router     Router
	Refuge     Refuge // nil: what leads nowhere is dropped
	Logger     *slog.Logger
	Now        func() int64 // milliseconds since 1970, rounded down
	// CatchUp lets the clock behind Now go on at a moment at the earliest: one that a group's log or a checkpoint has. nil: nothing does.
	CatchUp func(moment int64)
	// Cluster decides the order of commands for quorum queues. Without it they run like classic queues.
	Cluster *cluster.Driver
	NodeID  uint64 // the node's number in Cluster
	// OpenGroup joins a group: with the state of a checkpoint, or with the first state if st is nil. If OpenGroup
	// itself is nil, Cluster.Open is used, and in the first state this node is the only member.
	OpenGroup func(id uint64, m cluster.Machine, st *cluster.State) (*cluster.Group, error)
	Origin    uint64    // from NewOrigin: no other process ever has the same
	Forwarder Forwarder // for commands to groups that other nodes lead; nil: they are refused

	Index *store.Store    // for pages and checkpoints; nil: everything stays in memory, and a start reads the whole journal
	Keep  *bodyfile.Keep  // for bodies that outlive their segment of the journal; set if Index is
	Aside *bodyfile.Aside // for messages that cannot be read; nil: they stay where they are

	DeadLettering DeadLettering
	Budget        Budget
	Checkpointing Checkpointing
	Repair        Repair

	// OnBreaker, if set, is called when the breaker of a queue has opened or closed, with nothing locked. It must not wait.
	OnBreaker func(q *Queue, change queue.BreakerChange, b queue.Broken)

	OnFatal       func(error)           // called if the disk failed or a replica cannot continue: the process must end
	KeepSenseless func(Senseless) error // stores a frame or command that makes no sense, and returns when it is on disk; nil: it is only logged
	// Known gets what the journal says about the declarations: how far their log was on disk, and the highest
	// incarnation of a queue. It returns an error if the store's declarations contradict that; Recover then fails
	// with it. nil: no check.
	Known func(noted store.Reach, highest uint64) error

	Failpoint func(name string) // for tests: called at the steps in Failpoints
	StateHash bool              // for tests: frames contain hashes of the queues' state, and recovery compares
}

// DeadLettering is the configuration of dead-lettering beyond a queue's settings.
type DeadLettering struct {
	ResetCounts    bool          // a dead letter does not keep its delivery count (DL-11.6)
	StripCC        bool          // DL-20.1
	TrustHistories bool          // a death history that a client publishes is continued (DL-7.10)
	RetryEvery     time.Duration // how often held deaths are retried (DL-13.4); 0 = 3 minutes
}

// Budget is how much memory the node may use.
type Budget struct {
	Index    int64 // bytes for index pages; 0 = 1 GiB
	Bodies   int64 // bytes for bodies; 0 = 1 GiB
	HotPages int   // pages at each end of a queue that always stay in memory; 0 = index.HotPages
}

// Checkpointing configures when checkpoints are written, and which callbacks they need.
type Checkpointing struct {
	Bytes         int64              // a checkpoint follows after this many bytes of the journal; 0 = 256 MiB
	Operations    int64              // and after this many operations in the journal; 0 = 8,000,000
	Every         time.Duration      // and after this time, if anything was logged; 0 = a minute
	CompactBelow  int64              // files with less than this percentage of their bytes in use are compacted; 0 = 55
	Short         bool               // the disk has little room when the node starts: see ShortOfRoom
	NewGeneration func(uint64) error // gets the generation, one more than the last, before a checkpoint counts; returns when it is on disk
	Removed       func() error       // returns when the store has the deletions of all queues deleted so far; nil: no store to wait for
}

// Repair is for the repair or the examination of a stopped node.
type Repair struct {
	Damaged        bool     // missing files do not stop recovery; their messages cannot be read
	KeepUndeclared bool     // Recover returns an *UndeclaredError before it drops messages of undeclared queues
	Salvage        *Salvage // set if the index is lost and the journal does not have everything
}

// Node is all partitions of a process.
type Node struct {
	Options
	bodies    *bodies.Store
	parts     []*Partition // local
	groups    []*Partition // replicated; their indexes follow those of parts
	all       []*Partition // both kinds, in the order of their locks
	seed      maphash.Seed
	holds     sync.Pool
	deadmoves sync.Pool

	checkpoints checkpointer
	declared    declaredNote
	senseless   senseless
	timeouts    timeoutLog
	late        late
	memory      memory
	diskTakes   time.Duration // a read that takes longer came from a disk: fromDisk, except in tests

	deaths    deathCounts
	drops     dropWatch
	arrivals  arrivalWatch
	noted     atomic.Int64  // what the clock showed when a frame of this process said so last
	relocated atomic.Uint64 // stranded messages that operators have relocated
	asides    atomic.Uint64 // messages set aside
	// toldPassed is when the log told last of messages that looks leave out, in milliseconds.
	toldPassed atomic.Int64

	outboxes *outboxes // of the local partitions
	tallies  *tallies  // likewise
	writers  sync.Pool
	numbers  atomic.Uint64 // numbers of consumers of replicated queues and of departures

	quitSlice int // how many consumers and deliveries of an ended client fit into one command: sliceSteps, except in tests

	stop chan struct{}
	done sync.WaitGroup
}

// New returns a node without queues. The caller then creates queues, calls Recover, and calls Start.
func New(o Options) *Node {
	n := &Node{Options: o, bodies: o.Bodies, seed: maphash.MakeSeed(), stop: make(chan struct{}), diskTakes: fromDisk}
	n.late.addedc = make(chan struct{}, 1)
	n.DeadLettering.RetryEvery = cmp.Or(n.DeadLettering.RetryEvery, 3*time.Minute)
	if n.OpenGroup == nil {
		n.OpenGroup = n.openGroup
	}
	n.quitSlice = sliceSteps
	n.Checkpointing.Bytes = cmp.Or(n.Checkpointing.Bytes, 256<<20)
	n.Checkpointing.Operations = cmp.Or(n.Checkpointing.Operations, 8_000_000)
	n.Checkpointing.Every = cmp.Or(n.Checkpointing.Every, time.Minute)
	n.Checkpointing.CompactBelow = cmp.Or(n.Checkpointing.CompactBelow, compactBelow)
	n.Budget.Index = cmp.Or(n.Budget.Index, 1<<30)
	n.Budget.Bodies = cmp.Or(n.Budget.Bodies, 1<<30)
	if n.OnFatal == nil {
		n.OnFatal = func(error) {}
	}
	n.checkpoints.n, n.checkpoints.compactor.n, n.memory.n = n, n, n
	n.checkpoints.hurried = make(chan struct{}, 1)
	n.checkpoints.scarce.Store(n.Checkpointing.Short)
	n.checkpoints.hurry.Store(n.Checkpointing.Short)
	n.holds.New = func() any { return new(hold) }
	n.writers.New = func() any { return new(commandWriter) }
	n.outboxes, n.tallies = newOutboxes(n, nil), newTallies()
	n.numbers.Store(firstNumber(n.Origin))
	for i := range max(1, o.Partitions) {
		p := newPartition(n, i)
		p.pages.Hot = cmp.Or(n.Budget.HotPages, index.HotPages)
		if n.StateHash {
			p.pages.Hash = n.historyBytes
		}
		n.parts = append(n.parts, p)
	}
	if n.Cluster != nil {
		for i := range Groups {
			n.groups = append(n.groups, newGroup(n, i).p)
		}
	}
	n.all = slices.Concat(n.parts, n.groups)
	return n
}

// openGroup is the default of Options.OpenGroup: a group of one node.
func (n *Node) openGroup(id uint64, m cluster.Machine, st *cluster.State) (*cluster.Group, error) {
	if st == nil {
		first := cluster.FirstState(n.NodeID)
		st = &first
	}
	return n.Cluster.Open(id, m, *st)
}

// NewOrigin names the process of a node that starts at now, in milliseconds since 1970.
func NewOrigin(node uint64, now int64) uint64 { return node<<originTimeBits | uint64(now) }

// Start begins the workers.
func (n *Node) Start() {
	if n.Index != nil {
		n.Index.GiveWay(n.giveWay)
	}
	for _, p := range n.all {
		n.done.Go(bug.Guarded(n.Logger, "the worker of a partition", p.work))
		n.done.Go(bug.Guarded(n.Logger, "the router of a partition", p.route))
		n.done.Go(bug.Guarded(n.Logger, "the end of unused queues", p.expire))
	}
	for _, p := range n.groups {
		n.done.Go(bug.Guarded(n.Logger, "the sender of a group", p.outboxes.keepSending))
	}
	if n.groups != nil {
		n.done.Go(bug.Guarded(n.Logger, "the sender", n.outboxes.keepSending))
	}
	n.done.Go(bug.Guarded(n.Logger, "housekeeping", n.housekeep))
	n.done.Go(bug.Guarded(n.Logger, "checkpoints", n.checkpoints.run))
	n.done.Go(bug.Guarded(n.Logger, "foresight", (&foresight{n: n, coming: map[*Queue]bool{}}).run))
}

// Stop ends the workers. The content of the queues stays as it is.
func (n *Node) Stop() {
	close(n.stop)
	for _, p := range n.groups {
		p.group.abandon(true)
	}
	n.done.Wait()
	if n.Cluster != nil {
		n.Cluster.Stop()
	}
}

// Partition is one of the node's parts: a mutex and the queues it guards.
type Partition struct {
	node     *Node
	index    int
	group    *group        // set if the partition is replicated
	driver   driver        // carries out operations on its queues
	outboxes *outboxes     // the outboxes of its log
	tallies  *tallies      // the tallies of its log
	wakec    chan struct{} // wakes the worker
	routec   chan struct{} // wakes route
	endc     chan struct{} // wakes expire

	turn       held.Mutex // lockInTurn takes it before mu
	mu         held.Mutex
	hold       *hold // the hold that has mu
	pages      queue.Pages
	queues     map[uint64]*Queue
	timers     []*Queue // heap by Queue.due
	lateDeaths int64    // age in milliseconds of the deaths last moved; 0 if no other deaths wait
	alarm      int64    // when the worker wakes up by itself
	buried     []*machineGrave
	graves     atomic.Bool // buried is not empty
	longest    int         // for a test: entries handled in the largest hold
	store      pageStore
	relief     relief

	leaving  held.Mutex // guards the lists below; held only for a moment, perhaps under mu
	later    []*Queue   // queues whose deaths route is to go on routing
	dropping []*Queue   // queues that have dropped something since TakeDrops
	arrived  []*Queue   // queues that something came to since TakeArrivals
	retry    []*Queue   // queues whose held deaths route is to retry
	unused   []*Queue   // queues whose x-expires has passed, for expire

}

func newPartition(n *Node, index int) *Partition {
	p := &Partition{node: n, index: index, outboxes: n.outboxes, tallies: n.tallies, queues: map[uint64]*Queue{}, wakec: make(chan struct{}, 1), routec: make(chan struct{}, 1), endc: make(chan struct{}, 1)}
	p.driver, p.relief.p = local{p}, p
	held.Name(&p.mu, "a partition")
	held.Name(&p.turn, "a partition's turn")
	held.Name(&p.leaving, "a partition's list of what leaves")
	return p
}

// machineGrave is what a purge or a deletion has left of a queue, to be released in slices.
type machineGrave struct {
	q *Queue
	m *queue.Machine
}

// Create makes a queue. dead says where its dead letters go.
func (n *Node) Create(q *Queue, config queue.Config, settings queue.Settings, dead DeadLetter) {
	q.config = config
	q.due = never
	if n.groups != nil && config.Type == queue.Quorum {
		q.part = n.groupOf(q).p
	} else {
		q.part = n.partitionOf(q)
	}
	q.part.driver.create(q, settings, dead)
}

const never = moment.Never

var errGone = errors.New("the queue is gone")

// with runs f on one queue, locked. It returns errGone if the queue was deleted.
func (n *Node) with(q *Queue, f func(h *hold)) error {
	h := n.lock(q.part)
	if q.gone {
		n.unlock(h)
		return errGone
	}
	h.touch(q)
	f(h)
	n.unlock(h)
	return nil
}

// Gone says whether err means that the queue was deleted meanwhile.
func Gone(err error) bool { return errors.Is(err, errGone) }

// HasDeleted says whether the queue was deleted, although the caller still has it.
func (n *Node) HasDeleted(q *Queue) bool {
	q.part.mu.Lock()
	gone := q.gone
	q.part.mu.Unlock()
	return gone
}

// Counts returns the queue's counters after what is due has expired (DL-8.6).
func (n *Node) Counts(q *Queue) Counts { return q.part.driver.counts(q) }

// CountsNow is Counts for a caller that looks at many queues: it does not wait for pending commands of a replicated
// queue (see SettleAll).
func (n *Node) CountsNow(q *Queue) (c Counts) {
	if !q.Replicated() {
		return n.Counts(q)
	}
	_ = n.with(q, func(h *hold) { c = q.counts(h.now) })
	return c
}

// RangeLevels calls f for each priority level of the queue with ready messages, lowest first.
func (n *Node) RangeLevels(q *Queue, f func(level, ready int)) {
	_ = n.with(q, func(*hold) { q.m.RangeLevels(f) })
}

// Touch notes a use of the queue (DL-8.12) and returns its counts.
func (n *Node) Touch(q *Queue) Counts {
	var a ask
	_ = q.part.driver.do(q, touch{}, &a)
	return a.counts
}

// Attach adds a consumer; ok is false if exclusive use forbids it (BR-9.3). attached is called with the queue locked,
// before the first delivery.
func (n *Node) Attach(q *Queue, c *queue.Consumer, attached func()) (ok bool, err error) {
	a := ask{consumer: c, attached: attached}
	err = q.part.driver.do(q, q.part.driver.numbered(c), &a)
	return a.ok, err
}

// Detach removes a consumer and returns how many are left.
func (n *Node) Detach(q *Queue, c *queue.Consumer, detached func()) (left int, was bool) {
	a := ask{consumer: c, attached: detached}
	_ = q.part.driver.do(q, detach{c.Number}, &a)
	return a.left, a.ok
}

// Resume lets a consumer that was full have more messages.
func (n *Node) Resume(q *Queue, c *queue.Consumer) { q.part.driver.resume(q, c) }

// Grant changes the credit of a Credited consumer: more deliveries may go to it, or fewer if more is negative. With drain all
// there is for it is delivered first, and then what is left of its credit ends: drained says how much. ready is how many messages
// are ready after it. The queue stops for nobody's credit, so whoever grants bounds what may be on its way.
func (n *Node) Grant(q *Queue, c *queue.Consumer, more int, drain bool) (drained, ready int, err error) {
	for {
		a := ask{consumer: c}
		err = q.part.driver.do(q, flow{c.Number, int64(more), drain}, &a)
		if more = 0; err != nil || !a.again { // again: another hold, so that others get the lock
			return a.n, a.left, err
		}
	}
}

// Open makes the queue try its consumers with this gate again, because the gate may have room.
func (n *Node) Open(q *Queue, gate queue.Gate) { q.part.driver.open(q, gate) }

// Share puts consumers of the queue that have no Gate under one.
func (n *Node) Share(q *Queue, list []*queue.Consumer, gate queue.Gate) {
	for some := range slices.Chunk(list, sliceLimit) {
		_ = n.with(q, func(*hold) {
			for _, c := range some {
				q.m.Share(c, gate)
			}
		})
	}
}

// Get takes a message for basic.get. The references in d are the caller's. d.By is the Consumer to settle it with.
func (n *Node) Get(q *Queue, noAck bool) (d queue.Delivery, left int, ok bool, err error) {
	for {
		var a ask
		if err = q.part.driver.do(q, q.part.driver.getting(noAck), &a); err != nil || !a.again { // again: another hold, so that others get the lock
			return a.delivery, a.left, a.ok, err
		}
	}
}

// Purge removes the ready messages and returns how many there were (BR-7.10).
func (n *Node) Purge(q *Queue) (purged int, err error) {
	var a ask
	for o := new(purge); ; a.again = false {
		if err = q.part.driver.do(q, o, &a); err != nil || !a.again {
			return a.n, err
		}
	}
}

// Delete accepts the deletion of a queue unless check, called with the queue locked, returns an error. It returns
// what the queue held. The caller calls Deleted later.
//
// Delete kills no message. A message that became due since SettleDeaths is deleted and counted as a message. A death
// that was not routed yet is deleted too (Counts.Unsettled). A replicated queue is deleted a little later: see
// Deleted.
func (n *Node) Delete(q *Queue, check func(Counts) error) (c Counts, err error) {
	return q.part.driver.accept(q, check)
}

// Deleted ends a queue whose deletion Delete has accepted, once the topology's log has the deletion. It notifies the
// consumers and returns what the queue held at the end. before is what Delete returned.
func (n *Node) Deleted(q *Queue, before Counts) Counts { return q.part.driver.finish(q, before) }

// Configure puts settings in force that a policy has changed.
func (n *Node) Configure(q *Queue, s queue.Settings, dead DeadLetter) {
	q.part.driver.configure(q, s, dead)
}

// WhatIsThere returns a cursor for browsing what is in the queue now, without what comes later.
func (n *Node) WhatIsThere(q *Queue) (c queue.Cursor, err error) {
	err = n.with(q, func(*hold) { c = q.m.WhatIsThere() })
	return c, err
}

// Glance shows at most limit entries after the cursor, without their messages. The queue is locked and nothing is
// read from disk, so f must be quick.
func (n *Node) Glance(q *Queue, after queue.Cursor, limit int, f func(v queue.View) bool) (next queue.Cursor, done bool, err error) {
	err = n.with(q, func(*hold) { next, done = q.m.Browse(after, limit, f) })
	return next, done, err
}

// Browse shows at most limit entries after the cursor, as they were at one moment. It changes nothing, and nothing is
// locked while f runs. r and history are valid only during the call of f. A message that is lost on disk is skipped:
// whoever is to have it sets it aside. Any other failure ends Browse with next before that message.
func (n *Node) Browse(q *Queue, after queue.Cursor, limit int, f func(v queue.View, r message.Record, history []byte) bool) (next queue.Cursor, done bool, err error) {
	var views []queue.View
	err = n.with(q, func(h *hold) {
		next, done = q.m.Browse(after, limit, func(v queue.View) bool {
			views = append(views, n.pin(v))
			return true
		})
	})
	if at, whole, failed := n.show(q, after, views, f); !whole {
		return at, false, failed
	}
	return next, done, err
}

// pin holds the bytes of an entry until show has shown it.
func (n *Node) pin(v queue.View) queue.View {
	n.bodies.Retain(v.Body, 1)
	n.bodies.Retain(v.History, 1)
	return v
}

// show reads the messages of pinned entries, calls f for them until it returns false, and unpins all. at is the place
// behind the last one; whole says whether f has seen all.
func (n *Node) show(q *Queue, after queue.Cursor, views []queue.View, f func(v queue.View, r message.Record, history []byte) bool) (at queue.Cursor, whole bool, err error) {
	defer func() {
		for i := range views {
			n.bodies.Release(views[i].Body)
			n.bodies.Release(views[i].History)
		}
	}()
	defer bug.End(n.Logger, "looking into a queue") // runs before the releases above: the store has locks
	var w bodies.Window
	defer w.Free()
	for i := range views {
		v := &views[i]
		r, err := n.bodies.Read(v.Body, &w)
		if err != nil {
			if !v.Out && !n.passedOver(q, err) {
				return after, false, fmt.Errorf("queue %q in vhost %q: %w", q.Name, q.VHost, err)
			}
			after = after.Behind(v.ID) // its consumer will find out
			continue
		}
		after = after.Behind(v.ID)
		if !f(*v, message.Record(r), n.historyBytes(v.History)) {
			return after, false, nil
		}
	}
	return after, true, nil
}

func (n *Node) historyBytes(ref message.Ref) []byte { return deathstore.Bytes(n.bodies, ref) }

// Bodies is the store that deliveries refer to.
func (n *Node) Bodies() *bodies.Store { return n.bodies }

// Consumers returns the queue's consumers in the order in which they are served; none if the queue is gone.
func (n *Node) Consumers(q *Queue) (list []queue.Attached) {
	_ = n.with(q, func(*hold) { list = q.m.Attached() })
	queue.SortAttached(list)
	return list
}

// Distinguished returns the tags of the exclusive and of the single active consumer: see queue.Machine.Distinguished.
func (n *Node) Distinguished(q *Queue) (exclusive, active string) {
	_ = n.with(q, func(*hold) { exclusive, active = q.m.Distinguished() })
	return exclusive, active
}

// Type is the queue's type.
func (q *Queue) Type() queue.Type { return q.config.Type }

// Config is what the queue was made with.
func (q *Queue) Config() queue.Config { return q.config }
