package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/run/deathstore"
)

// The answers of a destination, and what follows for the source of an entry: it is in its target, stranded, or still
// held.

// acknowledged does what follows in the source from an acknowledgement. REQUIRES: h holds the log.
func (o *outboxes) acknowledged(h *hold, to, upTo uint64, refused outbox.Refusals) {
	box := o.To(to)
	entries := box.Acknowledge(upTo)
	for i := range entries {
		o.settle(h, box, &entries[i], refused.Of(entries[i].Number), o.queue)
	}
	h.flowWithdrawn()
}

// settle does what follows from the answer to an entry that was taken out of its outbox. It releases the entry's
// references.
func (o *outboxes) settle(h *hold, box *outbox.Outbox, e *outbox.Entry, answer outbox.Answer, find func(uint64) *Queue) {
	var q *Queue
	if !e.Nothing() {
		q = find(e.Source)
	}
	if q != nil {
		h.touch(q)
	}
	switch box.Settle(e, answer, q.tally()) {
	case outbox.Nowhere:
	case outbox.Queued:
		switch {
		case q != nil && e.Offered():
			o.n.takenOffer(h, q, e, answer)
		case q != nil:
			o.takenHeld(h, q, e, answer)
		case !e.Offered(): // an offered entry was deleted with its queue
			o.takenLate(e, answer)
		}
	case outbox.Arrived:
		o.count(q, e, deadletter.Routed)
	case outbox.Refused:
		o.count(q, e, deadletter.TargetRefused)
	case outbox.Stranded:
		return
	}
	h.drop(e.Body, e.History)
}

// count counts the outcome of a death that was sent, unless another entry counts it: in its queue, or for the node if
// the queue is gone.
func (o *outboxes) count(q *Queue, e *outbox.Entry, outcome deadletter.Outcome) {
	if why := deathstore.Lost(o.n.bodies, e.History); why != deadletter.Routed {
		if outcome == deadletter.Routed {
			outcome = deadletter.LostAndFound
		} else {
			outcome = why
		}
	}
	switch {
	case e.Flags&outbox.Counts == 0 || e.Reason == 0:
	case q != nil:
		q.count(e.Reason, outcome, e.Body, e.History)
	default:
		o.n.deaths.countLate(o.queueType(), AtMostOnce, e.Reason, outcome)
	}
}

// takenLate counts a held death whose queue was deleted, once a target has taken it or all have refused it. REQUIRES:
// the log is held.
func (o *outboxes) takenLate(e *outbox.Entry, answer outbox.Answer) {
	if q := o.ended[e.Source]; q != nil && len(q.waiting.asked[e.ID]) > 0 { // it will be buried, and counted then
		q.waiting.unask(e.ID, e.Target)
		if answer == outbox.Taken {
			q.waiting.take(e.ID, e.Target)
		}
		return
	}
	key := heldDeath{e.Source, e.ID}
	late := o.late[key]
	if late == nil {
		return
	}
	outcome := deadletter.Routed
	if late.asked--; answer != outbox.Taken {
		if late.asked > 0 {
			return
		}
		outcome = deadletter.Deleted
	}
	delete(o.late, key)
	o.n.deaths.countLate(o.queueType(), AtLeastOnce, late.reason, outcome)
}

// takenHeld notes a target's answer for a held death. When all have taken it, the death is buried.
func (o *outboxes) takenHeld(h *hold, q *Queue, e *outbox.Entry, answer outbox.Answer) {
	if !q.heard(e, answer) {
		return
	}
	d, _ := q.m.Held(e.ID)
	body, history, _ := q.m.Bury(e.ID)
	q.leftDead(history, d.Logged, d.Reason, deadletter.Routed)
	h.drop(body, history)
	if q.Released != nil {
		q.Released(len(q.waiting.taken[e.ID]))
	} else {
		q.count(d.Reason, deadletter.Routed, body, history)
		o.n.deaths.confirmed.Add(1)
	}
	q.waiting.forget(e.ID)
	if d.Logged {
		h.frame.settle(q.Incarnation, e.ID)
	}
}

// heard notes a target's answer for a held death, and says whether all have taken it.
func (q *Queue) heard(e *outbox.Entry, answer outbox.Answer) (all bool) {
	left := q.waiting.unask(e.ID, e.Target)
	if _, ok := q.m.Held(e.ID); !ok { // it was purged, or is no longer held because at-least-once was switched off
		q.waiting.forget(e.ID)
		return false
	}
	if answer == outbox.Taken {
		q.waiting.take(e.ID, e.Target)
	} else {
		q.waiting.note(e.ID, true) // retried with the held deaths
		if q.config.Delays {
			q.part.node.late.add(q)
		}
	}
	return left == 0 && !q.waiting.refused[e.ID]
}

// outAck applies the answer to what this group has sent.
func (a *application) outAck() {
	to, upTo, refused := a.r.outAck()
	if a.r.bad {
		return
	}
	a.g.p.outboxes.acknowledged(a.h, to, upTo, refused)
	if local := a.g.node.outboxes; to == local.log {
		local.wake() // the local partitions may send on what this group now knows to be taken (Boxes.Took)
	}
}
