// Package partition runs queues. A partition is a mutex around the machines of
// many queues: whoever has work for one locks it, applies a batch, and on the
// way out hands what happened to the journal as one frame. A node has a few
// partitions and one journal; a move between queues of two partitions locks both,
// in order, and is still one frame.
//
// The package knows how outcomes are written and redone, when queues must be
// looked at again, and how a death becomes a move. It does not know connections
// or exchanges; it calls a Router for the one and Subscribers for the other.
//
// Goroutines: one worker for each partition, which owns no state and does what
// nobody waits for: deadlines, and the later slices of what is too long for one hold.
package partition

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/bodies"
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// sliceLimit is how many entries are handled under a lock at once.
const sliceLimit = 512

// Router finds where dead letters go. Its methods are called with no partition locked.
type Router interface {
	// RouteDead appends the queues that the exchange routes the dead letter to.
	// exists is false if there is no such exchange. byKeys is true if the answer
	// depends on nothing but the exchange and the keys.
	RouteDead(q *Queue, exchange string, keys []string, r message.Record, h *deadletter.History, out []*Queue) (targets []*Queue, exists, byKeys bool)
	// QueueUnused is told that a queue's x-expires has passed.
	QueueUnused(q *Queue)
	// Dropped is told of a dead message that went nowhere, with a partition
	// locked. It must not block and not keep r or h.
	Dropped(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome, r message.Record, h *deadletter.History)
}

// Options configure a Node.
type Options struct {
	Partitions int
	Journal    *journal.Journal
	Bodies     *bodies.Store
	Router     Router
	Logger     *slog.Logger
	Now        func() int64      // milliseconds since 1970, rounded down
	Failpoint  func(name string) // called at the steps in Failpoints; nil: nothing. For tests

	ResetOnDeadLetter bool          // delivery counts do not travel (DL-11.6)
	StripCC           bool          // DL-20.1
	TrustClientDeath  bool          // histories that clients send along are continued (DL-7.10)
	RetryHeld         time.Duration // how often held deaths are tried again (DL-13.4)
	CompactBytes      int64         // journal bytes beyond which old segments are rewritten; 0 = 256 MiB
}

// Node is all partitions of a process.
type Node struct {
	Options
	bodies  *bodies.Store
	parts   []*Partition
	seed    maphash.Seed
	holds   sync.Pool
	routers sync.Pool

	compacting atomic.Uint64 // records before this location are written anew by moves; 0 = no compaction
	compactAt  atomic.Int64  // journal bytes at which the next compaction begins
	deaths     [2][3][5]atomic.Uint64
	confirmed  atomic.Uint64 // at-least-once deaths taken by all their targets

	stop chan struct{}
	done sync.WaitGroup
}

// New returns a node without queues. Queues are created, then Recover is
// called, then Start.
func New(o Options) *Node {
	n := &Node{Options: o, bodies: o.Bodies, seed: maphash.MakeSeed(), stop: make(chan struct{})}
	if n.RetryHeld == 0 {
		n.RetryHeld = 3 * time.Minute
	}
	if n.CompactBytes == 0 {
		n.CompactBytes = 256 << 20
	}
	n.compactAt.Store(n.CompactBytes)
	n.holds.New = func() any { return new(hold) }
	for i := range max(1, o.Partitions) {
		n.parts = append(n.parts, &Partition{
			node: n, index: i, queues: map[uint64]*Queue{}, wakec: make(chan struct{}, 1),
		})
	}
	return n
}

// Start begins the workers.
func (n *Node) Start() {
	for _, p := range n.parts {
		n.done.Go(p.work)
	}
	n.done.Go(n.housekeep)
}

// Stop ends the workers. What is in the queues stays as it is.
func (n *Node) Stop() {
	close(n.stop)
	n.done.Wait()
}

// Partition is one of the node's parts: a mutex and the queues it guards.
type Partition struct {
	node  *Node
	index int
	wakec chan struct{} // for the worker: there is something to do

	mu      sync.Mutex
	hold    *hold // of whoever holds mu
	pages   queue.Pages
	queues  map[uint64]*Queue
	timers  []*Queue // heap by Queue.due
	alarm   int64    // when the worker will look by itself
	later   []*Queue // queues whose deaths the worker goes on routing
	buried  []*machineGrave
	longest int // entries handled in the largest hold, for a test
}

