package partition

import (
	"bytes"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// The operands of commands about entries and outboxes. Each writer has its reader beside it. The operands of commands
// about queues, publishes and consumers are in command.go.

func (w *commandWriter) reject(q, consumer uint64, id queue.ID, failed bool, note *deadletter.Note) {
	w.op(cmdReject, q)
	w.uint(consumer)
	w.uint(uint64(id))
	var flags byte
	if failed {
		flags |= rejectFailed
	}
	w.said(flags, note, 0)
}

func (w *commandWriter) giveBack(q, consumer uint64, id queue.ID, how queue.ReturnKind, note *deadletter.Note, wait int64) {
	w.op(cmdReturn, q)
	w.uint(consumer)
	w.uint(uint64(id))
	w.said(byte(how), note, wait)
}

// said writes a byte with what the consumer has said of the delivery behind it.
func (w *commandWriter) said(b byte, note *deadletter.Note, wait int64) {
	again := false
	if note != nil {
		w.stored = note.Append(w.stored[:0])
		again = len(w.noted) > 0 && bytes.Equal(w.stored, w.noted)
	}
	switch {
	case again:
		b |= settleAgain
	case note != nil:
		b |= settleNote
	}
	if wait > 0 {
		b |= settleWait
	}
	w.b = append(w.b, b)
	if b&settleNote != 0 {
		w.raw(w.stored)
		w.noted, w.stored = w.stored, w.noted
	}
	if wait > 0 {
		w.span(wait)
	}
}

// said reads what said wrote.
func (r *commandReader) said(s *settlement) (b byte) {
	b = r.byte()
	if b&settleNote != 0 {
		stored, _ := r.bytes()
		note, err := deadletter.ParseNote(stored)
		r.note, r.bad = note, r.bad || err != nil
		s.note = r.note
	}
	if b&settleAgain != 0 {
		r.bad = r.bad || r.note == nil || b&settleNote != 0
		s.note, b = r.note, b&^settleAgain
	}
	if b&settleWait != 0 {
		s.wait = r.time()
	}
	return b &^ (settleNote | settleWait)
}

// settlement has the operands of an ack, a reject or a return, except the queue.
type settlement struct {
	kind     OpKind
	consumer uint64
	first    queue.ID
	count    uint64
	failed   bool             // of a reject
	how      queue.ReturnKind // of a return
	note     *deadletter.Note // of a reject or a return
	wait     int64            // of a return
}

func (r *commandReader) settlement(code byte) settlement {
	s := settlement{consumer: r.uint(), first: r.id(), count: 1}
	switch code {
	case cmdAck:
		s.kind, s.count = Ack, r.run()
	case cmdReject:
		s.kind = Reject
		flags := r.said(&s)
		s.failed = flags != 0
		r.bad = r.bad || flags&^rejectFailed != 0
	case cmdReturn:
		s.kind = Return
		how := r.said(&s)
		r.bad = r.bad || how > byte(queue.ReturnFailed)
		s.how = queue.ReturnKind(how)
	}
	return s
}

func (w *commandWriter) aside(q, consumer uint64, id queue.ID) {
	w.op(cmdAside, q)
	w.uint(consumer)
	w.uint(uint64(id))
}

func (r *commandReader) aside() (consumer uint64, id queue.ID) { return r.uint(), r.id() }

func (w *commandWriter) asideSent(to, number uint64) {
	w.op(cmdAsideSent, to)
	w.uint(number)
}

func (r *commandReader) asideSent() (to, number uint64) { return r.uint(), r.uint() }

// quit begins a quit, with the number of its consumers; seat writes each. The returns follow.
func (w *commandWriter) quit(consumers int) { w.op(cmdQuit, uint64(consumers)) }

// leave begins a leave, and continues like a quit. queues is how many queues of the departure are done with it.
func (w *commandWriter) leave(number, queues uint64, consumers int) {
	w.op(cmdLeave, number)
	w.uint(queues)
	w.uint(uint64(consumers))
}

func (w *commandWriter) seat(q, consumer uint64) {
	w.uint(q)
	w.uint(consumer)
}

func (r *commandReader) seat() (q, consumer uint64) { return r.uint(), r.uint() }

// returns writes how many deliveries a quit or a leave gives back; delivery writes each.
func (w *commandWriter) returns(n int) { w.uint(uint64(n)) }

func (w *commandWriter) delivery(q, consumer uint64, id queue.ID) {
	w.seat(q, consumer)
	w.uint(uint64(id))
}

func (r *commandReader) delivery() (q, consumer uint64, id queue.ID) {
	q, consumer = r.seat()
	return q, consumer, r.id()
}

// The smallest sizes of a seat and of a delivery.
const (
	seatBytes     = 2
	deliveryBytes = 3
)

// dead writes what happens to deaths that share a plan.
func (w *commandWriter) dead(q uint64, p *plan, atLeastOnce bool, history []byte, deaths []queue.Death) {
	w.op(cmdDead, q)
	w.bool(atLeastOnce)
	w.b = append(w.b, byte(p.outcome))
	w.raw(history)
	w.planTargets(p)
	w.uint(uint64(len(deaths)))
	for i := range deaths {
		w.uint(uint64(deaths[i].ID))
	}
}

// dead reads what happens to deaths. The targets follow, for list to read, and then the ids.
func (r *commandReader) dead() (atLeastOnce bool, outcome deadletter.Outcome, history []byte) {
	atLeastOnce, outcome = r.byte() != 0, deadletter.Outcome(r.byte())
	history, _ = r.bytes()
	r.bad = r.bad || outcome >= deadletter.Outcomes
	return atLeastOnce, outcome, history
}

func (w *commandWriter) take(q uint64, id queue.ID, history []byte, p *plan) {
	w.op(cmdTake, q)
	w.uint(uint64(id))
	w.raw(history)
	w.planTargets(p)
}

// take reads an operator's move. The targets follow, for list to read.
func (r *commandReader) take() (id queue.ID, history []byte) {
	id = r.id()
	history, _ = r.bytes()
	return id, history
}

func (w *commandWriter) planTargets(p *plan) {
	w.uint(uint64(len(p.targets) + len(p.remote)))
	for _, t := range p.targets {
		w.uint(0)
		w.uint(t.Incarnation)
	}
	for _, t := range p.remote {
		w.uint(t.log)
		w.uint(t.queue)
	}
}

// reroute writes where a stranded entry goes. code is cmdReroute or cmdRelocate.
func (w *commandWriter) reroute(code byte, to, number uint64, size uint32, priority int, p *plan) {
	w.op(code, to)
	w.uint(number)
	w.uint(uint64(size))
	w.small(priority + 1)
	w.planTargets(p)
}

// reroute reads a reroute or a relocation. The targets follow, for list to read.
func (r *commandReader) reroute() (to, number uint64, size uint32, priority int) {
	return r.uint(), r.uint(), r.small(), r.int() - 1
}

// outIn begins what an outbox sends: n entries with numbers from first on; sent writes each.
func (w *commandWriter) outIn(from, heard, first uint64, n int) {
	w.op(cmdOutIn, from)
	w.uint(heard)
	w.uint(first)
	w.uint(uint64(n))
}

func (r *commandReader) outIn() (from, heard, first uint64, n int) {
	f := &r.frameReader
	f.history, f.record, f.recordAt = nil, nil, 0
	return r.uint(), r.uint(), r.uint(), r.count(5)
}

// sent writes one entry without its number. REQUIRES: its record is whole, and so not empty.
func (w *commandWriter) sent(in *incoming) {
	w.uint(in.target)
	flags := byte(in.flags & outbox.AllFlags)
	if in.sameHistory {
		flags |= mailAgain
	}
	w.b = append(w.b, flags)
	w.uint(uint64(in.failed))
	if !in.sameHistory {
		w.raw(in.history)
	}
	if in.sameRecord {
		w.uint(0)
	} else {
		w.record(in.record)
	}
}

// sent reads one entry without its number, and the offset of its record. The record may be invalid; the receiver then
// refuses the entry.
func (r *commandReader) sent() (in incoming, at int) {
	target, flags := r.uint(), r.byte()
	in.target, in.flags, in.failed = target, outbox.Flags(flags), r.small()
	before := r.recordAt
	in.sameHistory = flags&mailAgain != 0
	r.bad = r.bad || in.sameHistory && before == 0 // there is none before
	in.flags &= outbox.AllFlags
	in.history = r.historyOr(in.sameHistory)
	in.record, at = r.recordBytes()
	in.sameRecord = at == before
	return in, at
}

func (w *commandWriter) outAck(to, upTo uint64, refused outbox.Refusals) {
	w.op(cmdOutAck, to)
	w.uint(upTo)
	w.b = appendRefusals(w.b, refused)
}

// outAck reads the answer to what was sent.
func (r *commandReader) outAck() (to, upTo uint64, refused outbox.Refusals) {
	to, upTo = r.uint(), r.uint()
	return to, upTo, r.refusals()
}
