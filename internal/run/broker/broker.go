// Package broker is what every edge calls: publish, declare, consume, settle,
// browse, replay, and the administration of all that. It ties the machines
// together: topology and accounts behind one lock, queues in their partitions,
// the store and the journal below.
//
// A Broker may be used by any number of goroutines. Lock order: topology, then
// partitions, then what is inside a connection. The topology's lock is not held
// while a disk is waited for: see ledger.go, which keeps the two logs in order.
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
	"bartleby.mq/internal/core/message"
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
	"bartleby.mq/internal/safety/held"
)

// Options configure a Broker. The zero value of each field is a usable default.
type Options struct {
	Dir        string // data directory
	FS         vfs.FS // nil: the operating system's
	Logger     *slog.Logger
	NodeName   string
	Partitions int // 0: one for each processor
	Strict     bool
	Topology   topology.Options // Strict and ApsaraPriorities are taken from the others
	// LoopbackUsers may log in from loopback addresses only (BR-2.6); nil: guest.
	LoopbackUsers []string
	// AuthBackends are asked in turn who a client is; nil: the node's own accounts only.
	AuthBackends []AuthBackend
	AccountRules AccountRules // as they are at first

	ConsumerTimeout time.Duration // 0: 30 minutes; negative: none (BR-9.16)
	MaxMessageSize  int           // bytes; 0: 16 MiB (BR-4.9)
	GlobalQos       bool          // whether basic.qos global is what it says (BR-9.9)

	ApsaraMQ ApsaraMQ // the zero value: DefaultApsaraMQ

	CountNack         bool          // DL-11.5
	ResetOnDeadLetter bool          // DL-11.6
	StripCC           bool          // DL-20.1
	TrustClientDeath  bool          // DL-7.10
	RetryHeld         time.Duration // DL-13.4; 0: 3 minutes if strict, else 15 s

	Storage Storage

	StateHash bool         // for tests, see partition.Options
	now       func() int64 // for tests: milliseconds since 1970, for queues; nil: the system's clock

	Short bool // there is little room on the disk, see ShortOfRoom

	Failpoint func(name string) // see Failpoints, and those of partition, journal and bodyfile
	OnFatal   func(error)       // the disk failed: the process must end; called once
}

// nodeID is the node's number in the groups of replicated queues, the only one there is yet.
const nodeID = 1

// maxUncommitted is more than publishers are let propose: settlements and moves are
// never refused.
const maxUncommitted = 1 << 30

// Storage is how a node uses memory and disk for messages. What is 0 has the
// default of partition.Options and journal.Options.
type Storage struct {
	IndexBudget          int64         // bytes of memory for the index of queues
	CacheBudget          int64         // bytes of memory for messages
	HotPages             int           // pages of 256 messages at each end of a queue that stay in memory
	CheckpointBytes      int64         // of the journal, after which a checkpoint is written
	CheckpointOperations int64         // in the journal, after which one is
	CheckpointEvery      time.Duration // the time after which one is written if anything was logged
	SegmentBytes         int64         // of the journal's files
	CompactBelow         int64         // percent of a file's messages that are left, below which they are moved
}

// verifiedHolds is how long a password that was right need not be hashed again.
const verifiedHolds = 30 * time.Second

// recentHolds is how long a password that was right goes before guesses.
const recentHolds = time.Hour

// Broker is one node.
type Broker struct {
	Options
	started time.Time

	topo     held.RWMutex // guards state and users
	state    *topology.State
	users    *auth.Users
	revision atomic.Uint64 // raised by every change of either
	onPause  func()        // letIn: see routing.Message.Pause

	ledger   ledger     // what was declared and is on its way to the store
	policies held.Mutex // held while queues and exchanges are made to go by changed policies

	exchangeStats held.Mutex // guards Runtime of exchanges

	data    *datadir.Directory
	bodies  *bodies.Store // data's
	node    *partition.Node
	serial  atomic.Uint64
	routers sync.Pool // *topology.Router

	connected atomic.Uint64 // numbers Connections: see Connection.Owner

	conns    held.Mutex // guards what follows
	open     map[*Connection]struct{}
	ofUser   map[string]*usage // those of each user
	ofVHost  map[message.VHost]int64
	channels int64 // of all of them
	closing  bool

	rules    atomic.Pointer[AccountRules]
	throttle *admission.Throttle
	verified *admission.Verified // by which hashes
	recent   *admission.Verified // whatever knows the users; only to be asked sooner in a flood
	hashing  *admission.Turns    // of the slow hashes
	// life ends when the node stops: questions to backends are asked in it.
	life    context.Context
	endLife context.CancelFunc

	replies replies
	cycles  seen
	alarms  alarms
	intake  intake
	deleted deletedStats

	parameters map[string]ParameterHandler // by component; static once the node serves
	Totals     Totals
}

// Open opens the data directory, or makes it, and brings every queue back.
//
// Where it meets damage it changes nothing, and the error says what to do.
func Open(o Options) (*Broker, error) {
	b, err := openNode(o, opening{})
	if err != nil {
		return nil, whatToDo(o.Dir, err)
	}
	return b, nil
}

