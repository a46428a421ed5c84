package partition

import (
	"encoding/binary"
	"fmt"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// The bytes of the outboxes. The journal's frames have the changes to the outboxes of the local partitions, and
// recovery repeats them. Commands have the changes to the outboxes of a group (operands.go). Checkpoints and snapshots
// have all outboxes of a log in one form:
//
//	n | n × outbox (to | first | closed | n × entry | n × stranded entry) | n | n × inbox (from | last | n × (number | answer))
//	entry: number | target | source | id | flags | reason | vhost bytes | failed | history bytes | body
//
// A body is a record, or in a checkpoint its place (Node.locate).

// mailOut writes that an outbox has taken an entry. at is the entry of its source whose record the journal has already;
// 0 if the record follows.
func (f *frame) mailOut(to uint64, e *outbox.Entry, history func(message.Ref) []byte, at queue.ID) {
	f.begin(opMailOut)
	for _, v := range []uint64{to, e.Number, e.Target, e.Source, uint64(e.ID)} {
		f.uint(v)
	}
	flags, again := byte(e.Flags&outbox.AllFlags), f.again(e.History)
	if again {
		flags |= mailAgain
	}
	f.b = append(f.b, flags, byte(e.Reason))
	f.uint(uint64(e.Failed))
	f.raw([]byte(e.VHost))
	if !again {
		f.raw(history(e.History))
	}
	f.uint(uint64(at))
}

func (f *frame) raw(b []byte) {
	f.uint(uint64(len(b)))
	f.b = append(f.b, b...)
}

func (f *frame) mailAck(to, upTo uint64, refused outbox.Refusals) {
	f.begin(opMailAck)
	f.uint(to)
	f.uint(upTo)
	f.b = appendRefusals(f.b, refused)
}

func appendRefusals(b []byte, refused outbox.Refusals) []byte {
	b = binary.AppendUvarint(b, uint64(len(refused)))
	for _, r := range refused {
		b = append(binary.AppendUvarint(b, r.Number), byte(r.Why))
	}
	return b
}

// refusals reads which entries a log has not taken.
func (r *frameReader) refusals() (refused outbox.Refusals) {
	for range r.count(2) {
		refused = append(refused, outbox.Refusal{Number: r.uint(), Why: outbox.Answer(r.byte())})
	}
	return refused
}

func (f *frame) mailIn(from, number uint64, answer outbox.Answer, heard uint64) {
	f.begin(opMailIn)
	f.uint(from)
	f.uint(number)
	f.b = append(f.b, byte(answer))
	f.uint(heard)
}

func (f *frame) mailBack(to, number uint64) {
	f.begin(opMailBack)
	f.uint(to)
	f.uint(number)
}

// logReceived writes an entry that came from another log. REQUIRES: the caller keeps its history until the frame is
// written.
func (o *outboxes) logReceived(h *hold, e *queue.Entry, in *incoming) {
	to := &h.entered[len(h.entered)-1]
	if to.q.part.group != nil || !to.logged {
		return
	}
	o.n.bodies.Retain(e.Body, 1)
	entry := entered{queue: to.q.Incarnation, id: to.id, history: in.history, historyRef: e.History, record: in.record, recordRef: e.Body}
	entry.r.Due, entry.r.Counts, entry.r.Redelivered = to.q.m.Due(to.id), e.Counts, e.Redelivered
	h.frame.enter(&entry)
	h.tellRefused(to)
}

// mailOut repeats that an outbox has taken an entry.
func (r *recovery) mailOut(fr *frameReader, base uint64) {
	to := fr.uint()
	e := outbox.Entry{Number: fr.uint(), Target: fr.uint(), Source: fr.uint(), ID: fr.id()}
	flags := fr.byte()
	again := flags&mailAgain != 0
	e.Flags = outbox.Flags(flags) & outbox.AllFlags
	e.Reason, e.Failed = fr.reason(true), fr.small()
	vhost, _ := fr.bytes()
	history := fr.historyOr(again)
	e.VHost = message.VHost(vhost)
	at := fr.id()
	var record []byte
	var place int
	if at == 0 {
		record, place = fr.recordBytes()
		if message.CheckRecord(record) != nil {
			fr.bad = true
		}
	}
	if fr.bad || r.salvage != nil && e.ID != 0 { // with an id it is still in its queue
		return
	}
	var box *outbox.Outbox
	if r.salvage == nil {
		if box = r.node.outboxes.To(to); box.Knows(e.Number) {
			return // a compaction of an earlier release logged it again
		}
	}
	if at == 0 {
		e.Body = r.placed(base + uint64(place))
	} else if v, ok := r.queue(e.Source).m.View(at); ok {
		e.Body = v.Body
		r.node.bodies.Retain(e.Body, 1)
	} else if r.salvage == nil {
		return // a later frame has it again, see compact
	}
	e.History = storeHistory(r.node.bodies, history)
	if r.salvage != nil {
		r.salvage.sent(to, e)
		return
	}
	q := r.queue(e.Source)
	var blank func() message.Ref
	if r.lost {
		blank = r.node.blank
	}
	if r.gap = !box.Redo(e, blank, &q.away); r.gap {
		r.hold.drop(e.Body, e.History)
		return
	}
	if e.ID == 0 || e.Number <= box.Acknowledged() {
		return
	}
	if q.waiting.ask(e.ID, e.Target); e.Offered() {
		q.m.RestoreOffered(e.ID)
	}
}

// mailAck repeats an acknowledgement.
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
	box := r.node.outboxes.To(to)
	entries := box.Acknowledge(upTo)
	for i := range entries {
		e := &entries[i]
		answer := refused.Of(e.Number)
		if e.ID == 0 {
			e.Flags &^= outbox.Counts // it was counted when it happened
			r.node.outboxes.settle(r.hold, box, e, answer, r.queue)
			continue
		}
		// If the answer took it out of its queue, the frame has that too.
		if q := r.queue(e.Source); !e.Offered() {
			q.heard(e, answer)
		} else if all, taken := q.heardOffer(e, answer); all && !taken {
			q.m.Withdraw(e.ID)
		} else if all {
			// The frame has that too, unless the queue was being deleted and is back.
			body, history, _, ok := q.m.Accept(e.ID)
			if ok {
				r.accepted = append(r.accepted, accepted{q, e.ID, history, e.History})
			}
			r.hold.drop(body, history)
		}
		r.hold.drop(e.Body, e.History)
	}
	box.Passed(upTo)
}

