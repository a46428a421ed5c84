// Package partition runs queues. A partition is a mutex around the machines of many queues, and the log that they share.
//
//	local  classic queues. All local partitions are one log, the node's journal: what one hold of them did is one frame,
//	       written on the way out. A move between queues of two partitions locks both, in order, and is still one frame.
//	group  quorum queues. The log has commands, which package cluster decides; the hold that applies them writes nothing.
//
// It owns the machines, when each must be looked at again, how what happens is logged and redone, how a death becomes a
// move, what one log has for another, and the checkpoints of all this. Package broker calls it. It knows no connections
// and no exchanges: it calls a Router for the one and Subscribers for the other.
//
//	node.go, partition's queue.go     what others call
//	operations.go, driver.go          what can be asked of a queue, applied in one place, at once or by a log
//	batch.go, entrance.go, hold.go    publishes and settlements; how a message enters; one time of holding partitions
//	command.go, apply.go, group.go    groups: commands, their application, proposals (proposal.go, replicated.go, forward.go)
//	clientend*.go                     the end of a client, whatever it holds
//	deadmove*.go, move.go             the way of a death, in three steps, and of what an operator moves
//	outbox*.go                        moves between logs
//	frame.go, recover.go, salvage.go  the journal: what is written, a start, a repair
//	checkpoint*.go, shelf.go          copies of the index; compact.go: files that are made dense
//	memory.go, relief.go              what leaves memory; foresight.go: what is read again before it is needed
//	worker.go                         deadlines, and what nobody waits for
//
// Goroutines: docs/internals/goroutines.md has them.
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

// sliceLimit is how many entries are handled under a lock at once.
const sliceLimit = 512

// sliceSteps is how many entries a slice may make besides, where each goes to several queues. Only one death or move that goes
// to more of them, which is one operation, takes more, and so does a publish to more quorum queues of a group.
const sliceSteps = 8 * sliceLimit

// Router finds where dead letters go. Its methods are called with no partition locked.
type Router interface {
	// RouteDead appends the queues that the exchange routes the dead letter to.
	// exists is false if there is no such exchange. byKeys is true if the answer
	// depends on nothing but the exchange and the keys.
	RouteDead(q *Queue, exchange string, keys []string, r message.Record, h *deadletter.History, out []*Queue) (targets []*Queue, exists, byKeys bool)
	// HasVHost says whether the virtual host is still there that a queue of that number was in: another of the same name
	// is not. What it says is on disk.
	HasVHost(v message.VHost, incarnation uint64) bool
	// QueueUnused is told that a queue's x-expires has passed. It may wait: nothing else does
	// for it but other queues that have expired.
	QueueUnused(q *Queue)
	// Dropped is told of a dead message that went nowhere, perhaps with a
	// partition locked. It must not block and not keep r or h.
	Dropped(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome, r message.Record, h *deadletter.History)
}

// Options configure a Node.
type Options struct {
	Partitions int
	Journal    *journal.Journal
	Bodies     *bodies.Store
	Router     Router
	Logger     *slog.Logger
	Now        func() int64 // milliseconds since 1970, rounded down
	// Cluster decides what happens to quorum queues. Without it they are run like
	// classic ones.
	Cluster *cluster.Driver
	NodeID  uint64 // as in Cluster
	// OpenGroup joins a group: in the state of a checkpoint, or if st is nil in the first.
	// Nil: Cluster.Open, where the first state has this node as its only member.
	OpenGroup func(id uint64, m cluster.Machine, st *cluster.State) (*cluster.Group, error)
	Origin    uint64    // NewOrigin: no other process has ever had it
	Forwarder Forwarder // for commands to groups that other nodes lead; nil: they are refused

	Index *store.Store    // for pages and checkpoints; nil: everything stays in memory, and the whole journal is read at start
	Keep  *bodyfile.Keep  // for bodies that outlive their segment of the journal; there if Index is
	Aside *bodyfile.Aside // for messages that cannot be read; nil: they stay where they are

	DeadLettering DeadLettering
	Budget        Budget
	Checkpointing Checkpointing
	Repair        Repair

	OnFatal       func(error)           // the disk failed, or a replica cannot go on: the process must end
	KeepSenseless func(Senseless) error // keeps what makes no sense, and returns when it is on disk; nil: it is only told
	// Known is told what the journal says of the declarations: how far their log was on disk, and the highest number
	// of a queue. Where that cannot be, its error is Recover's. Nil: it can.
	Known func(noted store.Reach, highest uint64) error

	Failpoint func(name string) // called at the steps in Failpoints; nil: nothing. For tests
	StateHash bool              // for tests: frames say what the queues were after them, and recovery compares
}

