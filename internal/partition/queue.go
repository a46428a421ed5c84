package partition

import (
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// Queue is a queue as it runs in its partition.
type Queue struct {
	// Static after construction.
	Incarnation uint64 // unique for ever, so that a queue declared again is another
	VHost       message.VHost
	Name        string
	Durable     bool
	Info        any // the declaration; the partition only carries it
	part        *Partition

	// Guarded by the partition's mutex.
	m       *queue.Machine
	dead    DeadLetter
	gone    bool
	due     int64 // what the heap goes by
	heap    int   // place in the partition's heap plus one; 0 = not in it
	touched bool  // in the current hold
	routing bool  // somebody routes its deaths
	// For held deaths, the targets that have taken them already (DL-13.5).
	answered map[queue.ID][]uint64
	stats    Stats
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
	Dead                                              [5][deadletter.Outcomes]uint64 // by reason and outcome
}

// Counts is what a queue shows of itself.
type Counts struct {
	queue.Totals
	Consumers int
	Stats     Stats
	Unused    bool // its x-expires has passed (DL-8.12)
}

func (q *Queue) counts(now int64) Counts {
	return Counts{Totals: q.m.Totals(), Consumers: q.m.Consumers(), Stats: q.stats, Unused: q.m.Unused(now)}
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

// answer notes that a target has taken the held entry.
func (q *Queue) answer(id queue.ID, target uint64) {
	if q.answered == nil {
		q.answered = map[queue.ID][]uint64{}
	}
	q.answered[id] = append(q.answered[id], target)
}

var _ queue.Sink = (*Queue)(nil)

// Deliver implements queue.Sink.
func (q *Queue) Deliver(c *queue.Consumer, d *queue.Delivery) bool {
	h := q.part.hold
	if d.NoAck {
		q.stats.DeliveredNoAck++
		if d.Logged {
			h.frame.settle(q.Incarnation, d.ID)
		}
	} else {
		q.stats.Delivered++
		q.part.node.bodies.Retain(d.Body, 1)
		q.part.node.bodies.Retain(d.History, 1)
		if d.Logged {
			h.frame.deliver(q.Incarnation, d.ID)
		}
	}
	if d.Redelivered {
		q.stats.Redelivered++
	}
	s := c.Target.(Subscriber)
	if n := len(h.wake); n == 0 || h.wake[n-1] != s {
		h.wake = append(h.wake, s)
	}
	return s.Deliver(q, c, d)
}

// Removed implements queue.Sink.
func (q *Queue) Removed(id queue.ID, body, history message.Ref, logged bool) {
	h := q.part.hold
	if logged {
		h.frame.settle(q.Incarnation, id)
	}
	h.drop(body, history)
}

// Died implements queue.Sink.
func (q *Queue) Died(reason deadletter.Reason, routed bool) {
	if !routed {
		q.count(reason, deadletter.NoExchange)
	}
}

// Returned implements queue.Sink.
func (q *Queue) Returned(id queue.ID, n queue.Counts, notBefore int64) {
	if q.m.Config().Type == queue.Classic && notBefore == 0 && n.Deliveries == 0 {
		return // its place is its own, and the delivery told the rest
	}
	q.part.hold.frame.comeBack(q.Incarnation, id, n, notBefore)
}

// TimedOut implements queue.Sink.
func (q *Queue) TimedOut(c *queue.Consumer, n int) {
	h := q.part.hold
	h.timeouts = append(h.timeouts, timeout{q, c, n})
}

func (q *Queue) count(reason deadletter.Reason, outcome deadletter.Outcome) {
	q.stats.Dead[reason][outcome]++
	q.part.node.strategyCount(q, reason, outcome)
}

// logs says whether a message is to be logged when it enters this queue: on
// durable classic queues persistent ones, on quorum queues all (DL-16.3).
func (q *Queue) logs(persistent bool) bool {
	return q.Durable && (persistent || q.m.Config().Type == queue.Quorum)
}

// size is what the record weighs for the queue's length limits (DL-10.2).
func (q *Queue) size(r message.Record) uint32 {
	if q.m.Config().Type == queue.Quorum {
		return uint32(r.BodySize() + len(r.Properties()))
	}
	return uint32(r.BodySize())
}
