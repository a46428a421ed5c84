package outbox

import "slices"

// Inbox is what one log has taken from one other.
type Inbox struct {
	from     uint64
	last     uint64   // every entry up to it is answered
	refusals Refusals // the source may not have them in its log yet
}

// From is the source log.
func (b *Inbox) From() uint64 { return b.from }

// Last is the number up to which every entry is answered.
func (b *Inbox) Last() uint64 { return b.last }

// Refusals are the ones that the source may not have in its log yet.
func (b *Inbox) Refusals() Refusals { return b.refusals }

// Accept says whether an entry is the next one; if so it counts as answered: taken, unless Refuse follows.
func (b *Inbox) Accept(number uint64) bool {
	if number != b.last+1 {
		return false // it was answered before, or one before it was not
	}
	b.last = number
	return true
}

// Refuse says that an entry which was accepted does not enter its queue.
func (b *Inbox) Refuse(number uint64, why Answer) {
	b.refusals = append(b.refusals, Refusal{number, why})
}

// Heard forgets the refusals that the source has in its own log.
func (b *Inbox) Heard(upTo uint64) {
	n := 0
	for n < len(b.refusals) && b.refusals[n].Number <= upTo {
		n++
	}
	if b.refusals = b.refusals[n:]; len(b.refusals) == 0 {
		b.refusals = nil
	}
}

// Believe is Heard where the frames that tell of what was taken may be lost: the source sends it no more.
func (b *Inbox) Believe(heard uint64) {
	b.Heard(heard)
	b.last = max(b.last, heard)
}

// Acknowledgement is the answer to a source that has sent entries up to a number. It covers earlier entries too, so a
// resend gets the same answer.
func (b *Inbox) Acknowledgement(sent uint64) (upTo uint64, refused Refusals) {
	return min(b.last, sent), slices.Clone(b.refusals)
}

// Redo notes an answer that the journal tells of.
func (b *Inbox) Redo(number uint64, a Answer, heard uint64) {
	b.last = max(b.last, number)
	if a != Taken && b.refusals.Of(number) == Taken {
		b.Refuse(number, a)
	}
	b.Heard(heard)
}
