// Package broker has the operations that every edge calls: publish, declare, consume, settle, browse, and their
// administration. It connects the machines: topology and accounts behind one lock, queues in their partitions,
// the store and the journal below.
//
// Any number of goroutines may use a Broker. Locks are taken in this order: topology, then partitions, then those
// inside a connection. No goroutine waits for a disk while it holds the topology's lock: see ledger.go, which keeps
// the two logs in order.
package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/share"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// ErrLaterRelease is what OnFatal gets if the data directory was written by a later release.
var ErrLaterRelease = partition.ErrLaterRelease

// Options configure a Broker. The zero value of each field is a usable default.
type Options struct {
	Dir        string // data directory
	FS         vfs.FS // nil: the operating system's
	Logger     *slog.Logger
	NodeName   string
	Partitions int // 0: as many as processors
	Strict     bool
	Topology   topology.Options // Strict and ApsaraPriorities are set from the other options
	// LoopbackUsers may log in from loopback addresses only (BR-2.6); nil: guest.
	LoopbackUsers []string
	// AuthBackends are asked in this order who a client is; nil: only the node's own accounts.
	AuthBackends []AuthBackend
	AccountRules AccountRules // the rules at first; SetAccountRules changes them

	ConsumerTimeout time.Duration // 0: 30 minutes; negative: none (BR-9.16)
	MaxMessageSize  int           // bytes; 0: 16 MiB (BR-4.9)
	GlobalQos       bool          // basic.qos with global does what the standard says (BR-9.9)

	Events EventExchange

	ApsaraMQ ApsaraMQ // the zero value: DefaultApsaraMQ

	SettleExchange *bool // whether there is one; nil: unless strict

	CountNack         *bool // DL-11.5; nil: in all queues but strict ones
	ResetOnDeadLetter bool  // DL-11.6
	StripCC           bool  // DL-20.1
	TrustClientDeath  bool  // DL-7.10
	LostAndFound      bool  // dead letters that lead nowhere go to the queue LostAndFound, except those of strict queues
	// LostAndFoundStrict says that those of strict queues do, too.
	LostAndFoundStrict bool
	RetryHeld          time.Duration // DL-13.4; 0: 3 minutes if strict, otherwise 15 s

	Storage Storage

	StateHash bool         // for tests, see partition.Options
	now       func() int64 // for tests: the queues' clock, in milliseconds since 1970; nil: see clock
	// Wall, for tests, is what the system's clock shows at a moment, in milliseconds since 1970; nil: what it shows.
	Wall func(time.Time) int64

	// ResetClock lets the queues' clock begin at the wall clock, even if it was ahead of it before: see clock.
	ResetClock bool
	catchUp    func(moment int64)
	lag        func() time.Duration

	Short bool // the disk has little room, see ShortOfRoom

	Failpoint func(name string) // see Failpoints here and in partition, journal and bodyfile
	OnFatal   func(error)       // the disk failed: the process must end; called once
}

// nodeID is the node's number in the groups of replicated queues. It is the only node so far.
const nodeID = 1

// maxUncommitted is more than publishers may propose, so that settlements and moves are never refused.
const maxUncommitted = 1 << 30

// Storage configures how a node uses memory and disk for messages. A field that is 0 has the default of
// partition.Options or journal.Options.
type Storage struct {
	IndexBudget          int64         // bytes of memory for the index of queues
	CacheBudget          int64         // bytes of memory for messages
	HotPages             int           // pages of 256 messages at each end of a queue that stay in memory
	CheckpointBytes      int64         // a checkpoint follows after this many bytes of the journal
	CheckpointOperations int64         // and after this many operations in the journal
	CheckpointEvery      time.Duration // and after this time, if anything was logged
	SegmentBytes         int64         // of the journal's files
	CompactBelow         int64         // files with less than this percentage of their messages in use are compacted
}

// verifiedHolds is how long a correct password need not be hashed again.
const verifiedHolds = 30 * time.Second

// recentHolds is how long a client with a correct password goes before guesses in a flood.
const recentHolds = time.Hour

