package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// Queue is a queue as it runs in its partition.
type Queue struct {
	// Static after construction.
	Incarnation uint64 // unique for ever, so that a queue declared again is another
	VHost       message.VHost
	Name        string
	Durable     bool
	Info        any    // the declaration; the partition only carries it
	Group       uint64 // where a replicated queue lives; 0: Node.DefaultGroup
	part        *Partition
	config      queue.Config

	// Guarded by the partition's mutex.
	m        *queue.Machine
	dead     DeadLetter
	gone     bool
	due      int64                // what the heap goes by
	heap     int                  // place in the partition's heap plus one; 0 = not in it
	touched  bool                 // in the current hold
	routing  bool                 // somebody routes its deaths
	retrying bool                 // its held deaths are to be tried again, by the router
	next     *deadmove            // the deaths to be moved next, pinned, if somebody knows already; theirs who routes
	waiting  waiting              // what targets have said of held deaths, and of what is on offer
	offers   map[queue.ID]onOffer // who waits in this process for what is offered to other logs
	away     outbox.Tally         // messages that are in outboxes
	stats    Stats
	// Of a queue that Delete has accepted, the consumers there were, whom Deleted tells.
	left     []*queue.Consumer
	calmc    []calmWait // who waits for what has died to leave
	expiring bool       // its x-expires has passed, and somebody sees to it: see Partition.expire
	ended    bool       // it was deleted: the deaths that go with it count as they are buried, see Ended
	// The version of what shelf.WriteMeta wrote last, 0 = nothing.
	metaSaved uint32

	// Of a replicated queue.
	live     bool   // the log has created it
	ticking  bool   // a tick is proposed
	wanted   wanted // what the topology asks for
	accepted bool   // its deletion: the log has it soon
	rest     []byte // of a state that is being restored, what refers to entries
}

// wanted are the settings a replicated queue should have.
type wanted struct {
	settings queue.Settings
	dead     DeadLetter
}

// DeadLetter is where the dead of a queue go. The machine's settings say
// whether they go anywhere.
type DeadLetter struct {
	Exchange string
	Key      string
	HasKey   bool // Key takes the place of the message's own (DL-6.3)
}

// Stats count what happened to a queue since it was declared or the node started.
type Stats struct {
	Published, Confirmed                              uint64
	Delivered, DeliveredNoAck, Got, GotNoAck, GetNone uint64
	Acked, Redelivered, Returned, Purged              uint64
	SetAside                                          uint64 // their records could not be read
	// Active is when a message was last published, taken or settled, in
	// milliseconds since 1970; 0: not since the node started.
	Active int64
	Dead   [5][deadletter.Outcomes]uint64 // by counted reason and outcome
}

// Counts is what a queue shows of itself.
type Counts struct {
	queue.Totals
	Consumers int
	Transit   int // messages on their way to queues in other logs, which have not said yet that they arrived
	Stranded  int // messages that have left for a queue that is gone: they wait for another
	Stats     Stats
	Unused    bool // its x-expires has passed (DL-8.12)
	Unsettled bool // something has died that is still to be routed, or is about to: see SettleDeaths
}

// Messages is all the queue has: what is on its way out of it counts until it has
// arrived (DL-12.4, DL-13.7).
func (c *Counts) Messages() int {
	return c.Ready + c.Out + c.Delayed + c.Dying + c.Held + c.Transit + c.Stranded
}

func (q *Queue) counts(now int64) Counts {
	t := q.m.Totals()
	return Counts{
		Totals: t, Consumers: q.m.Consumers(), Transit: q.away.Transit + t.Offered, Stranded: q.away.Stranded, Stats: q.stats,
		Unused: q.m.Unused(now), Unsettled: t.Dying > 0 || q.ticking,
	}
}

// Subscriber is a session's side of a consumer: what queue.Consumer.Target holds.
type Subscriber interface {
	// Deliver takes a delivery for sending. The references in d are the
	// subscriber's. It is called with the partition locked and must neither
	// block nor call the partition. It returns false if no more should come until Resume.
	Deliver(q *Queue, c *queue.Consumer, d *queue.Delivery) (more bool)
	// Flush is called after the partition is unlocked, once deliveries are there to be sent.
	Flush()
	// QueueGone is told, unlocked, that the queue of c was deleted (BR-9.14).
	QueueGone(q *Queue, c *queue.Consumer)
	// TimedOut is told, unlocked, that n deliveries to c were taken back (DL-12.7).
	TimedOut(q *Queue, c *queue.Consumer, n int)
}

var _ queue.Sink = (*Queue)(nil)

// Deliver implements queue.Sink. Only the process that has the consumer's session sends.
func (q *Queue) Deliver(c *queue.Consumer, d *queue.Delivery) (more bool) {
	h := q.part.hold
	if d.NoAck {
		q.stats.DeliveredNoAck++
	} else {
		q.stats.Delivered++
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
	if !ok { // on another replica
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
		return true // as on all replicas: that a session is full shows in the credit that it is given
	}
	return more
}

// Removed implements queue.Sink.
func (q *Queue) Removed(id queue.ID, body, history message.Ref, logged bool) {
	h := q.part.hold
	if logged {
		h.frame.settle(q.Incarnation, id)
	}
	h.drop(body, history)
}

// Died implements queue.Sink. What is dead-lettered at least once counts for the node
// from now on (DL-18.3), however long its targets take; all else when it is settled.
func (q *Queue) Died(reason deadletter.Reason, routed bool) {
	switch {
	case !routed:
		q.count(reason, deadletter.NoExchange)
	case q.m.Settings().AtLeastOnce:
		q.part.node.deaths.count(q.config.Type, AtLeastOnce, reason)
	}
}

// Returned implements queue.Sink. What comes back to a classic queue takes its own place, and
// is noted all the same: what is out when the node ends has failed, and waits where failures do.
func (q *Queue) Returned(id queue.ID, n queue.Counts, notBefore int64) {
	q.part.hold.frame.comeBack(q.Incarnation, id, n, notBefore)
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

func (q *Queue) count(reason deadletter.Reason, outcome deadletter.Outcome) {
	reason = reason.Counted()
	q.stats.Dead[reason][outcome]++
	s := q.m.Settings()
	switch {
	case s.DeadLetter && s.AtLeastOnce: // see Died
	case outcome == deadletter.NoExchange:
		q.part.node.deaths.count(q.config.Type, Disabled, reason)
	default:
		q.part.node.deaths.count(q.config.Type, AtMostOnce, reason)
	}
}

// logs says whether a message is to be logged when it enters this queue: on
// durable classic queues persistent ones, on quorum queues all (DL-16.3).
func (q *Queue) logs(persistent bool) bool {
	return q.Durable && (persistent || q.config.Type == queue.Quorum)
}

// size is what the record weighs for the queue's length limits (DL-10.2).
func (q *Queue) size(r message.Record) uint32 {
	if q.config.Type == queue.Quorum {
		return quorumSize(r)
	}
	return uint32(r.BodySize())
}

func quorumSize(r message.Record) uint32 { return uint32(r.BodySize() + len(r.Properties())) }
