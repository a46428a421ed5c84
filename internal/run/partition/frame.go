package partition

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
)

// A frame is what one hold of partitions did, as one record of the journal. After a crash either all of it is there
// or nothing. It is a version byte and operations; an operation is an opcode and operands. Integers are uvarints.
// "bytes" is a length and that many bytes. Queues are named by their incarnations.
//
//	publish  record bytes | n | n × (queue, id, due)
//	settle   queue | first id | count     the entries are gone
//	deliver  queue | first id | count     they were delivered and are to be settled
//	return   queue | id | deliveries | acquired | notBefore
//	move     queue | id | history bytes, empty = as in the move before | keep | n | n × (queue, id, due, deliveries, size)
//	         a death: the entry enters the targets with its body, and leaves its queue unless keep is 1. A target with the
//	         id 0 has taken the message and stores nothing
//	alike    own bytes    the next move's history has these bytes of its own; the rest is as in the move before
//	enter    queue | id | flags | due | deliveries | acquired | notBefore | held reason | died at | history bytes | record bytes
//	         an entry with its whole state, whose body the journal did not have. A flag says that the history is that of the
//	         enter or mailOut before; then it is left out
//	hold     queue | id | reason | died at    the entry is dead and waits for its targets
//	mailOut  log | number | target queue | queue | held id | flags | reason | deliveries | vhost bytes | history bytes | id
//	         the outbox for that log takes an entry. Its body is that of the entry id, or, if id is 0, the record bytes that
//	         follow. The entry "held id" waits in its queue for the answer; a flag says that it is offered. The history may be
//	         left out as in an enter
//	mailAck  log | up to | n | n × (number | answer)   that log has answered up to this number: taken, except for the n listed.
//	         An offered entry that no target has taken is ready again
//	mailIn   log | number | answer | heard             an entry from that log was taken or refused
//	mailBack log | number                              an entry stranded in the outbox for that log was relocated
//	delay    queue | id | notBefore           an entry just published is delivered only from then on
//	tally    queue | job | outcome | count    entries that the job has sent to the queue came, or went so (JobOutcome)
//	note     queue | id | history bytes       the entry has this history: it has a note of the death that follows
//	hash     queue | u64                  in tests: the state hash of the queue now, see queue.StateHash
//	clock    moment                       what the node's clock showed when the frame was written, see noteClock
//	cut                                   a checkpoint has everything before
//	lost     the rest of the frame        damage was here, and an operator chose to go on without it: later operations may name
//	         unknown entries
//
// Empty record bytes mean the record of the last operation that had one. Otherwise a message to many queues might not
// fit into a frame.
const frameVersion = 1 // 2 is the first byte of a group's log, 4 of a note (IsDeclared)

const (
	opPublish = iota + 1
	opSettle
	opDeliver
	opReturn
	opMove
	opEnter
	opHold
	opCut
	opMailOut
	opMailAck
	opMailIn
	opMailBack
	opHash
	opDelay
	opAlike
	opTally
	opNote
	opClock

	opEnd // one more than the last
)

// opLost has a number apart: only the repair writes it.
const opLost = 0x7f

// maxRun is how many entries one settle or deliver may name. With a limit a reader can tell a run from nonsense.
const maxRun = 1 << 16

// The flags of an enter operation.
const (
	enterRedelivered = 1 << iota
	enterOut
	enterReturned
	enterOffered
	enterAgain // the history is left out
)

// mailAgain is a flag of a mailOut, and of an entry of an outIn, beside the flags of the entry itself: the history is
// left out.
const mailAgain = 1 << 7

// frame builds a frame. Settles and deliveries of consecutive entries become one operation. A nil *frame belongs to a
// hold of a group, whose log has the commands: it ignores what happens to entries (hold.frame).
type frame struct {
	b []byte

	run      byte // opSettle or opDeliver while a run is open
	runQueue uint64
	runFirst queue.ID
	runCount uint64

	history    message.Ref // of the last move: need not be repeated
	common     message.Ref // the part of it that similar histories share, 0 if none
	whole      message.Ref // the history of the last enter or mailOut
	operations int         // so far; each entry of a run counts
	records    []placed    // the records in this frame, with a reference to each; writeFrame tells bodies where they are
}

// placed is a record in a frame.
type placed struct {
	body message.Ref
	at   uint32
}

func (f *frame) reset() {
	if f == nil {
		return
	}
	f.b = append(f.b[:0], frameVersion)
	f.run, f.history, f.common, f.whole, f.operations = 0, 0, 0, 0, 0
	f.records = f.records[:0]
}

// bytes ends the frame and returns it, or nil if nothing happened.
func (f *frame) bytes() []byte {
	if f == nil {
		return nil
	}
	f.endRun()
	if len(f.b) <= 1 {
		return nil
	}
	return f.b
}