// DeadLettering is how messages are dead-lettered, where a queue's settings do not say it.
type DeadLettering struct {
	ResetCounts    bool          // delivery counts do not travel (DL-11.6)
	StripCC        bool          // DL-20.1
	TrustHistories bool          // those that clients send along are continued (DL-7.10)
	RetryEvery     time.Duration // how often held deaths are tried again (DL-13.4); 0 = 3 minutes
}

// Budget is how much memory the node may use.
type Budget struct {
	Index    int64 // bytes for index pages; 0 = 1 GiB
	Bodies   int64 // bytes for bodies; 0 = 1 GiB
	HotPages int   // pages at each end of a queue that stay in memory; 0 = index.HotPages
}

// Checkpointing is when checkpoints are written, and who is told.
type Checkpointing struct {
	Bytes         int64              // of the journal after which one is written; 0 = 256 MiB
	Operations    int64              // on entries in the journal after which one is; 0 = 8,000,000
	Every         time.Duration      // the time after which one is if anything was logged; 0 = a minute
	CompactBelow  int64              // the share of a file, in percent of the bodies ever written to it, below which what lives in it is moved; 0 = 55
	Short         bool               // there is little room on the disk when the node starts, see ShortOfRoom
	NewGeneration func(uint64) error // is told of a checkpoint before it counts, in a number one more than the last; when it returns that is on disk
	Removed       func() error       // returns when queues deleted so far are stored as gone; nil: they are at once
}

// Repair is for a repair, or an examination, of a node that is stopped.
type Repair struct {
	Damaged        bool     // files that are missing keep nobody from recovering, their messages cannot be read
	KeepUndeclared bool     // Recover returns an *UndeclaredError where it would give up messages of queues not declared
	Salvage        *Salvage // set where the index is lost, and the journal does not have everything
}

// Node is all partitions of a process.
type Node struct {
	Options
	bodies    *bodies.Store
	parts     []*Partition // local
	groups    []*Partition // replicated; their indexes follow those of parts
	all       []*Partition // both, in the order of their locks
	seed      maphash.Seed
	holds     sync.Pool
	deadmoves sync.Pool

	checkpoints checkpointer
	declared    declaredNote
	senseless   senseless
	memory      memory
	diskTakes   time.Duration // what takes longer was read from a disk: fromDisk, but in tests

	deaths    deathCounts
	relocated atomic.Uint64 // stranded messages that operators have sent elsewhere
	asides    atomic.Uint64 // messages that were set aside

	outboxes *outboxes // of the local partitions
	writers  sync.Pool
	numbers  atomic.Uint64 // of consumers of replicated queues, and of departures

	quitSlice int // how many consumers and deliveries of a client's end are one command: sliceSteps, but in tests

	stop chan struct{}
	done sync.WaitGroup
}

