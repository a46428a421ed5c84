package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
	"sync/atomic"
)

// Queue is a queue that runs in its partition.
type Queue struct {
	// Static after construction.
	Incarnation uint64 // unique for ever: a queue that is declared again has another one
	VHost       message.VHost
	Name        string
	Durable     bool
	Info        any    // the declaration; the partition only carries it
	Group       uint64 // group of a replicated queue; 0: Node.DefaultGroup
	// Released, on the queue of an exchange that delays messages (queue.Config.Delays), is called for each message that has
	// waited long enough, with the number of queues that have it now, 0 if it was dropped. It must not block.
	Released func(copies int)
	// ToldLeftOut says that the log has been told of a message whose headers were too large for a consumer's frames.
	ToldLeftOut atomic.Bool
	part        *Partition
	config      queue.Config

	// Guarded by the partition's mutex.
	m        *queue.Machine
	dead     DeadLetter
	gone     bool
	due      int64                // its key in the partition's heap
	heap     int                  // index in the partition's heap plus 1; 0 = not in it
	touched  bool                 // it is in the touched list of the current hold
	routing  bool                 // a goroutine routes its deaths
	retrying bool                 // the router is to retry its held deaths
	heldThen int                  // held deaths after the last try of retryLate
	next     *deadmove            // the deaths to be moved next, if already pinned; only the routing goroutine uses it
	waiting  waiting              // the answers of targets for held and offered entries
	offers   map[queue.ID]onOffer // callers in this process who wait for moves to other logs
	away     outbox.Tally         // its messages in outboxes
	stats    Stats
	drops    *drops                // nil until it drops something
	sent     map[uint64]sentCounts // its entries that jobs have sent here, by job
	arrived  arrivalMark           // what came since TakeArrivals; not 0: it is in Partition.arrived
	refused  map[queue.ID]bool     // deaths that every target refuses: see carry.death
	why      JobOutcome            // of the entry that Removed is about to be told of; 0: acknowledged
	// Consumers at the time Delete accepted the deletion; Deleted notifies them.
	left     []*queue.Consumer
	calmc    []calmWait // callers who wait until what has died has left
	expiring bool       // its x-expires has passed, and Partition.expire has it
	ended    bool       // it was deleted: its deaths are counted when they are buried, see Ended
	// Version of the last shelf.WriteMeta, 0 = none.
	metaSaved uint32

	// Of a replicated queue.
	live     bool   // the log has created it
	ticking  bool   // a tick is proposed
	wanted   wanted // the settings that the topology asks for
	accepted bool   // its deletion is accepted, and will be in the log soon
	rest     []byte // while it is restored: the state that refers to entries
}

// wanted are the settings that a replicated queue should have.
type wanted struct {
	settings queue.Settings
	dead     DeadLetter
}

// DeadLetter says where the dead of a queue go. The machine's settings say whether they go anywhere.
type DeadLetter struct {
	Exchange string
	Key      string
	HasKey   bool // Key replaces the message's own (DL-6.3)
}

// Stats count what happened to a queue since it was declared or the node started.
type Stats struct {
	Published, Confirmed                              uint64
	Delivered, DeliveredNoAck, Got, GotNoAck, GetNone uint64
	Acked, Redelivered, Returned, Purged              uint64
	SetAside                                          uint64 // messages whose records could not be read
	Credited                                          CreditedStats
	Unmerged                                          uint64 // outcomes whose annotations had no room in the message (DL-14.6)
	// Active is when a message was last published, taken or settled, in milliseconds since 1970; 0: not since the
	// node started.
	Active int64
	Dead   dropCounts // by counted reason and outcome
}

// CreditedStats are what of the same counters consumers with credit have had (queue.Consumer.Credited).
type CreditedStats struct{ Delivered, DeliveredNoAck, Acked, Redelivered uint64 }

// Counts are the counters of a queue.
type Counts struct {
	queue.Totals
	Consumers int
	Transit   int // messages on their way to queues in other logs, not yet acknowledged
	Stranded  int // messages that left for a queue that is gone, and wait for another one
	Stats     Stats
	Breaker   queue.Broken
	Unused    bool // its x-expires has passed (DL-8.12)
	Unsettled bool // a message has died and is to be routed, or is about to die: see SettleDeaths
}

