package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/outbox"
)

// What the destination has answered for entries that this log has sent, and what follows for their source: they are in their
// target, stranded, or held still.

// acknowledged does what follows in the source from an acknowledgement. REQUIRES: the log is held by h.
func (o *outboxes) acknowledged(h *hold, to, upTo uint64, refused outbox.Refusals) {
	box := o.To(to)
	entries := box.Acknowledge(upTo)
	for i := range entries {
		o.settle(h, box, &entries[i], refused.Of(entries[i].Number), o.queue)
	}
	h.flowWithdrawn()
}

// settle does what follows from the answer to an entry that was taken out of its outbox. Its references go.
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
		case !e.Offered(): // else it was deleted with all that its queue had
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

// count counts what became of a death that was sent, unless something else tells: in its queue, or if that is gone, for
// the node.
func (o *outboxes) count(q *Queue, e *outbox.Entry, outcome deadletter.Outcome) {
	switch {
	case e.Flags&outbox.Counts == 0 || e.Reason == 0:
	case q != nil:
		q.count(e.Reason, outcome)
	default:
		o.n.deaths.countLate(o.queueType(), AtMostOnce, e.Reason, outcome)
	}
}

// takenLate counts what became of a held death whose queue was deleted, once a target has taken it or all have refused.
// REQUIRES: the log is held.
func (o *outboxes) takenLate(e *outbox.Entry, answer outbox.Answer) {
	if q := o.ended[e.Source]; q != nil && len(q.waiting.asked[e.ID]) > 0 { // it will be buried, and count then
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

// takenHeld notes that a target has answered for a held death. Once all have taken
// it, it is buried.
func (o *outboxes) takenHeld(h *hold, q *Queue, e *outbox.Entry, answer outbox.Answer) {
	if !q.heard(e, answer) {
		return
	}
	d, _ := q.m.Held(e.ID)
	body, history, _ := q.m.Bury(e.ID)
	h.drop(body, history)
	q.waiting.forget(e.ID)
	q.count(d.Reason, deadletter.Routed)
	o.n.deaths.confirmed.Add(1)
	if d.Logged {
		h.frame.settle(q.Incarnation, e.ID)
	}
}

// heard notes the answer of a target for a held death, and says whether all have taken it.
func (q *Queue) heard(e *outbox.Entry, answer outbox.Answer) (all bool) {
	left := q.waiting.unask(e.ID, e.Target)
	if _, ok := q.m.Held(e.ID); !ok { // purged, or not held any more because at-least-once was switched off
		q.waiting.forget(e.ID)
		return false
	}
	if answer == outbox.Taken {
		q.waiting.take(e.ID, e.Target)
	} else {
		q.waiting.note(e.ID, true) // tried again when held deaths are
	}
	return left == 0 && !q.waiting.refused[e.ID]
}

// outAck takes the answer to what this group has sent.
func (a *application) outAck() {
	to, upTo, refused := a.r.outAck()
	if a.r.bad {
		return
	}
	a.g.p.outboxes.acknowledged(a.h, to, upTo, refused)
	if local := a.g.node.outboxes; to == local.log {
		local.wake() // the local partitions may send on what this group knows of now
	}
}