func (f *frame) uint(v uint64) { f.b = binary.AppendUvarint(f.b, v) }

// moment writes a moment, which is never negative.
func (f *frame) moment(v int64) { f.uint(uint64(max(v, 0))) }

func (f *frame) begin(op byte) {
	f.endRun()
	f.b = append(f.b, op)
	f.operations++
}

func (f *frame) endRun() {
	if f.run == 0 {
		return
	}
	f.b = append(f.b, f.run)
	f.run = 0
	f.uint(f.runQueue)
	f.uint(uint64(f.runFirst))
	f.uint(f.runCount)
	f.operations += int(f.runCount)
}

func (f *frame) extend(op byte, q uint64, id queue.ID) {
	if f == nil {
		return
	}
	if f.run == op && f.runQueue == q && f.runCount < maxRun && f.runFirst+queue.ID(f.runCount) == id {
		f.runCount++
		return
	}
	f.endRun()
	f.run, f.runQueue, f.runFirst, f.runCount = op, q, id, 1
}

func (f *frame) settle(q uint64, id queue.ID) { f.extend(opSettle, q, id) }
func (f *frame) settleRun(q uint64, first queue.ID, n int) {
	for k := range n {
		f.settle(q, first+queue.ID(k))
	}
}

func (f *frame) deliver(q uint64, id queue.ID) { f.extend(opDeliver, q, id) }

// record writes a record and remembers its place in the frame; writeFrame tells the bodies where it then is. The frame
// holds a reference until then, because a consumer may get the message and settle it meanwhile. Every record on disk
// is sealed. The record of the operation before is not repeated.
func (f *frame) record(body message.Ref, r []byte) {
	if k := len(f.records); body != 0 && k > 0 && f.records[k-1].body == body {
		f.uint(0)
		f.records = append(f.records, f.records[k-1])
		return
	}
	f.uint(uint64(len(r)))
	at := len(f.b)
	f.records = append(f.records, placed{body, uint32(at)})
	f.b = append(f.b, r...)
	if r := message.Record(f.b[at:]); !r.Sealed() {
		r.Seal()
	}
}

// publish begins a publish operation with n targets; target writes each. The frame takes over a reference to body.
func (f *frame) publish(body message.Ref, r []byte, n int) {
	f.begin(opPublish)
	f.record(body, r)
	f.uint(uint64(n))
}

func (f *frame) target(q uint64, id queue.ID, due int64) {
	f.uint(q)
	f.uint(uint64(id))
	f.moment(due)
}

func (f *frame) comeBack(q uint64, id queue.ID, n queue.Counts, notBefore int64) {
	if f == nil {
		return
	}
	f.begin(opReturn)
	f.uint(q)
	f.uint(uint64(id))
	f.uint(uint64(n.Deliveries))
	f.uint(uint64(n.Acquired))
	f.moment(notBefore)
}

func (f *frame) delay(q uint64, id queue.ID, notBefore int64) {
	f.begin(opDelay)
	f.uint(q)
	f.uint(uint64(id))
	f.moment(notBefore)
}

// carried is the history of a move: its bytes, and its division into parts (deathstore.Parts).
type carried struct {
	ref, common message.Ref
	own, bytes  []byte // equal if nothing is common
}

// move begins a move operation with n targets; moveTarget writes each.
func (f *frame) move(q uint64, id queue.ID, h *carried, keep bool, n int) {
	bytes := h.bytes
	switch {
	case h.ref == f.history:
		bytes = nil
	case h.common != 0 && h.common == f.common:
		f.endRun()
		f.b = append(f.b, opAlike) // part of the move, not counted as an operation
		f.uint(uint64(len(h.own)))
		f.b = append(f.b, h.own...)
		bytes = nil
	}
	f.history, f.common = h.ref, h.common
	f.begin(opMove)
	f.uint(q)
	f.uint(uint64(id))
	f.uint(uint64(len(bytes)))
	f.b = append(f.b, bytes...)
	if keep {
		f.b = append(f.b, 1)
	} else {
		f.b = append(f.b, 0)
	}
	f.uint(uint64(n))
}

func (f *frame) moveTarget(q uint64, id queue.ID, due int64, deliveries, size uint32) {
	f.target(q, id, due)
	f.uint(uint64(deliveries))
	f.uint(uint64(size))
}

// entered has the operands of an enter operation.
type entered struct {
	queue      uint64
	id         queue.ID
	r          queue.Restored
	history    []byte
	historyRef message.Ref // must live until the frame is written; 0: no history to share
	record     []byte
	recordRef  message.Ref // its place is noted; the frame takes over a reference
}

