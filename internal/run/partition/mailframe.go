package partition

import (
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// The mail of the local partitions in the frames of the journal.

// logSend writes that an entry was put into an outbox; d is where it was.
func (n *Node) logSend(h *hold, box *outbox, e *outEntry, d *queue.Death) {
	at := d.ID
	if !d.Logged {
		at = 0
	}
	h.frame.mailOut(box.to, e, n.historyBytes, at)
	if at == 0 {
		n.bodies.Retain(e.body, 1)
		h.frame.record(e.body, n.bodies.Bytes(e.body))
	}
}

func (f *frame) mailOut(to uint64, e *outEntry, history func(message.Ref) []byte, at queue.ID) {
	f.begin(opMailOut)
	for _, v := range []uint64{to, e.number, e.target, e.source, uint64(e.id)} {
		f.uint(v)
	}
	flags, again := e.flags&mailFlags, f.again(e.history)
	if again {
		flags |= mailAgain
	}
	f.b = append(f.b, flags, byte(e.reason))
	f.uint(uint64(e.failed))
	f.raw([]byte(e.vhost))
	if !again {
		f.raw(history(e.history))
	}
	f.uint(uint64(at))
}

func (f *frame) raw(b []byte) {
	f.uint(uint64(len(b)))
	f.b = append(f.b, b...)
}

func (f *frame) mailAck(to, upTo uint64, refused []refusal) {
	f.begin(opMailAck)
	f.uint(to)
	f.uint(upTo)
	f.uint(uint64(len(refused)))
	for _, r := range refused {
		f.uint(r.number)
		f.b = append(f.b, byte(r.why))
	}
}

func (f *frame) mailIn(from, number uint64, answer mailAnswer, heard uint64) {
	f.begin(opMailIn)
	f.uint(from)
	f.uint(number)
	f.b = append(f.b, byte(answer))
	f.uint(heard)
}

// logReceived writes an entry that came from another log. REQUIRES: somebody keeps its history until the frame is written.
func (n *Node) logReceived(h *hold, e *queue.Entry, in *mailed) {
	to := &h.entered[len(h.entered)-1]
	if to.q.part.group != nil || !to.logged {
		return
	}
	n.bodies.Retain(e.Body, 1)
	entry := entered{queue: to.q.Incarnation, id: to.id, history: in.history, historyRef: e.History, record: in.record, recordRef: e.Body}
	entry.r.Due, entry.r.Counts, entry.r.Redelivered = to.q.m.Due(to.id), e.Counts, e.Redelivered
	h.frame.enter(&entry)
	h.tellRefused(to)
}

func (r *recovery) mailOut(fr *frameReader, base uint64) {
	to := fr.uint()
	e := outEntry{number: fr.uint(), target: fr.uint(), source: fr.uint(), id: fr.id(), flags: fr.byte()}
	again := e.flags&mailAgain != 0
	e.flags &= mailFlags
	e.reason, e.failed = fr.reason(true), fr.small()
	vhost, _ := fr.bytes()
	history := fr.historyOr(again)
	e.vhost = message.VHost(vhost)
	at := fr.id()
	var record []byte
	var place int
	if at == 0 {
		record, place = fr.recordBytes()
		if message.CheckRecord(record) != nil {
			fr.bad = true
		}
	}
	if r.salvage != nil && !fr.bad {
		if e.id == 0 { // else it is in its queue still
			if at == 0 {
				e.body = r.placed(base + uint64(place))
			} else if v, ok := r.queue(e.source).m.View(at); ok {
				e.body = v.Body
				r.node.bodies.Retain(e.body, 1)
			}
			e.history = storeHistory(r.node.bodies, history)
			r.salvage.sent(to, e)
		}
		return
	}
	box := r.node.mail.box(to)
	if fr.bad || e.number != 0 && e.number < box.next() && e.number >= box.first {
		return // told anew by a compaction
	}
	q := r.queue(e.source)
	switch {
	case at == 0:
		e.body = r.placed(base + uint64(place))
	default:
		v, ok := q.m.View(at)
		if !ok {
			return // told anew by a later frame, see compact
		}
		e.body = v.Body
		r.node.bodies.Retain(e.body, 1)
	}
	e.history = storeHistory(r.node.bodies, history)
	if e.number < box.first {
		box.stranded = append(box.stranded, e)
		q.stranded++
		return
	}
	switch {
	case r.lost:
		r.gap = !r.node.fill(box, e.number)
	case len(box.entries) == 0:
		box.first = e.number
	}
	if r.gap = r.gap || e.number != box.next(); r.gap {
		r.hold.drop(e.body, e.history)
		return
	}
	box.entries = append(box.entries, e)
	switch {
	case e.id == 0:
		q.transit++
	default:
		if q.waiting.ask(e.id, e.target); e.offered() {
			q.m.RestoreOffered(e.id)
		}
	}
}

// maxLost is how many entries of an outbox may be lost with frames: more make no sense.
const maxLost = 1 << 24

// fill puts something into an outbox in the place of entries that were lost with frames, up to the one
// of a number. The destination takes no number but the next: it is told that they go nowhere. It says
// whether that makes sense.
func (n *Node) fill(box *outbox, number uint64) bool {
	if number > box.next()+maxLost {
		return false
	}
	for box.next() < number {
		box.put(outEntry{body: n.blank()})
	}
	return true
}

// nothing says whether the entry takes the place of one that was lost.
func (e *outEntry) nothing() bool { return e.target == 0 }

// fillOutboxes goes on behind the last number that each group has taken of the local partitions. If
// the frames that gave the last numbers are lost, they would be given again, and what has them then
// would count as taken. It says whether that makes sense.
func (n *Node) fillOutboxes() error {
	for _, p := range n.groups {
		p.mu.Lock()
		last := p.group.mail.last(localLog | n.NodeID)
		p.mu.Unlock()
		n.mailMu.Lock()
		ok := last == 0 || n.fill(n.mail.box(p.group.id), last+1)
		n.mailMu.Unlock()
		if !ok {
			return &DamageError{fmt.Errorf("group %d has taken entry %d of an outbox, which knows of none near that", p.group.id, last)}
		}
	}
	return nil
}

func (r *recovery) mailAck(fr *frameReader) {
	to, upTo := fr.uint(), fr.uint()
	refused := fr.refusals()
	if fr.bad {
		return
	}
	if r.salvage != nil {
		r.salvage.acknowledged(to, upTo, refused)
		return
	}
	box := r.node.mail.box(to)
	for _, e := range box.answered(upTo) {
		if e.id != 0 { // that it has left with that stands in the frame too
			if q := r.queue(e.source); !e.offered() {
				q.heard(&e, why(refused, e.number))
			} else if all, taken := q.heardOffer(&e, why(refused, e.number)); all && !taken {
				q.m.Withdraw(e.id)
			} else if all {
				// The frame says so too, unless the queue was being deleted, and is there again.
				body, history, _, _ := q.m.Accept(e.id)
				r.hold.drop(body, history)
			}
			r.hold.drop(e.body, e.history)
			continue
		}
		e.flags &^= mailCounts // it was counted when it happened
		r.node.taken(r.hold, &r.node.mail, box, e, why(refused, e.number), r.queue)
	}
	if len(box.entries) == 0 {
		box.first = max(box.first, upTo+1)
	}
}

func (r *recovery) mailIn(fr *frameReader) {
	from, number, answer, heard := fr.uint(), fr.uint(), mailAnswer(fr.byte()), fr.uint()
	if fr.bad || r.salvage != nil { // the outboxes of groups are lost, and their numbers begin anew
		return
	}
	box := r.node.mail.inbox(from)
	box.last = max(box.last, number)
	if answer != 0 && why(box.refusals, number) == 0 {
		box.refuse(number, answer)
	}
	box.heard(heard)
}