// Messages is the number of all messages of the queue. A message that is leaving counts until it has arrived
// (DL-12.4, DL-13.7).
func (c *Counts) Messages() int {
	return c.Ready + c.Out + c.Delayed + c.Dying + c.Held + c.Transit + c.Stranded
}

func (q *Queue) counts(now int64) Counts {
	t := q.m.Totals()
	return Counts{
		Totals: t, Consumers: q.m.Consumers(), Transit: q.away.Transit + t.Offered, Stranded: q.away.Stranded, Stats: q.stats,
		Breaker: q.m.Breaker(now), Unused: q.m.Unused(now), Unsettled: t.Dying > 0 || q.ticking,
	}
}

// Subscriber is the session's side of a consumer: the value of queue.Consumer.Target.
type Subscriber interface {
	// Deliver takes a delivery for sending; the references in d are the subscriber's. It is called with the partition
	// locked, so it must neither block nor call the partition. It returns false if no more should come until Resume.
	Deliver(q *Queue, c *queue.Consumer, d *queue.Delivery) (more bool)
	// Flush is called after the partition is unlocked, if there were deliveries.
	Flush()
	// QueueGone is called, unlocked, when the queue of c was deleted (BR-9.14).
	QueueGone(q *Queue, c *queue.Consumer)
	// TimedOut is called, unlocked, when n deliveries to c were taken back (DL-12.7).
	TimedOut(q *Queue, c *queue.Consumer, n int)
}

// Watcher is a Subscriber that wants to know more of its consumer.
type Watcher interface {
	Subscriber
	// Active is called when the consumer has become the single active consumer of a quorum queue, or is it no longer; ready is how
	// many messages there are for it. It is called as Deliver is, in order with deliveries.
	Active(active bool, ready int)
	// TookBack is called likewise, with the deliveries that the consumer timeout has taken back (DL-12.7). The slice is the
	// watcher's.
	TookBack(ids []queue.ID)
}

var _ queue.Sink = (*Queue)(nil)

// Deliver implements queue.Sink. Only the process that has the consumer's session sends.
func (q *Queue) Deliver(c *queue.Consumer, d *queue.Delivery) (more bool) {
	h := q.part.hold
	if len(h.activity) > 0 || len(h.takenBack) > 0 {
		h.tellWatchers()
	}
	if d.NoAck {
		q.stats.DeliveredNoAck++
	} else {
		q.stats.Delivered++
	}
	if c.Credited {
		q.stats.Credited.delivered(d)
	}
	if d.NoAck && d.ID != 0 { // else came counts it
		q.leaves(d.History, JobAcknowledged, d.Logged)
	}
	if d.Logged {
		if d.NoAck {
			h.frame.settle(q.Incarnation, d.ID)
		} else {
			h.frame.deliver(q.Incarnation, d.ID)
		}
	}
	if d.Redelivered {
		q.stats.Redelivered++
	}
	s, ok := c.Target.(Subscriber)
	if !ok { // its session is on another node
		if d.NoAck {
			h.drop(d.Body, d.History)
		}
		return true
	}
	if !d.NoAck {
		q.part.node.bodies.Retain(d.Body, 1)
		q.part.node.bodies.Retain(d.History, 1)
	}
	if n := len(h.wake); n == 0 || h.wake[n-1] != s {
		h.wake = append(h.wake, s)
	}
	more = s.Deliver(q, c, d)
	if g := q.part.group; g != nil {
		g.delivered(c, more)
		return true // the same on all replicas: credit, not this result, limits a full session
	}
	return more
}

// Removed implements queue.Sink.
func (q *Queue) Removed(id queue.ID, body, history message.Ref, logged bool) {
	h := q.part.hold
	if logged {
		h.frame.settle(q.Incarnation, id)
	}
	if q.drops != nil && q.drops.awaited {
		q.exampleDrop(body, history)
	}
	if id != 0 && q.why != jobCounted { // what has no id was purged or deleted before
		q.leaves(history, max(q.why, JobAcknowledged), logged)
		q.why = 0
	}
	h.drop(body, history)
}

