package partition

import (
	"fmt"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// Operation is one operation of a frame in readable form, for tools. Recovery reads frames by itself.
type Operation struct {
	Kind    string         // its name in the format of frames: "publish", "settle" ...
	Queue   uint64         // the queue it changes, by incarnation; 0 if none
	First   queue.ID       // the entry, or the first of several
	Count   uint64         // how many entries
	Targets []Target       // of a publish or a move
	Record  int            // size of its record, which may be that of the operation before; 0 if it has none
	Serial  message.Serial // of that record
	Reason  deadletter.Reason
	Keeps   bool // of a move: the entry stays where it is
}

// Target is an entry that an operation makes.
type Target struct {
	Queue uint64
	ID    queue.ID
}

// IsFrame says whether a payload of the journal is a frame of this package. The logs of groups are in the same
// journal.
func IsFrame(payload []byte) bool {
	return len(payload) > 0 && payload[0] == frameVersion
}

// ReadOperations calls f for each operation of a frame, until it meets one that it cannot read. REQUIRES:
// IsFrame(payload).
func ReadOperations(payload []byte, f func(*Operation)) error {
	r := &frameReader{all: payload, at: 1}
	for r.more() {
		at := r.at
		code := r.byte()
		o := r.operation(code)
		if r.bad {
			return fmt.Errorf("operation %d at byte %d of the frame: %w", code, at, errFrame)
		}
		if code != opAlike { // which belongs to the next
			f(&o)
		}
	}
	return nil
}

// operation reads the operands of one operation.
func (r *frameReader) operation(code byte) (o Operation) {
	entry := func(kind string) {
		o.Kind, o.Queue, o.First, o.Count = kind, r.uint(), r.id(), 1
	}
	targets := func(extra int) {
		for range r.count(3 + extra) {
			o.Targets = append(o.Targets, Target{r.uint(), r.id()})
			r.time()
			for range extra {
				r.small()
			}
		}
	}
	switch code {
	case opPublish:
		o.Kind = "publish"
		r.recordOf(&o)
		targets(0)
		o.Count = uint64(len(o.Targets))
	case opSettle, opDeliver:
		entry(map[byte]string{opSettle: "settle", opDeliver: "deliver"}[code])
		o.Count = r.run()
	case opReturn:
		entry("return")
		r.small()
		r.small()
		r.time()
	case opDelay:
		entry("delay")
		r.time()
	case opMove:
		entry("move")
		r.bytes()
		o.Keeps = r.byte() != 0
		targets(2)
	case opAlike:
		r.bytes()
	case opEnter:
		entry("enter")
		again := r.byte()&enterAgain != 0
		r.time()
		r.small()
		r.small()
		r.time()
		o.Reason = r.reason(true)
		r.time()
		r.historyOr(again)
		r.recordOf(&o)
	case opHold:
		entry("hold")
		o.Reason = r.reason(false)
		r.time()
	case opNote:
		entry("note")
		r.bytes()
	case opMailOut:
		r.mailOperation(&o)
	case opMailAck:
		o.Kind = "mailAck"
		r.uint()
		r.uint()
		for range r.count(2) {
			r.uint()
			r.byte()
		}
	case opMailIn:
		o.Kind = "mailIn"
		r.uint()
		r.uint()
		r.byte()
		r.uint()
	case opMailBack:
		o.Kind = "mailBack"
		r.uint()
		r.uint()
	case opTally:
		o.Kind = "tally"
		c := r.tally()
		o.Queue, o.Count = c.queue, c.n
	case opHash:
		o.Kind, o.Queue = "hash", r.uint()
		r.uint()
	case opClock:
		o.Kind = "clock"
		r.time()
	case opCut:
		o.Kind = "cut"
	case opLost:
		o.Kind, r.at = "lost", len(r.all)
	default:
		r.tear()
	}
	return o
}

// recordOf reads the record of an operation.
func (r *frameReader) recordOf(o *Operation) {
	b, _ := r.recordBytes()
	if r.torn || message.CheckRecord(b) != nil {
		r.bad = true
		return
	}
	o.Record, o.Serial = len(b), message.Record(b).Serial()
}

// mailOperation reads the operands of a mailOut, whose target is in another log.
func (r *frameReader) mailOperation(o *Operation) {
	r.uint()
	r.uint()
	target := r.uint()
	o.Kind, o.Queue, o.First, o.Count = "mailOut", r.uint(), r.id(), 1
	again := r.byte()&mailAgain != 0
	o.Reason = r.reason(true)
	r.small()
	r.bytes()
	r.historyOr(again)
	o.Targets = []Target{{Queue: target}}
	if id := r.id(); id != 0 {
		o.First = id
	} else if !r.torn {
		r.recordOf(o)
	}
}
