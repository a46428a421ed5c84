// Package outbox is how a message moves between two logs so that it arrives once, whatever crashes.
//
// It owns the numbers: which entries one log has for another, which of them the other has answered, what is stranded,
// and what came from other logs. It decides and does nothing: package partition holds the locks, the references to
// bodies and histories, and writes what happened to the journal or to a group's log. It never reads a message, never
// looks for a queue, and has no clock.
//
// A log puts an entry into its Outbox for the destination log, in the frame or command that takes the message out of
// its queue. The entry gets the next number, without a gap:
//
//	            first          sent           next
//	  answered    │ on their way │ not sent     │
//	──────────────┼──────────────┼──────────────┼───► numbers
//	  gone,       │  entries: in the outbox     │
//	  or stranded │                             │
//
// The destination's Inbox takes number n+1 after n and nothing else. So one integer for each source is all that it
// remembers, and what is sent again does nothing. Its acknowledgement says up to which number it has answered, with a
// refusal for each entry that it did not take. When the acknowledgement is in the source's own log too, the entry
// is gone.
//
// Invariant: wherever a crash comes, the message is in its queue, or in the outbox, or in the outbox and in its target,
// where the outbox only waits for the acknowledgement.
package outbox

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// Entry is a message on its way to another log.
type Entry struct {
	Number  uint64
	Target  uint64            // the queue it goes to; 0: it only fills a gap (Fill)
	Source  uint64            // the queue it comes from
	ID      queue.ID          // not 0: it stays in its queue, by this id, until its targets have answered
	Flags   Flags             //
	Reason  deadletter.Reason // why it died; 0 for a replay
	VHost   message.VHost     // of its source
	Failed  uint32            // deliveries that failed
	Body    message.Ref       // one reference is the outbox's
	History message.Ref       // likewise

	after uint64 // the takes of this process that it may come of, see Boxes.Took
}

// Flags say how an entry enters its target, and what its answer means.
type Flags uint8

// The flags. They are on disk.
const (
	Force    Flags = 1 << iota // a quorum queue takes it beyond its limit (DL-6.12)
	Counts                     // what becomes of it is the outcome of its death
	Move                       // a client asked for the move: the message is not lost if its target is full
	Impose                     // the target takes it beyond its limit: other targets have it already
	Shared                     // other targets got the same death: if this one is gone, its share has gone with it
	AllFlags = 1<<iota - 1
)

// Offered says whether the entry is in its queue, ready again if no target takes it.
func (e *Entry) Offered() bool { return e.ID != 0 && e.Flags&Move != 0 }

// Nothing says whether the entry takes the place of one that was lost.
func (e *Entry) Nothing() bool { return e.Target == 0 }

// Answer is what a destination says of one entry.
type Answer uint8

// The answers. They are on disk.
const (
	Taken  Answer = iota
	Full          // the queue is full (DL-10.7)
	Gone          // the queue is gone
	Unread        // there was no entry: what was sent took the place of one that could not be read
)

// Refusal says that an entry was not taken.
type Refusal struct {
	Number uint64
	Why    Answer
}

// Refusals are in the order of their numbers.
type Refusals []Refusal

// Of is the answer to an entry that the destination has answered.
func (r Refusals) Of(number uint64) Answer {
	i, ok := slices.BinarySearchFunc(r, number, func(r Refusal, n uint64) int { return cmp.Compare(r.Number, n) })
	if !ok {
		return Taken
	}
	return r[i].Why
}

// Tally counts the messages of one queue that are in outboxes and not in the queue. The queue keeps it; if the queue is
// gone, the tally is nil.
type Tally struct {
	Transit  int // on their way
	Stranded int // their target is gone
}

func (t *Tally) add(transit, stranded int) {
	if t != nil {
		t.Transit += transit
		t.Stranded += stranded
	}
}

// Outbox is what one log has for one other.
type Outbox struct {
	to       uint64
	first    uint64  // the number of entries[0]
	entries  []Entry // on their way, without a gap
	stranded []Entry // answered, and without a place: they wait until they can be routed anew. Their numbers are below first
	closed   bool    // the destination is gone for good

	sent uint64 // this process's own: entries up to it are sent
}

// To is the destination log.
func (b *Outbox) To() uint64 { return b.to }

// Next is the number that the next entry gets.
func (b *Outbox) Next() uint64 { return b.first + uint64(len(b.entries)) }

// Waiting are the entries that have no answer yet. They stay the outbox's: look at them only while it is locked.
func (b *Outbox) Waiting() []Entry { return b.entries }

// Stranded likewise are the entries that have no place.
func (b *Outbox) Stranded() []Entry { return b.stranded }

// Closed says whether the destination is gone for good.
func (b *Outbox) Closed() bool { return b.closed }

