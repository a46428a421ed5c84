package outbox

import (
	"cmp"
	"slices"
)

// Boxes are the outboxes and inboxes of one log.
type Boxes struct {
	out []*Outbox // by destination
	in  []*Inbox  // by source

	// This process's own; see Took.
	taken   uint64 // how many takes there were
	unheard []take // the newest of them, in order: groups may not know of these
}

// To is the outbox for a log, made if there is none.
func (b *Boxes) To(log uint64) *Outbox {
	i, ok := b.search(log)
	if !ok {
		b.out = slices.Insert(b.out, i, &Outbox{to: log, first: 1})
	}
	return b.out[i]
}

// Find is the outbox for a log, nil if there is none.
func (b *Boxes) Find(log uint64) *Outbox {
	if i, ok := b.search(log); ok {
		return b.out[i]
	}
	return nil
}

func (b *Boxes) search(to uint64) (int, bool) {
	return slices.BinarySearchFunc(b.out, to, func(o *Outbox, to uint64) int { return cmp.Compare(o.to, to) })
}

// Closed says whether a log is gone for good.
func (b *Boxes) Closed(log uint64) bool {
	o := b.Find(log)
	return o != nil && o.closed
}

// Outboxes are all, by destination.
func (b *Boxes) Outboxes() []*Outbox { return b.out }

// From is the inbox for a log, made if there is none.
func (b *Boxes) From(log uint64) *Inbox {
	i, ok := slices.BinarySearchFunc(b.in, log, func(o *Inbox, log uint64) int { return cmp.Compare(o.from, log) })
	if !ok {
		b.in = slices.Insert(b.in, i, &Inbox{from: log})
	}
	return b.in[i]
}

// Taken is the number up to which everything from a log is answered.
func (b *Boxes) Taken(from uint64) uint64 {
	for _, o := range b.in {
		if o.from == from {
			return o.last
		}
	}
	return 0
}

// Inboxes are all, by source.
func (b *Boxes) Inboxes() []*Inbox { return b.in }

// Put puts an entry into the outbox for a log and gives it the next number. Its references pass to the outbox; t is the tally
// of its source. What is returned is for the caller to look at, until the outbox changes.
func (b *Boxes) Put(to uint64, e Entry, t *Tally) *Entry {
	e.after = b.taken
	return b.To(to).put(e, t)
}

// Load is what of an outbox is to be sent next.
type Load struct {
	To      uint64
	Heard   uint64 // the source has all acknowledgements up to it
	Entries []Entry
}

// Load returns what is to be sent next of the k-th outbox: at most `most` entries, perhaps none. ok is false if there is
// no k-th outbox. The references stay the outbox's.
func (b *Boxes) Load(k, most int) (l Load, ok bool) {
	if k >= len(b.out) {
		return Load{}, false
	}
	o := b.out[k]
	l = Load{To: o.to, Heard: o.Acknowledged()}
	o.sent = max(o.sent, o.Acknowledged())
	for _, e := range o.entries[o.sent+1-o.first:] {
		if len(l.Entries) == most || !b.free(&e) {
			break
		}
		l.Entries = append(l.Entries, e)
	}
	return l, true
}

// Sent notes that the destination has answered up to a number; Acknowledge comes when that is in the source's own log.
func (b *Boxes) Sent(to, upTo uint64) {
	if o := b.Find(to); o != nil { // a snapshot may have replaced it
		o.sent = upTo
	}
}

// Resend has everything without an acknowledgement sent again.
func (b *Boxes) Resend() {
	for _, o := range b.out {
		o.sent = 0
	}
}

// Numbers are the next numbers of all outboxes, by destination. A loop over what is stranded takes only entries with
// lower numbers: an entry that finds no place elsewhere is stranded again, under a higher number, and the loop would
// never end.
func (b *Boxes) Numbers() map[uint64]uint64 {
	next := map[uint64]uint64{}
	for _, o := range b.out {
		next[o.to] = o.Next()
	}
	return next
}