// machineGrave is the rest of a queue that was purged or deleted.
type machineGrave struct {
	q *Queue
	m *queue.Machine
}

// Create makes a queue. Its dead letters go where dead says.
func (n *Node) Create(q *Queue, config queue.Config, settings queue.Settings, dead DeadLetter) {
	var h maphash.Hash
	h.SetSeed(n.seed)
	h.WriteString(string(q.VHost))
	h.WriteByte(0)
	h.WriteString(q.Name)
	p := n.parts[h.Sum64()%uint64(len(n.parts))]
	q.part, q.dead, q.due = p, dead, never
	hd := n.lock(p)
	q.m = queue.New(config, settings, &p.pages, q, hd.now)
	p.queues[q.Incarnation] = q
	hd.touch(q)
	n.unlock(hd)
}

const never = 1<<63 - 1

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

// Counts shows the queue as it is now; what is due has expired (DL-8.6).
func (n *Node) Counts(q *Queue) (c Counts) {
	_ = n.with(q, func(h *hold) {
		q.m.Expire(h.now)
		c = q.counts(h.now)
	})
	return c
}

// RangeLevels calls f for each priority level of the queue with ready messages, lowest first.
func (n *Node) RangeLevels(q *Queue, f func(level, ready int)) {
	_ = n.with(q, func(*hold) { q.m.RangeLevels(f) })
}

// Touch notes a use of the queue (DL-8.12) and returns its counts.
func (n *Node) Touch(q *Queue) (c Counts) {
	_ = n.with(q, func(h *hold) {
		q.m.Touch(h.now)
		q.m.Expire(h.now)
		c = q.counts(h.now)
	})
	return c
}

// Attach adds a consumer; false means that exclusive use forbids it (BR-9.3).
// attached is called with the queue locked before the first delivery.
func (n *Node) Attach(q *Queue, c *queue.Consumer, attached func()) (ok bool, err error) {
	err = n.with(q, func(h *hold) {
		if ok = q.m.Attach(h.now, c); ok {
			attached()
			q.m.Pump(h.now, sliceLimit)
		}
	})
	return ok, err
}

// Detach removes a consumer and returns how many are left.
func (n *Node) Detach(q *Queue, c *queue.Consumer, detached func()) (left int, was bool) {
	_ = n.with(q, func(h *hold) {
		if was = q.m.Detach(h.now, c); was && detached != nil {
			detached()
		}
		q.m.Pump(h.now, sliceLimit) // the next single active consumer
		left = q.m.Consumers()
	})
	return left, was
}

// Resume lets a consumer that was full have more.
func (n *Node) Resume(q *Queue, c *queue.Consumer) {
	_ = n.with(q, func(h *hold) {
		q.m.Resume(c)
		q.m.Pump(h.now, sliceLimit)
	})
}

// Pump looks again whether the queue can deliver.
func (n *Node) Pump(q *Queue) {
	_ = n.with(q, func(h *hold) { q.m.Pump(h.now, sliceLimit) })
}

// Get takes a message for basic.get. The references in d are the caller's.
func (n *Node) Get(q *Queue, noAck bool) (d queue.Delivery, left int, ok bool, err error) {
	err = n.with(q, func(h *hold) {
		if d, ok = q.m.Get(h.now, noAck); !ok {
			q.stats.GetNone++
			return
		}
		switch {
		case !noAck:
			q.stats.Got++
			n.bodies.Retain(d.Body, 1)
			n.bodies.Retain(d.History, 1)
			if d.Logged {
				h.frame.deliver(q.Incarnation, d.ID)
			}
		default:
			q.stats.GotNoAck++
			if d.Logged {
				h.frame.settle(q.Incarnation, d.ID)
			}
		}
		if d.Redelivered {
			q.stats.Redelivered++
		}
		q.m.Expire(h.now) // strictly, the next head only now
		left = q.m.Totals().Ready
	})
	return d, left, ok, err
}