// Acknowledged is the number up to which the destination has answered.
func (b *Outbox) Acknowledged() uint64 { return b.first - 1 }

func (b *Outbox) put(e Entry, t *Tally) *Entry {
	e.Number = b.Next()
	b.entries = append(b.entries, e)
	if e.ID == 0 {
		t.add(1, 0)
	}
	return &b.entries[len(b.entries)-1]
}

// Acknowledge takes out the entries up to a number. Settle follows for each of them, in order.
func (b *Outbox) Acknowledge(upTo uint64) []Entry {
	if upTo < b.first {
		return nil
	}
	n := min(upTo-b.first+1, uint64(len(b.entries)))
	answered := b.entries[:n]
	b.first += n
	if b.entries = b.entries[n:]; len(b.entries) == 0 {
		b.entries = nil
	}
	return answered
}

// Close lets nothing be sent any more, and takes all entries out: each is settled as Gone.
func (b *Outbox) Close() []Entry {
	b.closed = true
	return b.Acknowledge(b.Next() - 1)
}

// Fate is what becomes of an entry with its answer.
type Fate uint8

// The fates.
const (
	Nowhere  Fate = iota // it took the place of a lost entry
	Queued               // its message is in its queue, which the answer is for
	Arrived              // it is in its target, or has gone with that
	Refused              // its target was full: the message is dropped
	Stranded             // it has no place, and is in the outbox again: the references stay there
)

// Settle says what becomes of an entry that Acknowledge took out. t is the tally of its source.
//
//	           answer │ Taken    Full             Gone                 Unread
//	──────────────────┼─────────────────────────────────────────────────────────
//	in its queue (ID) │ Queued   Queued           Queued               Queued
//	dead, left        │ Arrived  Refused          Stranded             Stranded
//	  with Move       │ Arrived  Stranded         Stranded             Stranded
//	  with Shared     │ Arrived  as above         Arrived              Stranded
//
// A shared death whose target is gone counts as arrived, as if the target had gone a moment later: routed anew it would
// be twice in the others.
func (b *Outbox) Settle(e *Entry, a Answer, t *Tally) Fate {
	switch {
	case e.Nothing():
		return Nowhere
	case e.ID != 0:
		return Queued
	case a == Gone && e.Flags&Shared == 0, a == Unread, a == Full && e.Flags&Move != 0:
		b.stranded = append(b.stranded, *e)
		t.add(-1, 1)
		return Stranded
	}
	t.add(-1, 0)
	if a == Full {
		return Refused
	}
	return Arrived
}

// TakeStranded takes a stranded entry out: it is routed anew, or given up. t is the tally of its source.
func (b *Outbox) TakeStranded(number uint64, tally func(source uint64) *Tally) (e Entry, ok bool) {
	i := slices.IndexFunc(b.stranded, func(e Entry) bool { return e.Number == number })
	if i < 0 {
		return e, false
	}
	e = b.stranded[i]
	if i == 0 { // as when all are sent elsewhere, one after the other
		b.stranded = b.stranded[1:]
	} else {
		b.stranded = slices.Delete(b.stranded, i, i+1)
	}
	tally(e.Source).add(0, -1)
	return e, true
}

// maxLost is how many entries may be lost with frames: more make no sense.
const maxLost = 1 << 24

// Fill puts nothing in the place of entries that were lost with frames, up to the one of a number: the destination
// takes no number but the next. blank makes the body of each. It says whether that makes sense.
func (b *Outbox) Fill(number uint64, blank func() message.Ref) bool {
	if number > b.Next()+maxLost {
		return false
	}
	for b.Next() < number {
		b.put(Entry{Body: blank()}, nil)
	}
	return true
}

// Knows says whether the entry of a number is in the outbox, on its way.
func (b *Outbox) Knows(number uint64) bool { return b.first <= number && number < b.Next() }

// Redo puts back an entry that the journal tells of. blank is set where frames before may be lost, and the gap they
// leave is to be filled. It says whether the numbers fit; else the references are the caller's. REQUIRES: !Knows(e.Number)
func (b *Outbox) Redo(e Entry, blank func() message.Ref, t *Tally) bool {
	if e.Number < b.first { // it is stranded: only then does the journal have it again
		b.stranded = append(b.stranded, e)
		t.add(0, 1)
		return true
	}
	if blank != nil && !b.Fill(e.Number, blank) {
		return false
	}
	if blank == nil && len(b.entries) == 0 {
		b.first = e.Number
	}
	if e.Number != b.Next() {
		return false
	}
	b.put(e, t)
	return true
}

// Passed notes an acknowledgement whose entries the journal does not have any more.
func (b *Outbox) Passed(upTo uint64) {
	if len(b.entries) == 0 {
		b.first = max(b.first, upTo+1)
	}
}