// Broker is one node.
type Broker struct {
	Options
	settles bool // there is a SettleExchange
	started time.Time

	topo     held.RWMutex // guards declared, and so state and users
	declared *declare.State
	state    *topology.State // that of declared
	users    *auth.Users     // likewise
	revision atomic.Uint64   // raised by every change of either
	onPause  func()          // LetIn: see routing.Message.Pause

	ledger   ledger     // changes of declarations on their way to the store
	policies held.Mutex // held while changed policies are put in force

	exchangeStats held.Mutex // guards Runtime of exchanges
	pairs         pairs      // of exchanges and queues

	data    *datadir.Directory
	bodies  *bodies.Store // that of data
	node    *partition.Node
	serial  atomic.Uint64
	routers sync.Pool // *topology.Router

	connected atomic.Uint64 // the number of the last Connection: see Connection.Owner

	conns    held.Mutex // guards what follows
	open     map[*Connection]struct{}
	ofUser   map[string]*usage // by user
	ofVHost  map[message.VHost]int64
	channels int64 // of all of them
	closing  bool

	rules    atomic.Pointer[AccountRules]
	throttle *admission.Throttle
	verified *admission.Verified       // passwords that were right a moment ago, by stored hash
	recent   *admission.Verified       // the same for every backend; only for priority in a flood
	hashing  *share.Turns[hashingLine] // limits how many slow hashes run at a time
	// life ends when the node stops. Backends are asked within it.
	life    context.Context
	endLife context.CancelFunc

	replies  replies
	cycles   seen // of dead letters, that were logged
	missing  seen // dead-letter exchanges that do not exist, likewise
	limited  seen // queues without one that drop messages by their delivery limit, likewise
	lost     seen // queues whose dead letters go to LostAndFound, and why, likewise
	outdated seen // queues that were declared with arguments that were changed since, likewise
	unmade   seen // queues for dead letters that could not be made, likewise

	last chan struct{} // closed when the last checkpoint has ended; nil: there is none

	makings    *makings
	alarms     alarms
	departures departures
	intake     intake
	deleted    deletedStats

	traced atomic.Pointer[traceTo] // nil: nothing is traced
	traces *notices                // copies of traced messages

	onUnroutable   atomic.Pointer[func()] // see OnUnroutable; nil: nobody wants to know
	toldUnroutable uint64                 // of Totals.UnroutableDropped, by TakeUnroutable

	eventful atomic.Bool // somebody listens to events: something is bound to their exchange
	events   *notices
	ear      atomic.Pointer[Ear] // hears events too; nil: none

	vhostEnds     []func(message.VHost, Doer)           // see OnVHostEnd; fixed once the node serves
	onDeadLetters atomic.Pointer[func(*topology.Queue)] // see OnDeadLetters; nil: nobody wants to know
	rightsChange  func()                                // see OnRightsChange; guarded by topo
	endedVHosts   []endedVHost                          // deleted by the change that is being made; guarded by topo

	parameters map[string]ParameterHandler // by component; fixed once the node serves
	Totals     Totals
}

// Open opens the data directory, or makes one, and recovers every queue.
//
// If it finds damage, it changes nothing, and the error says what to do.
func Open(o Options) (*Broker, error) {
	b, err := openNode(o, opening{})
	if err != nil {
		return nil, whatToDo(o.Dir, err)
	}
	return b, nil
}