// StrandedEntry is an entry in an outbox for a log.
type StrandedEntry struct {
	To uint64
	Entry
}

// Stranded returns the stranded entries that f chooses and that have numbers below the given ones, by destination. It
// skips the first ones and returns at most limit. Their references stay the outbox's.
func (b *Boxes) Stranded(below map[uint64]uint64, f func(*Entry) bool, skip, limit int) (found []StrandedEntry) {
	for _, o := range b.out {
		for i := range o.stranded {
			e := &o.stranded[i]
			switch {
			case len(found) == limit:
				return found
			case e.Number >= below[o.to] || !f(e):
			case skip > 0:
				skip--
			default:
				found = append(found, StrandedEntry{o.to, *e})
			}
		}
	}
	return found
}

// State is what is written down of an outbox.
type State struct {
	To, First         uint64
	Closed            bool
	Entries, Stranded []Entry
}

// State is the outbox as a checkpoint or a snapshot has it. The entries stay the outbox's.
func (b *Outbox) State() State { return State{b.to, b.first, b.closed, b.entries, b.stranded} }

// Restore makes an outbox of its state; the entries pass to it. tally finds the tally of a source. It says
// whether the numbers have no gap. REQUIRES: there is no such outbox yet, or it is empty
func (b *Boxes) Restore(s *State, tally func(source uint64) *Tally) bool {
	o := b.To(s.To)
	o.first, o.closed = s.First, s.Closed
	for _, e := range s.Entries {
		if e.Number != o.Next() {
			return false
		}
		var t *Tally
		if !e.Nothing() {
			t = tally(e.Source)
		}
		o.put(e, t)
	}
	for _, e := range s.Stranded {
		o.stranded = append(o.stranded, e)
		tally(e.Source).add(0, 1)
	}
	return true
}

// RestoreInbox likewise makes an inbox.
func (b *Boxes) RestoreInbox(from, last uint64, refused Refusals) {
	*b.From(from) = Inbox{from, last, refused}
}

// The local partitions of a node are lost with its disk, and groups are not. If a message from a group had gone on to
// another log before the group knew that it was taken, and the disk went then, the group could not tell whether to send
// it elsewhere: it would be lost, or be in two places. So what the local partitions have for other logs waits until the
// groups it may have come from know.
//
//	group ──► local ──┬─ acknowledgement ──► group: decided in its log
//	                  └─ onward, to another log: not before that
//
// None of this is written down: after a start all that was ever taken is looked at anew.

// take is what the local partitions took from a group at once.
type take struct {
	from uint64 // the group
	last uint64 // the number of the last entry
}

// Took notes that entries were taken from a group, up to a number: what is put into an outbox from here on may come of them.
func (b *Boxes) Took(from, last uint64) {
	b.taken++
	b.unheard = append(b.unheard, take{from, last})
}

// free says whether an entry may be sent: the groups know of all takes that it may come of.
func (b *Boxes) free(e *Entry) bool { return e.after <= b.taken-uint64(len(b.unheard)) }

// Retake takes everything that was ever taken as not heard of. REQUIRES: recovery has read all there is.
func (b *Boxes) Retake() {
	b.taken, b.unheard = 0, nil
	for _, o := range b.in {
		b.Took(o.from, o.last)
	}
	for _, o := range b.out {
		for i := range o.entries {
			o.entries[i].after = b.taken
		}
	}
}

// Unheard says whether there are takes that a group may not know of.
func (b *Boxes) Unheard() bool { return len(b.unheard) > 0 }

// HeardBy notes up to which number each group knows that its entries were taken.
func (b *Boxes) HeardBy(known map[uint64]uint64) {
	for len(b.unheard) > 0 && known[b.unheard[0].from] >= b.unheard[0].last {
		b.unheard = b.unheard[1:]
	}
	if len(b.unheard) == 0 {
		b.unheard = nil
	}
}