func (f *frame) enter(e *entered) {
	f.begin(opEnter)
	f.uint(e.queue)
	f.uint(uint64(e.id))
	var flags byte
	if e.r.Redelivered {
		flags |= enterRedelivered
	}
	if e.r.Out {
		flags |= enterOut
	}
	if e.r.Returned {
		flags |= enterReturned
	}
	if e.r.Offered {
		flags |= enterOffered
	}
	again := f.again(e.historyRef)
	if again {
		flags |= enterAgain
	}
	f.b = append(f.b, flags)
	f.moment(e.r.Due)
	f.uint(uint64(e.r.Counts.Deliveries))
	f.uint(uint64(e.r.Counts.Acquired))
	f.moment(e.r.NotBefore)
	f.uint(uint64(e.r.Held))
	f.moment(e.r.DiedAt)
	if !again {
		f.raw(e.history)
	}
	f.record(e.recordRef, e.record)
}

// again says whether the history is that of the enter or mailOut before, and remembers it otherwise. The caller keeps
// the history alive until the frame is written, or another history might get the same reference.
func (f *frame) again(history message.Ref) bool {
	before := f.whole
	f.whole = history
	return history != 0 && history == before
}

func (f *frame) hold(q uint64, id queue.ID, reason uint8, at int64) {
	if f == nil {
		return
	}
	f.begin(opHold)
	f.uint(q)
	f.uint(uint64(id))
	f.uint(uint64(reason))
	f.moment(at)
}

func (f *frame) note(q uint64, id queue.ID, history []byte) {
	if f == nil {
		return
	}
	f.begin(opNote)
	f.uint(q)
	f.uint(uint64(id))
	f.raw(history)
}

// clock is no operation of its own in what is counted: it comes with others.
func (f *frame) clock(now int64) {
	f.endRun()
	f.b = append(f.b, opClock)
	f.moment(now)
}

func (f *frame) hash(q, sum uint64) {
	f.begin(opHash)
	f.uint(q)
	f.uint(sum)
}

// LostFrame is the beginning of the payload of a frame that replaces damage: see journal.Fill.
func LostFrame() []byte { return []byte{frameVersion, opLost} }

var errFrame = errors.New("partition: a frame of the journal is malformed")

// frameReader reads a frame. After a fault it returns zeros, and bad is set. torn is set too if the beginning of the
// next operand is unknown. A complete but impossible number sets only bad, and the reader stands behind it.
type frameReader struct {
	all  []byte
	at   int
	bad  bool
	torn bool

	// From the last operation that had one.
	history  []byte
	record   []byte
	recordAt int
}

func (r *frameReader) tear() { r.bad, r.torn = true, true }

func (r *frameReader) more() bool { return !r.bad && r.at < len(r.all) }

func (r *frameReader) byte() byte {
	if r.at >= len(r.all) {
		r.tear()
		return 0
	}
	r.at++
	return r.all[r.at-1]
}

func (r *frameReader) uint() uint64 {
	v, n := binary.Uvarint(r.all[min(r.at, len(r.all)):])
	if n <= 0 {
		r.tear()
		return 0
	}
	r.at += n
	return v
}

func (r *frameReader) id() queue.ID { return queue.ID(r.uint()) }

// time reads a moment, which is never negative.
func (r *frameReader) time() int64 {
	at, ok := moment.Read(r.uint())
	r.bad = r.bad || !ok
	return at
}

// small reads a number of at most 32 bits.
func (r *frameReader) small() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// reason reads a reason of death. It may be 0 only if optional is set.
func (r *frameReader) reason(optional bool) deadletter.Reason {
	v := r.uint()
	if v == 0 && optional {
		return 0
	}
	if v > math.MaxUint8 || !deadletter.Reason(v).Valid() {
		r.bad = true
		return 0
	}
	return deadletter.Reason(v)
}

// run reads how many entries a settle or a deliver names.
func (r *frameReader) run() uint64 {
	n := r.uint()
	if n > maxRun {
		r.bad = true
		return 0
	}
	return n
}

// bytes returns a view into the frame and its offset.
func (r *frameReader) bytes() (b []byte, at int) {
	n := r.uint()
	if r.torn || n > uint64(len(r.all)-r.at) {
		r.tear()
		return nil, 0
	}
	at = r.at
	r.at += int(n)
	return r.all[at:r.at:r.at], at
}

// historyOr reads a history, or returns the last one if again is set.
func (r *frameReader) historyOr(again bool) []byte {
	if !again {
		r.history, _ = r.bytes()
	}
	return r.history
}

// recordBytes returns a record and its offset: the one that follows, or the last one if that is empty.
func (r *frameReader) recordBytes() (b []byte, at int) {
	if b, at = r.bytes(); len(b) > 0 {
		r.record, r.recordAt = b, at
	}
	return r.record, r.recordAt
}

// count reads how many things of at least size bytes each follow.
func (r *frameReader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.all)-min(r.at, len(r.all)))/uint64(size) {
		r.tear()
		return 0
	}
	return int(n)
}