// openNode does the work of Open and OpenStopped.
func openNode(o Options, how opening) (b *Broker, err error) {
	if o.FS == nil {
		o.FS = store.OwnerOnly
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.NodeName == "" {
		o.NodeName = "bartleby@localhost"
	}
	if o.Partitions == 0 {
		o.Partitions = runtime.GOMAXPROCS(0)
	}
	if o.MaxMessageSize == 0 {
		o.MaxMessageSize = 16 << 20
	}
	if o.ConsumerTimeout == 0 {
		o.ConsumerTimeout = 30 * time.Minute
	}
	if o.RetryHeld == 0 {
		o.RetryHeld = 15 * time.Second
		if o.Strict {
			o.RetryHeld = 3 * time.Minute
		}
	}
	var found atomic.Int64 // the latest moment on disk, with ResetClock
	if o.now == nil {
		c := newClock(o.Wall)
		o.now, o.lag, o.catchUp = c.now, c.lag, c.catchUp
		if o.ResetClock {
			o.catchUp = func(at int64) {
				raise(&found, at)
				c.catchUpSome(at)
			}
		}
	}
	if o.LoopbackUsers == nil {
		o.LoopbackUsers = []string{"guest"}
	}
	if o.ApsaraMQ == (ApsaraMQ{}) {
		o.ApsaraMQ = DefaultApsaraMQ()
	}
	if tell := o.OnFatal; tell != nil {
		o.OnFatal = func(err error) { tell(whatToDo(o.Dir, err)) }
	}
	o.OnFatal = once(o.OnFatal)
	o.Topology.Strict, o.Topology.ApsaraPriorities = o.Strict, o.ApsaraMQ.Priorities
	b = &Broker{
		Options: o, settles: !o.Strict, started: time.Now(), open: map[*Connection]struct{}{}, ofUser: map[string]*usage{}, ofVHost: map[message.VHost]int64{},
		throttle: admission.NewThrottle(o.AccountRules.Throttle), verified: admission.NewVerified(verifiedHolds), recent: admission.NewVerified(recentHolds), hashing: share.NewTurns[hashingLine](runtime.GOMAXPROCS(0)),
	}
	if o.SettleExchange != nil {
		b.settles = *o.SettleExchange
	}
	b.onPause = b.LetIn
	b.SetAccountRules(o.AccountRules)
	held.Name(&b.topo, "the topology")
	held.Name(&b.policies, "the policies")
	held.Name(&b.exchangeStats, "the statistics of exchanges")
	held.Name(&b.pairs.mu, "the counts of pairs")
	held.Name(&b.conns, "the connections")
	held.Name(&b.ledger.mu, "the ledger")
	b.ledger.turn.L = &b.ledger.mu
	b.life, b.endLife = context.WithCancel(context.Background())
	b.traces = newNotices(b, "copies of traced messages", tracingBytes, true)
	b.makings = newMakings(b)
	b.events = newNotices(b, "events", eventBytes, false)
	b.routers.New = func() any { return new(topology.Router) }
	b.serial.Store(uint64(time.Now().UnixMilli()) << message.SerialBits)
	data, err := datadir.Open(datadir.Options{
		FS: o.FS, Dir: o.Dir, SegmentBytes: o.Storage.SegmentBytes, Logger: o.Logger, Failpoint: o.Failpoint, OnFatal: o.OnFatal, Short: o.Short,
		Stopped: how.stopped, Incomplete: how.Incomplete,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = data.Close()
		}
	}()
	b.data, b.bodies = data, data.Bodies
	if err = b.loadTopology(); err != nil {
		return nil, err
	}
	if err = data.OpenMessages(); err != nil {
		return nil, err
	}
	driver, err := cluster.New(cluster.Options{
		ID: nodeID, Journal: data.Journal, Logger: o.Logger, OnFatal: o.OnFatal, Failpoint: o.Failpoint, MaxUncommitted: maxUncommitted,
	})
	if err != nil {
		return nil, err
	}
	b.node = partition.New(partition.Options{
		Cluster: driver, NodeID: nodeID, Origin: partition.NewOrigin(nodeID, o.now()),
		Partitions: o.Partitions, Journal: data.Journal, Bodies: data.Bodies, Router: deadRouter{b}, Refuge: refuge{b}, Logger: o.Logger,
		Now: o.now, CatchUp: o.catchUp, Failpoint: o.Failpoint, StateHash: o.StateHash, OnFatal: o.OnFatal, KeepSenseless: data.KeepSenseless, OnBreaker: b.breakerChanged,
		Index: data.Index, Keep: data.Keep, Aside: data.Aside,
		DeadLettering: partition.DeadLettering{
			ResetCounts: o.ResetOnDeadLetter, StripCC: o.StripCC, TrustHistories: o.TrustClientDeath, RetryEvery: o.RetryHeld,
		},
		Budget: partition.Budget{Index: o.Storage.IndexBudget, Bodies: o.Storage.CacheBudget, HotPages: o.Storage.HotPages},
		Checkpointing: partition.Checkpointing{
			Bytes: o.Storage.CheckpointBytes, Operations: o.Storage.CheckpointOperations, Every: o.Storage.CheckpointEvery,
			CompactBelow: o.Storage.CompactBelow, Short: o.Short, NewGeneration: data.SetGeneration, Removed: b.awaitRemovals,
		},
		Repair: partition.Repair{Damaged: how.stopped, KeepUndeclared: how.KeepUndeclared, Salvage: how.Salvage},
		Known: func(noted store.Reach, highest uint64) error {
			return b.checkDeclarations(noted, highest, how.KeepUndeclared)
		},
	})
	for _, v := range b.state.VHosts() {
		for _, q := range v.Queues() {
			b.create(q)
		}
		v.EachWaiting(b.create)
	}
	if err = b.node.Recover(); err != nil {
		return nil, err
	}
	if o.ResetClock {
		if by := moment.Duration(found.Load()-o.now(), time.Millisecond); by > apart*time.Millisecond {
			o.Logger.Info("the clock of this node's queues was set back to the system's", "by", by)
		} else {
			o.Logger.Info("the clock of this node's queues was less than a minute ahead of the system's: there was nothing to set back")
		}
	}
	b.serial.Store(max(b.serial.Load(), uint64(o.now())<<message.SerialBits)) // no number is given twice
	if !how.stopped {
		if err = b.change(func() error { b.state.Reserve(); b.buryGhosts(); return nil }); err != nil {
			return nil, err
		}
		if err = b.ensureEventExchange(); err != nil {
			return nil, err
		}
		b.node.Start()
		if o.ResetClock { // or the next start would go on where the clock was
			if err = b.node.CheckpointCaughtUp(); err != nil {
				return nil, err
			}
		}
		b.traces.start()
		b.events.start()
	}
	return b, nil
}

// once makes f report only the first failure. A goroutine that fails later waits until f has returned; if f ends the
// process, it never does.
func once(f func(error)) func(error) {
	var first sync.Once
	return func(err error) {
		first.Do(func() {
			if f != nil {
				f(err)
			}
		})
	}
}

func (b *Broker) loadTopology() error {
	pairs, err := datadir.Declarations(b.data.State)
	if err != nil {
		return err
	}
	if b.state, err = topology.Load(b.Options.Topology, mutation.All(pairs)); err != nil {
		return err
	}
	if b.users, err = auth.Load(mutation.All(pairs), b.LoopbackUsers...); err != nil {
		return err
	}
	b.declared = &declare.State{Topology: b.state, Users: b.users, Strict: b.Strict}
	return nil
}

// BackUp copies the data directory to dir, which must not exist, while clients go on. A node started on the copy has
// everything that was confirmed before the call, and some of what came later. dir appears when the copy is whole and
// on disk. On the same file system most of it is links, which take no space. A copy to another file system takes
// long, without checkpoints meanwhile. BackUp ends when ctx does, and leaves nothing behind then.
func (b *Broker) BackUp(ctx context.Context, dir string) (datadir.Backup, error) {
	return b.data.BackUp(ctx, dir, b.NodeName, func(part string) error { return b.copyTo(ctx, part) })
}

func (b *Broker) copyTo(ctx context.Context, part string) error {
	log := filepath.Join(part, datadir.JournalDir)
	if err := journal.MakeDirectory(b.FS, log); err != nil {
		return err
	}
	var declared *store.Snapshot
	err := b.node.CopyTo(ctx, partition.Copy{
		Journal: log, Keep: filepath.Join(part, datadir.KeepDir), Index: filepath.Join(part, datadir.IndexDir),
		End: func() (end journal.Pos) {
			// Both logs at one moment between two changes of declarations: the copy has the queue that a message has
			// moved to, and everything that left a deleted queue.
			b.between(func() { end, declared = b.data.Journal.Committed(), b.data.State.Snapshot() })
			return end
		},
	})
	if declared != nil {
		if err == nil {
			err = b.data.CopyState(declared, part)
		}
		err = errors.Join(err, declared.Close())
	}
	return err
}

// CheckpointWithin writes a checkpoint, as the last thing before Close. When ctx ends first, Close cuts it short: then the
// journal has everything, as after a kill.
func (b *Broker) CheckpointWithin(ctx context.Context) {
	b.last = make(chan struct{})
	go bug.Guarded(b.Logger, "the last checkpoint", func() { // Close waits for it
		defer close(b.last)
		if err := b.node.Checkpoint(); err != nil && !partition.Stopped(err) {
			b.Logger.Error("no checkpoint at the stop", "error", err)
		}
	})()
	select {
	case <-b.last:
	case <-ctx.Done():
	}
}

// Close stops the node in order: workers end, the disk has everything, and last the memory of bodies is released.
// REQUIRES: nobody uses the broker any longer. Sessions, shovels and HTTP requests have ended; the owner of the
// listeners has told the connections.
func (b *Broker) Close() error {
	b.endLife()
	b.traces.stop()
	b.events.stop()
	b.makings.stop()
	b.node.Stop()
	if b.last != nil {
		<-b.last
	}
	return b.data.Close()
}

// change runs f with the topology and the accounts locked for writing. When it returns, the store has what f has
// changed and what it has read. f must not wait for anything. If f fails with topology.ErrUnstored it must have
// changed nothing; it runs again when the store has everything.
func (b *Broker) change(f func() error) error {
	for {
		ticket, owes, ended, err := b.mutating(f)
		failed := b.AwaitStored(ticket)
		if failed == nil {
			b.dropDelayed(ended)
		}
		if failed == nil && owes {
			failed = b.sweep(ticket)
		}
		if failed != nil {
			return failed
		}
		if !errors.Is(err, topology.ErrUnstored) {
			return err
		}
		if errors.Is(err, topology.ErrLeaving) {
			if failed := b.sweep(0); failed != nil {
				return failed
			}
		}
	}
}

// changing is change, after all permissions that f asks for are known.
func (c *Connection) changing(f func() error) error {
	return c.decided(func() error { return c.b.change(f) })
}

// mutating runs f. It returns the ticket to wait for, whether the change leaves bindings to sweep, and the queues of
// delaying exchanges that the change has deleted.
func (b *Broker) mutating(f func() error) (ticket uint64, owes bool, ended []endedQueue, err error) {
	b.topo.Lock()
	defer b.topo.Unlock()
	rights := b.users.Revision()
	err = f()
	if b.rightsChange != nil && b.users.Revision() != rights {
		b.rightsChange()
	}
	ended = b.endDelayed()
	b.revision.Add(1)
	b.retap()
	changes := append(b.state.TakeChanges(), b.users.TakeChanges()...)
	if owes = postpones(changes); owes {
		b.state.Leave(topology.Ends(changes))
	}
	return b.issue(changes, b.state.TakeMade()), owes, ended, err
}

// LetIn lets goroutines that wait to change the topology have it. What the caller has seen may be gone then. REQUIRES:
// the caller is within Read or holds topo for reading, and holds nothing else.
func (b *Broker) LetIn() {
	b.topo.RUnlock()
	b.topo.RLock()
}

// create gives a declared queue its place in a partition. REQUIRES: topo is held for writing, or no other goroutine
// runs yet.
func (b *Broker) create(q *topology.Queue) {
	rt := &partition.Queue{Incarnation: q.Incarnation, VHost: q.VHost, Name: string(q.Name), Durable: q.Durable, Info: q, Group: q.Group}
	config := queue.Config{Type: queue.Classic, Strict: q.Strict, Durable: q.Durable, MaxPriority: -1}
	if q.Type == topology.Quorum {
		config.Type = queue.Quorum
	}
	if e := q.Effective; e != nil {
		config.SingleActive = e.SingleActiveConsumer
		if e.MaxPriority != nil {
			config.MaxPriority = int(*e.MaxPriority)
		}
	}
	if q.Delays != nil {
		config.Strict, config.Delays = false, true // every moment is exact
		rt.Released = b.released(q.Delays)
	}
	settings, dead := b.settings(q)
	q.Runtime = rt // before a timer could delete the queue
	b.node.Create(rt, config, settings, dead)
}

func runtimeOf(q *topology.Queue) *partition.Queue { return q.Runtime.(*partition.Queue) }

// nextSerial numbers a message that comes now, by the queues' clock: parked letters are dated by it. The time in the number may run ahead of the clock at more than a million messages a
// millisecond. It never goes back.
func (b *Broker) nextSerial(now int64) message.Serial {
	for {
		last := b.serial.Load()
		next := max(last+1, uint64(now)<<message.SerialBits)
		if b.serial.CompareAndSwap(last, next) {
			return message.Serial(next)
		}
	}
}

// RandomName is prefix and 22 URL-safe characters that cannot be guessed (BR-7.2).
func RandomName(prefix string) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(id[:])
}