// Purge removes what is ready and returns how much that was (BR-7.10).
func (n *Node) Purge(q *Queue) (purged int, err error) {
	err = n.with(q, func(h *hold) {
		q.m.Expire(h.now)
		logged := q.m.Totals().Persistent > 0
		purged = q.m.Purge()
		if q.m.Totals().Held == 0 {
			q.answered = nil
		}
		q.stats.Purged += uint64(purged)
		if logged && purged > 0 {
			var keep []queue.ID
			q.m.RangeLogged(func(v queue.View) { keep = append(keep, v.ID) })
			h.frame.purge(q.Incarnation, keep)
		}
		q.part.buried = append(q.part.buried, &machineGrave{q, q.m})
		q.part.wake()
	})
	return purged, err
}

// Delete removes the queue, if check, called with the queue locked, has nothing
// against it, and tells its consumers. It returns what the queue held.
//
// The caller may have the topology locked, which a Router reads: what has expired
// in a queue that stays is left to the worker.
func (n *Node) Delete(q *Queue, check func(Counts) error) (c Counts, err error) {
	h := n.lock(q.part)
	if q.gone {
		n.unlock(h)
		return c, errGone
	}
	h.touch(q)
	q.m.Expire(h.now)
	c = q.counts(h.now)
	if check != nil {
		err = check(c)
	}
	var consumers []*queue.Consumer
	if err == nil {
		consumers = q.m.Close()
		q.gone = true
		delete(q.part.queues, q.Incarnation)
		q.part.unschedule(q)
		q.part.buried = append(q.part.buried, &machineGrave{q, q.m})
		q.part.wake()
	}
	n.leave(n.finishHold(h))
	for _, each := range consumers {
		each.Target.(Subscriber).QueueGone(q, each)
	}
	return c, err
}

// Configure puts settings in force that a policy changed.
func (n *Node) Configure(q *Queue, s queue.Settings, dead DeadLetter) {
	retry := false
	_ = n.with(q, func(h *hold) {
		before := q.m.Settings()
		retry = q.m.Totals().Held > 0 && (q.dead != dead || before.AtLeastOnce != s.AtLeastOnce)
		if q.m.Config().Strict && before.AtLeastOnce && !s.AtLeastOnce {
			n.forgetHeld(h, q) // DL-13.10
			retry = false
		}
		q.dead = dead
		q.m.Configure(h.now, s)
		if q.m.Trim(h.now, sliceLimit) {
			q.part.wake()
		}
	})
	if retry {
		n.retryHeld(q)
	}
}

// forgetHeld deletes the deaths that wait for their targets, as RabbitMQ does
// when at-least-once is switched off.
func (n *Node) forgetHeld(h *hold, q *Queue) {
	messages, bytes := 0, q.m.Totals().HeldBytes
	q.m.RangeHeld(func(d queue.Death) bool {
		if body, history, ok := q.m.Bury(d.ID); ok {
			h.drop(body, history)
			if d.Logged {
				h.frame.settle(q.Incarnation, d.ID)
			}
			messages++
		}
		return true
	})
	q.answered = nil
	if messages > 0 {
		n.Logger.Info("Deleted dead-lettered messages that waited for their targets",
			"vhost", q.VHost, "queue", q.Name, "messages", messages, "bytes", bytes)
	}
}

// Browse shows entries after the cursor; it changes nothing. r and history are
// valid during the call of f only.
func (n *Node) Browse(q *Queue, after queue.Cursor, limit int, f func(v queue.View, r message.Record, history []byte) bool) (next queue.Cursor, done bool, err error) {
	err = n.with(q, func(h *hold) {
		next, done = q.m.Browse(after, limit, func(v queue.View) bool {
			return f(v, message.Record(n.bodies.Bytes(v.Body)), n.historyBytes(v.History))
		})
	})
	return next, done, err
}

func (n *Node) historyBytes(ref message.Ref) []byte {
	if ref == 0 {
		return nil
	}
	return n.bodies.Bytes(ref)
}

// Bodies is the store that deliveries refer to.
func (n *Node) Bodies() *bodies.Store { return n.bodies }

// RangeConsumers calls f for each consumer of the queue, locked.
func (n *Node) RangeConsumers(q *Queue, f func(c *queue.Consumer, active bool)) {
	_ = n.with(q, func(*hold) { q.m.RangeConsumers(f) })
}

// Type is the queue's type.
func (q *Queue) Type() queue.Type { return q.m.Config().Type }

// Config is what the queue was made with.
func (q *Queue) Config() queue.Config { return q.m.Config() }