// mailIn repeats that entries of another log were taken, or that one was refused.
func (r *recovery) mailIn(fr *frameReader) {
	from, number, answer, heard := fr.uint(), fr.uint(), outbox.Answer(fr.byte()), fr.uint()
	if fr.bad || r.salvage != nil { // salvage: the groups' outboxes are lost, and their numbers begin anew
		return
	}
	r.node.outboxes.From(from).Redo(number, answer, heard)
}

// mailBack repeats that a stranded entry has left its outbox.
func (r *recovery) mailBack(fr *frameReader) {
	to, number := fr.uint(), fr.uint()
	if fr.bad {
		return
	}
	tally := func(source uint64) *outbox.Tally { return &r.queue(source).away }
	if e, ok := r.node.outboxes.To(to).TakeStranded(number, tally); ok {
		r.hold.drop(e.Body, e.History)
	}
}

// recovered completes the outboxes of the local partitions when recovery has read everything.
func (o *outboxes) recovered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.Outboxes() {
		for i := range b.Waiting() {
			if e := &b.Waiting()[i]; e.ID != 0 {
				if q := o.queue(e.Source); q != nil {
					q.m.Reserve(e.ID) // only the outbox knows an entry that was not logged
				}
			}
		}
	}
	o.Retake()
}

// fill makes each outbox go on after the last number that its group has taken. If the frames with the last numbers
// are lost, the numbers would be given again, and the group would take the new entries for old ones. fill returns an
// error if the numbers cannot fit.
func (o *outboxes) fill() error {
	for _, p := range o.n.groups {
		p.mu.Lock()
		last := p.outboxes.Taken(o.log)
		p.mu.Unlock()
		o.mu.Lock()
		ok := last == 0 || o.To(p.group.id).Fill(last+1, o.n.blank)
		o.mu.Unlock()
		if !ok {
			return &DamageError{fmt.Errorf("group %d has taken entry %d of an outbox whose own numbers are far from that", p.group.id, last)}
		}
	}
	return nil
}