// openNode is Open, or OpenStopped.
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
	if o.now == nil {
		o.now = func() int64 { return time.Now().UnixMilli() }
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
		Options: o, started: time.Now(), open: map[*Connection]struct{}{}, ofUser: map[string]*usage{}, ofVHost: map[message.VHost]int64{},
		throttle: admission.NewThrottle(o.AccountRules.Throttle), verified: admission.NewVerified(verifiedHolds), recent: admission.NewVerified(recentHolds), hashing: admission.NewTurns(runtime.GOMAXPROCS(0)),
	}
	b.onPause = b.letIn
	b.SetAccountRules(o.AccountRules)
	held.Name(&b.topo, "the topology")
	held.Name(&b.policies, "the policies")
	held.Name(&b.exchangeStats, "the statistics of exchanges")
	held.Name(&b.conns, "the connections")
	held.Name(&b.ledger.mu, "the ledger")
	b.ledger.turn.L = &b.ledger.mu
	b.life, b.endLife = context.WithCancel(context.Background())
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
		Partitions: o.Partitions, Journal: data.Journal, Bodies: data.Bodies, Router: deadRouter{b}, Logger: o.Logger,
		Now: o.now, Failpoint: o.Failpoint, StateHash: o.StateHash, OnFatal: o.OnFatal, KeepSenseless: data.KeepSenseless,
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
	}
	if err = b.node.Recover(); err != nil {
		return nil, err
	}
	if !how.stopped {
		if err = b.change(func() error { b.state.Reserve(); b.buryGhosts(); return nil }); err != nil {
			return nil, err
		}
		b.node.Start()
	}
	return b, nil
}

// once makes f tell of the first failure only. Whoever fails next waits until f has
// returned, which it does not if it ends the process.
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
	b.users, err = auth.Load(mutation.All(pairs), b.LoopbackUsers...)
	return err
}

// BackUp copies the data directory to dir, which must not exist, while clients go
// on; a node that is started on the copy has all that was confirmed before the call, and
// some of what came after. dir appears when the copy is whole and on disk. On
// the same file system most of it is links, which cost no room. To another it takes long, with no
// checkpoint meanwhile: it ends when ctx does, as that of a request when the node stops, and leaves nothing behind.
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
			// Both logs at one moment between two changes of declarations: a message that has
			// moved finds the queue it moved to, and of a queue that is gone all that left it is there.
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

// Close stops the node in order: connections are told by whoever owns the
// listeners before; then the workers end, and the disk has everything. Last goes the memory
// of all bodies. REQUIRES: nobody else uses the broker any more: sessions, shovels and requests
// over HTTP have ended.
func (b *Broker) Close() error {
	b.endLife()
	b.node.Stop()
	return b.data.Close()
}

// change runs f with the topology and the accounts locked for writing. When it returns
// the store has what f changed and what it found. f must not wait for anything; if it
// fails with topology.ErrUnstored it has changed nothing, and is run again once the store
// has what there is.
func (b *Broker) change(f func() error) error {
	for {
		ticket, owes, err := b.mutating(f)
		failed := b.await(ticket)
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

// changing changes declarations once all permissions that f asks for are known.
func (c *Connection) changing(f func() error) error {
	return c.decided(func() error { return c.b.change(f) })
}

// mutating runs f and returns what is to be waited for, and whether the change leaves something to be swept.
func (b *Broker) mutating(f func() error) (ticket uint64, owes bool, err error) {
	b.topo.Lock()
	defer b.topo.Unlock()
	err = f()
	b.revision.Add(1)
	changes := append(b.state.TakeChanges(), b.users.TakeChanges()...)
	if owes = postpones(changes); owes {
		b.state.Leave(topology.Ends(changes))
	}
	return b.issue(changes, b.state.TakeMade()), owes, err
}

// letIn lets those have the topology who wait to change it. REQUIRES: topo is held for reading, and nothing else.
func (b *Broker) letIn() {
	b.topo.RUnlock()
	b.topo.RLock()
}

// create gives a declared queue its place in a partition. REQUIRES: topo is held
// for writing, or nobody else is there yet.
func (b *Broker) create(q *topology.Queue) {
	rt := &partition.Queue{Incarnation: q.Incarnation, VHost: q.VHost, Name: string(q.Name), Durable: q.Durable, Info: q, Group: q.Group}
	config := queue.Config{Type: queue.Classic, Strict: q.Strict, Durable: q.Durable, MaxPriority: -1, CountNack: b.CountNack}
	if q.Type == topology.Quorum {
		config.Type = queue.Quorum
	}
	if e := q.Effective; e != nil {
		config.SingleActive = e.SingleActiveConsumer
		if e.MaxPriority != nil {
			config.MaxPriority = int(*e.MaxPriority)
		}
	}
	settings, dead := b.settings(q)
	q.Runtime = rt // before there is a timer that could delete the queue
	b.node.Create(rt, config, settings, dead)
}

func runtimeOf(q *topology.Queue) *partition.Queue { return q.Runtime.(*partition.Queue) }

// nextSerial numbers a message. The time in it may run ahead of the clock under
// more than a million messages a millisecond, never back.
func (b *Broker) nextSerial() message.Serial {
	for {
		last := b.serial.Load()
		next := max(last+1, uint64(time.Now().UnixMilli())<<message.SerialBits)
		if b.serial.CompareAndSwap(last, next) {
			return message.Serial(next)
		}
	}
}

// RandomName is prefix and 22 URL-safe characters that nobody can guess (BR-7.2).
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

// first says whether key was not seen before.
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

// Node gives access to the queues as they run.
func (b *Broker) Node() *partition.Node { return b.node }

// Bodies is where deliveries find their bytes.
func (b *Broker) Bodies() *bodies.Store { return b.bodies }

// Uptime is how long the node has run.
func (b *Broker) Uptime() time.Duration { return time.Since(b.started) }

// Revision is raised by each change of topology and accounts: what was found
// out under one revision holds as long as it does not change.
func (b *Broker) Revision() uint64 { return b.revision.Load() }
