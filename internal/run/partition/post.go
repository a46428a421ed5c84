package partition

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// send puts a dead entry, or one that is moved, into the outbox for another log. d
// holds the references, of which the outbox takes its own.
func (n *Node) send(h *hold, q *Queue, d *queue.Death, p *plan, t target, failed uint32, flags uint8, held bool) {
	e := outEntry{
		target: t.queue, source: q.Incarnation, flags: flags, reason: d.Reason, vhost: q.VHost, failed: failed,
		body: d.Body, history: p.history,
	}
	if held {
		e.id = d.ID
	} else {
		q.transit++
	}
	n.bodies.Retain(e.body, 1)
	n.bodies.Retain(e.history, 1)
	if d.Stays && d.Logged {
		e.body, _ = n.bodies.Cool(e.body) // its turn may come late: it goes on being on disk only
	}
	m := n.mailOf(h, q)
	box := m.box(t.log)
	e.after = m.taken
	e.number = box.put(e)
	if q.part.group == nil {
		n.logSend(h, box, &e, d)
	}
	h.sends = true
}

// taken does what follows in the source once an entry was answered. Its references
// go. REQUIRES: the source's log is held.
func (n *Node) taken(h *hold, m *mail, box *outbox, e outEntry, answer mailAnswer, find func(uint64) *Queue) {
	if e.nothing() {
		h.drop(e.body, e.history)
		return
	}
	q := find(e.source)
	if q != nil {
		h.touch(q)
	}
	switch {
	case e.offered() && q == nil: // it was deleted with all that it had
	case e.offered():
		n.takenOffer(h, q, &e, answer)
	case e.id != 0 && q == nil:
		n.takenLate(m, &e, answer)
	case e.id != 0:
		n.takenHeld(h, q, &e, answer)
	case answer == mailGone && e.flags&mailShared != 0:
		// As if its queue had gone a moment later. To route it anew would double it in the others.
		if q != nil {
			q.transit--
		}
		n.countSent(m, q, &e, deadletter.Routed)
	case answer == mailGone, answer == mailUnread, answer == mailFull && e.flags&mailMove != 0: // of what was relocated, or dead
		// It has no place any more: it stays here until it can be routed anew.
		box.stranded = append(box.stranded, e)
		if q != nil {
			q.transit--
			q.stranded++
		}
		return
	default:
		if q != nil {
			q.transit--
		}
		outcome := deadletter.Routed
		if answer == mailFull {
			outcome = deadletter.TargetRefused
		}
		n.countSent(m, q, &e, outcome)
	}
	h.drop(e.body, e.history)
}

// offered says whether the entry is in its queue, offered to those it is on its way to.
func (e *outEntry) offered() bool { return e.id != 0 && e.flags&mailMove != 0 }

// countSent counts what became of a death that was sent, unless something else tells: in
// its queue, or if that is gone, for the node.
func (n *Node) countSent(m *mail, q *Queue, e *outEntry, outcome deadletter.Outcome) {
	switch {
	case e.flags&mailCounts == 0 || e.reason == 0:
	case q != nil:
		q.count(e.reason, outcome)
	default:
		n.countLate(n.typeIn(m), AtMostOnce, e.reason, outcome)
	}
}

// typeIn is the type of the queues that a log's mail comes from.
func (n *Node) typeIn(m *mail) queue.Type {
	if m == &n.mail {
		return queue.Classic
	}
	return queue.Quorum
}

// takenHeld notes that a target has answered for a held death. Once all have taken
// it, it is buried.
func (n *Node) takenHeld(h *hold, q *Queue, e *outEntry, answer mailAnswer) {
	if !q.heard(e, answer) {
		return
	}
	d, _ := q.m.Held(e.id)
	body, history, _ := q.m.Bury(e.id)
	h.drop(body, history)
	q.waiting.forget(e.id)
	q.count(d.Reason, deadletter.Routed)
	n.confirmed.Add(1)
	if q.part.group == nil && d.Logged {
		h.frame.settle(q.Incarnation, e.id)
	}
}

// heard notes the answer of a target for a held death, and says whether all have taken it.
func (q *Queue) heard(e *outEntry, answer mailAnswer) (all bool) {
	left := q.waiting.unask(e.id, e.target)
	if _, ok := q.m.Held(e.id); !ok { // purged, or not held any more because at-least-once was switched off
		q.waiting.forget(e.id)
		return false
	}
	if answer == 0 {
		q.waiting.take(e.id, e.target)
	} else {
		q.waiting.note(e.id, true) // tried again when held deaths are
	}
	return left == 0 && !q.waiting.refused[e.id]
}