// New returns a node without queues. Queues are created, then Recover is
// called, then Start.
func New(o Options) *Node {
	n := &Node{Options: o, bodies: o.Bodies, seed: maphash.MakeSeed(), stop: make(chan struct{}), diskTakes: fromDisk}
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
	n.checkpoints.scarce.Store(n.Checkpointing.Short)
	n.checkpoints.hurry.Store(n.Checkpointing.Short)
	n.holds.New = func() any { return new(hold) }
	n.writers.New = func() any { return new(commandWriter) }
	n.outboxes = newOutboxes(n, nil)
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

// openGroup is Options.OpenGroup where there is one node.
func (n *Node) openGroup(id uint64, m cluster.Machine, st *cluster.State) (*cluster.Group, error) {
	if st == nil {
		first := cluster.FirstState(n.NodeID)
		st = &first
	}
	return n.Cluster.Open(id, m, *st)
}

// NewOrigin names a process of the node that starts now, in milliseconds since 1970.
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

// Stop ends the workers. What is in the queues stays as it is.
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
	group    *group        // set if it is replicated
	driver   driver        // of its queues' operations
	outboxes *outboxes     // of the log that its queues are in
	wakec    chan struct{} // for the worker: there is something to do
	routec   chan struct{} // for route: likewise
	endc     chan struct{} // for expire: likewise

	turn       held.Mutex // taken before mu by lockInTurn
	mu         held.Mutex
	hold       *hold // of whoever holds mu
	pages      queue.Pages
	queues     map[uint64]*Queue
	timers     []*Queue // heap by Queue.due
	lateDeaths int64    // how many milliseconds ago the deaths came that were moved last; 0 if no others wait
	alarm      int64    // when the worker will look by itself
	buried     []*machineGrave
	graves     atomic.Bool // there are some of these
	longest    int         // entries handled in the largest hold, for a test
	store      pageStore
	relief     relief

	leaving held.Mutex // held for a moment only, maybe with mu
	later   []*Queue   // queues whose deaths route goes on routing
	retry   []*Queue   // queues whose held deaths it is to try again
	unused  []*Queue   // queues whose x-expires has passed, for expire

}

func newPartition(n *Node, index int) *Partition {
	p := &Partition{node: n, index: index, outboxes: n.outboxes, queues: map[uint64]*Queue{}, wakec: make(chan struct{}, 1), routec: make(chan struct{}, 1), endc: make(chan struct{}, 1)}
	p.driver, p.relief.p = local{p}, p
	held.Name(&p.mu, "a partition")
	held.Name(&p.turn, "a partition's turn")
	held.Name(&p.leaving, "a partition's list of what leaves")
	return p
}

// machineGrave is the rest of a queue that was purged or deleted.
type machineGrave struct {
	q *Queue
	m *queue.Machine
}

// Create makes a queue. Its dead letters go where dead says.
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

// HasDeleted says whether a queue was deleted, though somebody still has it.
func (n *Node) HasDeleted(q *Queue) bool {
	q.part.mu.Lock()
	gone := q.gone
	q.part.mu.Unlock()
	return gone
}

// Counts shows the queue as it is now; what is due has expired (DL-8.6).
func (n *Node) Counts(q *Queue) Counts { return q.part.driver.counts(q) }

// CountsNow is Counts for those who look at many queues: it does not wait for what
// was asked of a replicated one (see SettleAll).
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

// Attach adds a consumer; false means that exclusive use forbids it (BR-9.3).
// attached is called with the queue locked before the first delivery.
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

// Resume lets a consumer that was full have more.
func (n *Node) Resume(q *Queue, c *queue.Consumer) { q.part.driver.resume(q, c) }

// Open looks again whether the queue can deliver to consumers with that gate, which may have room again.
func (n *Node) Open(q *Queue, gate queue.Gate) { q.part.driver.open(q, gate) }

// Share puts consumers of the queue, which have no Gate, under one.
func (n *Node) Share(q *Queue, list []*queue.Consumer, gate queue.Gate) {
	for some := range slices.Chunk(list, sliceLimit) {
		_ = n.with(q, func(*hold) {
			for _, c := range some {
				q.m.Share(c, gate)
			}
		})
	}
}

// Get takes a message for basic.get. The references in d are the caller's, and d.By
// is the Consumer of the operation that settles it.
func (n *Node) Get(q *Queue, noAck bool) (d queue.Delivery, left int, ok bool, err error) {
	for {
		var a ask
		if err = q.part.driver.do(q, q.part.driver.getting(noAck), &a); err != nil || !a.again { // again: in a hold of its own, for those who wait
			return a.delivery, a.left, a.ok, err
		}
	}
}

// Purge removes what is ready and returns how much that was (BR-7.10).
func (n *Node) Purge(q *Queue) (purged int, err error) {
	var a ask
	for o := new(purge); ; a.again = false {
		if err = q.part.driver.do(q, o, &a); err != nil || !a.again {
			return a.n, err
		}
	}
}

