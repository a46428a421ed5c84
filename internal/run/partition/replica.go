package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// replica is a replicated queue as its machine's sink. Nothing is written: the log
// has the command already that all this follows from.
type replica Queue

var _ queue.Sink = (*replica)(nil)

// Deliver implements queue.Sink. Only the process that has the session sends. The
// answer is always the same on all replicas; that a session is full shows in the
// credit it is given.
func (r *replica) Deliver(c *queue.Consumer, d *queue.Delivery) bool {
	q := (*Queue)(r)
	g := q.part.group
	h := q.part.hold
	if d.NoAck {
		q.stats.DeliveredNoAck++
	} else {
		q.stats.Delivered++
	}
	if d.Redelivered {
		q.stats.Redelivered++
	}
	s, ok := c.Target.(Subscriber)
	if !ok {
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
	more := s.Deliver(q, c, d)
	if c.Metered {
		if seat := g.consumers[c.Number]; seat != nil {
			seat.full = seat.full || !more
			if k := len(g.effects.credit); !seat.full && window-c.Left()-seat.asked >= window/2 && (k == 0 || g.effects.credit[k-1] != seat) {
				g.effects.credit = append(g.effects.credit, seat)
			}
		}
	}
	return true
}

// Removed implements queue.Sink.
func (r *replica) Removed(_ queue.ID, body, history message.Ref, _ bool) {
	r.part.hold.drop(body, history)
}

// Died implements queue.Sink.
func (r *replica) Died(reason deadletter.Reason, routed bool) { (*Queue)(r).Died(reason, routed) }

// Ended implements queue.Sink.
func (r *replica) Ended(id queue.ID, reason deadletter.Reason, held bool) {
	(*Queue)(r).Ended(id, reason, held)
}

// Returned implements queue.Sink.
func (r *replica) Returned(queue.ID, queue.Counts, int64) {}

// TimedOut implements queue.Sink.
func (r *replica) TimedOut(c *queue.Consumer, n int) {
	q := (*Queue)(r)
	h := q.part.hold
	if c.Target != nil && n > 0 {
		h.timeouts = append(h.timeouts, timeout{q, c, n})
	}
	if s := q.part.group.consumers[c.Number]; s != nil {
		q.part.group.effects.idle = append(q.part.group.effects.idle, s)
	}
}