// Died implements queue.Sink. An at-least-once death counts for the node now (DL-18.3), however long its targets
// take. Other deaths count when they are settled.
func (q *Queue) Died(reason deadletter.Reason, routed bool) {
	if !routed {
		q.why = lostBy(reason)
	}
	switch {
	case q.config.Delays: // no death
	case !routed:
		q.count(reason, deadletter.NoExchange, 0, 0)
		if reason == deadletter.DeliveryLimit { // nobody asked for that
			q.part.node.Router.Dropped(q, reason, deadletter.NoExchange, nil, nil)
		}
	case q.m.Settings().AtLeastOnce:
		q.part.node.deaths.count(q.config.Type, AtLeastOnce, reason)
	}
}

// Returned implements queue.Sink. A return to a classic queue is logged too, although the entry takes its old place:
// an entry that is out when the node ends counts as failed, and would wait as failed ones do.
func (q *Queue) Returned(id queue.ID, n queue.Counts, notBefore int64) {
	q.part.hold.frame.comeBack(q.Incarnation, id, n, notBefore)
}

// Active implements queue.Sink.
func (q *Queue) Active(c *queue.Consumer, active bool, ready int) {
	w, ok := c.Target.(Watcher)
	if !ok {
		return
	}
	h := q.part.hold // it is told before the next delivery leaves, and after it has attached
	h.activity = append(h.activity, activity{w, active, ready})
}

// TookBack implements queue.Sink.
func (q *Queue) TookBack(c *queue.Consumer, id queue.ID) {
	w, ok := c.Target.(Watcher)
	if !ok {
		return
	}
	h := q.part.hold // likewise
	if n := len(h.takenBack); n == 0 || h.takenBack[n-1].from != w {
		h.takenBack = append(h.takenBack, takenBack{from: w})
	}
	last := &h.takenBack[len(h.takenBack)-1]
	last.ids = append(last.ids, id)
}

// TimedOut implements queue.Sink.
func (q *Queue) TimedOut(c *queue.Consumer, n int) {
	if h := q.part.hold; n > 0 && c.Target != nil {
		h.timeouts = append(h.timeouts, timeout{q, c, n})
	}
	if g := q.part.group; g != nil {
		g.mayBeIdle(c)
	}
}

// count counts the outcome of a death. body and history are the message with its new history; body is 0 if Removed will
// be called for it next, which gets them.
func (q *Queue) count(reason deadletter.Reason, outcome deadletter.Outcome, body, history message.Ref) {
	if q.config.Delays {
		return // no death: see delayed.go
	}
	reason = reason.Counted()
	q.stats.Dead[reason][outcome]++
	if outcome.Dropped() {
		q.noteDrop(reason, outcome, body, history)
	}
	if outcome == deadletter.LostAndFound { // RabbitMQ would have dropped it
		outcome = deathstore.Lost(q.part.node.bodies, history)
	}
	s := q.m.Settings()
	switch {
	case s.DeadLetter && s.AtLeastOnce: // see Died
	case outcome == deadletter.NoExchange || outcome == deadletter.MissingExchange: // RabbitMQ counts them alike
		q.part.node.deaths.count(q.config.Type, Disabled, reason)
	default:
		q.part.node.deaths.count(q.config.Type, AtMostOnce, reason)
	}
}

// logs says whether a message is logged when it enters this queue: on durable classic queues persistent messages, on
// quorum queues and queues of delaying exchanges all (DL-16.3).
func (q *Queue) logs(persistent bool) bool {
	return q.Durable && (persistent || q.config.Type == queue.Quorum || q.config.Delays)
}

// size is the record's size for the queue's length limits (DL-10.2).
func (q *Queue) size(r message.Record) uint32 {
	if q.config.Type == queue.Quorum {
		return quorumSize(r)
	}
	return uint32(r.BodySize())
}

func quorumSize(r message.Record) uint32 { return uint32(r.BodySize() + len(r.Properties())) }
