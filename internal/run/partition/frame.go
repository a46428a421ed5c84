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

// A frame is what one hold of partitions did, as one record of the journal: all
// of it or nothing is there after a crash. It is a version byte and operations,
// each an opcode and its operands; integers are uvarints, "bytes" a length and
// so many bytes. Queues are named by their incarnations.
//
//	publish  record bytes | n | n × (queue, id, due)
//	settle   queue | first id | count     the entries are gone
//	deliver  queue | first id | count     they were delivered and are to be settled
//	return   queue | id | deliveries | acquired | notBefore
//	move     queue | id | history bytes, empty = as in the move before | keep | n | n × (queue, id, due, deliveries, size)
//	         a death: the entry leaves, unless keep is 1, and enters the targets with its body; one with the id 0 has it and keeps
//	         nothing
//	alike    own bytes    the history of the move that follows has these of its own; the rest is that of the move before
//	enter    queue | id | flags | due | deliveries | acquired | notBefore | held reason | died at | history bytes | record bytes
//	         an entry with all its state, whose body the journal did not have; if the flags say that the history is that
//	         of the enter or the mailOut before, it is left out
//	purge    queue | n | n × id           all but these are gone; nobody writes it any more
//	hold     queue | id | reason | died at    the entry is dead and waits for its targets
//	mailOut  log | number | target queue | queue | held id | flags | reason | deliveries | vhost bytes | history bytes | id
//	         the outbox for that log takes an entry: the body of the one with that id, or if it is 0 the record bytes that follow;
//	         the one with the held id waits in its queue for the answer, offered if the flags say that its move was asked for;
//	         its history may be left out as in an enter
//	mailAck  log | up to | n | n × (number | answer)   that log has taken what was sent, but for these; what was offered and nobody has taken is ready again
//	mailIn   log | number | answer | heard             an entry from that log was taken, or refused
//	mailBack log | number                              an entry stranded in the outbox for that log goes elsewhere
//	delay    queue | id | notBefore           an entry that was just published is delivered only from then on
//	hash     queue | u64                  in tests: what the queue's state sums up to now, see queue.StateHash
//	cut                                   a checkpoint has all that was before
//	lost     the rest of the frame        here was damage, and an operator chose to go on without: entries that are named later may be unknown
//
// Record bytes that are none are those of the operation before that has some: what goes to many queues may be too much
// for a frame otherwise.
const (
	frameVersion = 5
	frameBefore  = 3 // without histories and records that are left out
	frameFirst   = 1 // without alike, too; 2 is the first byte of a group's log, 4 of a note (IsDeclared)
)

const (
	opPublish = iota + 1
	opSettle
	opDeliver
	opReturn
	opMove
	opEnter
	opPurge
	opHold
	_ // nobody writes it
	opCut
	opMailOut
	opMailAck
	opMailIn
	opMailBack
	opHash
	opDelay
	opAlike

	opEnd // behind the last
)

// opLost has a number of its own: no program writes it but the repair.
const opLost = 0x7f

// maxRun is how many entries one settle or deliver may name, so that a reader can
// tell a run from nonsense.
const maxRun = 1 << 16

// The flags of an enter operation.
const (
	enterRedelivered = 1 << iota
	enterOut
	enterReturned
	enterOffered
	enterAgain // the history is left out
)

// mailAgain is a flag of a mailOut, beside those of its entry, and of an entry of an outIn: the history is left out.
const mailAgain = 1 << 7

// frame builds a frame. Settles and deliveries of consecutive entries become
// one operation. Nil is the frame of a hold that writes none, since its log has the commands (hold.frame): what happens
// to an entry may be told to it, and is dropped.
type frame struct {
	b []byte

	run      byte // opSettle or opDeliver while a run is open
	runQueue uint64
	runFirst queue.ID
	runCount uint64

	history    message.Ref // of the last move; its bytes need not be repeated
	common     message.Ref // what that has in common with others, 0 if nothing; likewise
	whole      message.Ref // the history of the last enter or mailOut; likewise
	operations int         // so far; of a run, each entry counts
	records    []placed    // records in this frame, to be told where they are; with a reference to each
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

// bytes ends the frame and returns it, nil if nothing happened.
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

// record writes a record's bytes and remembers to tell its place. The reference is
// the frame's until then: a consumer may have got the message meanwhile, and be
// done with it. What lies on disk is sealed, whoever published it. The record of the
// operation before is not repeated.
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

// publish begins a publish operation with n targets, which follow by target. It
// takes a reference to body.
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

// carried is the history of a move: its bytes, and its parts (deathstore.Parts).
type carried struct {
	ref, common message.Ref
	own, bytes  []byte // the same if nothing is common
}

// move begins a move operation with n targets, which follow by moveTarget.
func (f *frame) move(q uint64, id queue.ID, h *carried, keep bool, n int) {
	bytes := h.bytes
	switch {
	case h.ref == f.history:
		bytes = nil
	case h.common != 0 && h.common == f.common:
		f.endRun()
		f.b = append(f.b, opAlike) // of the move, and no operation of its own
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

// entered is the operand of an enter operation.
type entered struct {
	queue      uint64
	id         queue.ID
	r          queue.Restored
	history    []byte
	historyRef message.Ref // stays until the frame is written; 0: nobody else has it
	record     []byte
	recordRef  message.Ref // whose place is to be noted; a reference passes to the frame
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

// again says whether a history is that of the enter or the mailOut before, and notes it if not. Somebody has to keep it
// until the frame is written: else another may get its reference meanwhile.
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

func (f *frame) hash(q, sum uint64) {
	f.begin(opHash)
	f.uint(q)
	f.uint(sum)
}

// LostFrame is what the payload of a frame begins with that takes the place of
// damage, see journal.Fill.
func LostFrame() []byte { return []byte{frameVersion, opLost} }

var errFrame = errors.New("partition: a frame of the journal is malformed")

// frameReader reads a frame. After a fault it returns zeros and bad is set; torn is set
// too if it is not known where what follows begins. A number that is there and makes no
// sense leaves the reader behind it.
type frameReader struct {
	all  []byte
	at   int
	bad  bool
	torn bool

	// Of the operation before that has one.
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

// small reads a number of 32 bits.
func (r *frameReader) small() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// reason reads a reason of death, which is 0 only if optional is set.
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

// bytes returns a view into the frame, and where it begins.
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

// historyOr reads a history, unless it is again that of the operation before.
func (r *frameReader) historyOr(again bool) []byte {
	if !again {
		r.history, _ = r.bytes()
	}
	return r.history
}

// recordBytes reads a record, or has that of the operation before, and where it begins.
func (r *frameReader) recordBytes() (b []byte, at int) {
	if b, at = r.bytes(); len(b) > 0 {
		r.record, r.recordAt = b, at
	}
	return r.record, r.recordAt
}

// count reads a number of things of at least size bytes each.
func (r *frameReader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.all)-min(r.at, len(r.all)))/uint64(size) {
		r.tear()
		return 0
	}
	return int(n)
}