// seen remembers what was logged once, up to a limit.
type seen struct {
	mu sync.Mutex
	m  map[string]bool
}

const seenLimit = 1000

// first says whether key is new.
func (s *seen) first(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[key] || len(s.m) >= seenLimit {
		return false
	}
	if s.m == nil {
		s.m = map[string]bool{}
	}
	s.m[key] = true
	return true
}

// Node returns the node's queues.
func (b *Broker) Node() *partition.Node { return b.node }

// Bodies returns the store with the bytes of deliveries.
func (b *Broker) Bodies() *bodies.Store { return b.bodies }

// ClockAhead is how far the queues' clock is ahead of the system's, after that stepped back. Dates that come from queues are wrong by as
// much; deadlines come within their time.
func (b *Broker) ClockAhead() time.Duration {
	if b.lag == nil {
		return 0
	}
	return max(0, b.lag())
}

// Uptime is how long the node has run.
func (b *Broker) Uptime() time.Duration { return time.Since(b.started) }

// Now is the queues' clock in milliseconds since 1970: messages died by it, so their ages are told by it. It may be ahead of the system's.
func (b *Broker) Now() int64 { return b.now() }

// Revision rises with each change of topology and accounts. What was found at one revision holds while it does not
// change.
func (b *Broker) Revision() uint64 { return b.revision.Load() }