// mailed is an entry as it arrives.
type mailed struct {
	number  uint64
	target  uint64
	flags   uint8
	failed  uint32
	history []byte
	record  []byte

	sameHistory, sameRecord bool // as that of the entry before
}

// incoming is what one hold lets in from another log, entry after entry. Those that follow each other with one
// record, or one history, have one copy of it: one death may lead to hundreds of queues.
type incoming struct {
	n             *Node
	h             *hold
	body, history message.Ref // of the entry before; 0: nobody has asked for it. They stay until the hold ends
	before        bool        // it is a command of a version before mailUnread
}

// next looks at an entry, whatever becomes of it. Each is shown, in order.
func (c *incoming) next(in *mailed) {
	if !in.sameRecord {
		c.body = 0
	}
	if !in.sameHistory {
		c.history = 0
	}
}

// receive lets the entry that next has seen into its queue. keep keeps its record, with one reference. REQUIRES: q is held.
func (c *incoming) receive(q *Queue, in *mailed, keep func() message.Ref) (answer mailAnswer) {
	switch {
	case in.target == 0 && !c.before:
		return mailUnread
	case q == nil || q.gone:
		return mailGone
	}
	n, h := c.n, c.h
	if c.body == 0 {
		c.body = keep()
		h.drop(c.body, 0)
	}
	if c.history == 0 {
		c.history = storeHistory(n.bodies, in.history)
		h.drop(0, c.history)
	}
	rec := message.Record(in.record)
	a := arrival{
		entry: queue.Entry{
			Body: c.body, History: c.history, Counts: queue.Counts{Deliveries: in.failed},
			Priority: priorityOf(rec), TTL: -1, Redelivered: in.failed > 0,
		},
		rec: rec,
	}
	if in.flags&mailMove == 0 {
		died := plan{stored: in.history}
		a.entry.Rests = died.rests(q)
	}
	switch {
	case in.flags&mailImpose != 0:
		a.how = imposed
	case in.flags&mailForce != 0:
		a.how = forced
	case in.flags&mailMove != 0 && q.config.Type == queue.Classic && !q.roomNow(h, rec):
		return mailFull // what was asked to move does not die of being refused (DL-10.9)
	}
	h.entered = h.entered[:0]
	if n.enter(h, q, &a) == queue.Refused {
		return mailFull
	}
	n.logReceived(h, &a.entry, in)
	h.flow()
	return 0
}

// roomNow says whether the queue has room for the message once what is due is gone.
func (q *Queue) roomNow(h *hold, rec message.Record) bool {
	h.touch(q)
	q.m.Expire(h.now)
	return q.m.Accepts(q.size(rec))
}

// outIn takes what another log sends to this group.
func (a *application) outIn() {
	from, heard, number, n := a.r.outIn()
	box := a.g.mail.inbox(from)
	box.heard(heard)
	c := incoming{n: a.g.node, h: a.h, before: a.r.version < sharedVersion}
	for range n {
		in, at := a.r.sent()
		in.number = number
		if a.r.bad {
			return
		}
		c.next(&in)
		number++
		a.h.entries++
		if !box.accept(in.number) {
			continue // it was taken before, or one before it was not
		}
		if message.CheckRecord(in.record) != nil { // else it would be sent for ever
			box.refuse(in.number, mailGone)
			continue
		}
		keep := func() message.Ref { return a.g.keep(in.record, a.place(at)) }
		if answer := c.receive(a.g.p.queues[in.target], &in, keep); answer != 0 {
			box.refuse(in.number, answer)
		}
	}
	if ask := a.ask; ask != nil {
		// What is known of all that was sent, also of what a resend repeats.
		ask.ok, ask.last = true, min(box.last, number-1)
		ask.refusals = slices.Clone(box.refusals)
	}
}

// outAck takes the answer to what this group has sent.
func (a *application) outAck() {
	to, upTo, refused := a.r.outAck()
	box := a.g.mail.box(to)
	if a.r.bad {
		return
	}
	find := func(inc uint64) *Queue { return a.g.p.queues[inc] }
	for _, e := range box.answered(upTo) {
		a.g.node.taken(a.h, &a.g.mail, box, e, why(refused, e.number), find)
	}
	a.h.flowWithdrawn()
	a.g.node.heard(box.to)
}