// Delete removes the queue, if check, called with the queue locked, has nothing
// against it. It returns what the queue held. The caller calls Deleted later.
//
// It kills nothing: what has become due since SettleDeaths goes as a message of the queue,
// and is counted so. What has died since, and was not routed yet, goes too (Counts.Unsettled).
// A replicated queue goes a little later: see Deleted.
func (n *Node) Delete(q *Queue, check func(Counts) error) (c Counts, err error) {
	return q.part.driver.accept(q, check)
}

// Deleted ends a queue that Delete has accepted, once the topology's log has its deletion,
// tells its consumers, and returns what it held then. before is what Delete has returned.
func (n *Node) Deleted(q *Queue, before Counts) Counts { return q.part.driver.finish(q, before) }

// Configure puts settings in force that a policy changed.
func (n *Node) Configure(q *Queue, s queue.Settings, dead DeadLetter) {
	q.part.driver.configure(q, s, dead)
}

// WhatIsThere is a cursor to browse what is in the queue now, and nothing that comes later.
func (n *Node) WhatIsThere(q *Queue) (c queue.Cursor, err error) {
	err = n.with(q, func(*hold) { c = q.m.WhatIsThere() })
	return c, err
}

// Glance shows entries after the cursor, at most limit, without what is in them: with the
// queue locked and nothing read. f must be quick.
func (n *Node) Glance(q *Queue, after queue.Cursor, limit int, f func(v queue.View) bool) (next queue.Cursor, done bool, err error) {
	err = n.with(q, func(*hold) { next, done = q.m.Browse(after, limit, f) })
	return next, done, err
}

// Browse shows entries after the cursor, at most limit, as they were at one moment;
// it changes nothing, and nothing is locked meanwhile. r and history are valid during
// the call of f only. A message that is lost on disk is set aside and passed over; another
// failure ends it, with next before it.
func (n *Node) Browse(q *Queue, after queue.Cursor, limit int, f func(v queue.View, r message.Record, history []byte) bool) (next queue.Cursor, done bool, err error) {
	var views []queue.View
	err = n.with(q, func(h *hold) {
		next, done = q.m.Browse(after, limit, func(v queue.View) bool {
			n.bodies.Retain(v.Body, 1)
			n.bodies.Retain(v.History, 1)
			views = append(views, v)
			return true
		})
	})
	defer func() {
		for i := range views {
			n.bodies.Release(views[i].Body)
			n.bodies.Release(views[i].History)
		}
	}()
	defer bug.End(n.Logger, "looking into a queue") // before it: the store has locks
	var w bodies.Window
	defer w.Free()
	for i := range views {
		v := &views[i]
		r, err := n.bodies.Read(v.Body, &w)
		if err != nil {
			if !v.Out && !n.setAside(&spoilt{q: q, id: v.ID, body: v.Body, size: v.Size, err: err}) {
				return after, false, fmt.Errorf("queue %q in vhost %q: %w", q.Name, q.VHost, err)
			}
			after = after.Behind(v.ID) // whoever it is out at will see
			continue
		}
		after = after.Behind(v.ID)
		if !f(*v, message.Record(r), n.historyBytes(v.History)) {
			return after, false, nil
		}
	}
	return next, done, err
}

func (n *Node) historyBytes(ref message.Ref) []byte { return deathstore.Bytes(n.bodies, ref) }

// Bodies is the store that deliveries refer to.
func (n *Node) Bodies() *bodies.Store { return n.bodies }

// Consumers are those of the queue, in the order they are served; none if it is gone.
func (n *Node) Consumers(q *Queue) (list []queue.Attached) {
	_ = n.with(q, func(*hold) { list = q.m.Attached() })
	queue.SortAttached(list)
	return list
}

// Distinguished are the tags of the consumers that have the queue to themselves: see queue.Machine.Distinguished.
func (n *Node) Distinguished(q *Queue) (exclusive, active string) {
	_ = n.with(q, func(*hold) { exclusive, active = q.m.Distinguished() })
	return exclusive, active
}

// Type is the queue's type.
func (q *Queue) Type() queue.Type { return q.config.Type }

// Config is what the queue was made with.
func (q *Queue) Config() queue.Config { return q.config }