// append appends the outboxes in the form of checkpoints and snapshots; body writes the body of an entry.
func (o *outboxes) append(w *commandWriter, body func(*commandWriter, message.Ref)) {
	w.uint(uint64(len(o.Outboxes())))
	for _, b := range o.Outboxes() {
		s := b.State()
		w.uint(s.To)
		w.uint(s.First)
		w.bool(s.Closed)
		for _, list := range [][]outbox.Entry{s.Entries, s.Stranded} {
			w.uint(uint64(len(list)))
			for i := range list {
				w.outboxEntry(&list[i], o.n, body)
			}
		}
	}
	w.uint(uint64(len(o.Inboxes())))
	for _, b := range o.Inboxes() {
		w.uint(b.From())
		w.uint(b.Last())
		w.b = appendRefusals(w.b, b.Refusals())
	}
}

func (w *commandWriter) outboxEntry(e *outbox.Entry, n *Node, body func(*commandWriter, message.Ref)) {
	for _, v := range []uint64{e.Number, e.Target, e.Source, uint64(e.ID)} {
		w.uint(v)
	}
	w.b = append(w.b, byte(e.Flags), byte(e.Reason))
	w.text(string(e.VHost))
	w.uint(uint64(e.Failed))
	w.raw(n.historyBytes(e.History))
	body(w, e.Body)
}

// outboxes reads what outboxes.append wrote. body reads a body, find finds a source.
func (r *commandReader) outboxes(o *outboxes, body func() (message.Ref, bool), find func(uint64) *Queue) {
	tally := func(source uint64) *outbox.Tally { return find(source).tally() }
	for range r.count(4) {
		s := outbox.State{To: r.uint(), First: r.uint()}
		s.Closed = r.byte() != 0
		for _, list := range []*[]outbox.Entry{&s.Entries, &s.Stranded} {
			for range r.count(10) {
				e, ok := r.outboxEntry(body, o.n)
				if !ok {
					r.bad = true
					return
				}
				*list = append(*list, e)
			}
		}
		if r.bad = r.bad || !o.Restore(&s, tally); r.bad {
			return
		}
		for i := range s.Entries {
			if e := &s.Entries[i]; e.ID != 0 && o.g == nil { // a group's state has it separately
				find(e.Source).waiting.ask(e.ID, e.Target)
			}
		}
	}
	for range r.count(3) {
		from, last := r.uint(), r.uint()
		o.RestoreInbox(from, last, r.refusals())
	}
}

func (r *commandReader) outboxEntry(body func() (message.Ref, bool), n *Node) (e outbox.Entry, ok bool) {
	e = outbox.Entry{Number: r.uint(), Target: r.uint(), Source: r.uint(), ID: r.id(), Flags: outbox.Flags(r.byte())}
	e.Reason = deadletter.Reason(r.byte())
	r.bad = r.bad || e.Reason != 0 && !e.Reason.Valid()
	e.VHost, e.Failed = message.VHost(r.text()), r.small()
	history, _ := r.bytes()
	if r.bad {
		return e, false
	}
	if e.Body, ok = body(); !ok {
		return e, false
	}
	e.History = storeHistory(n.bodies, history)
	return e, true
}
