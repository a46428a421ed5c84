package outbox

import "bartleby.mq/internal/core/message"

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

// References calls f with the body and the history of each entry.
func (b *Boxes) References(f func(body, history message.Ref)) {
	for _, o := range b.out {
		for _, list := range [][]Entry{o.entries, o.stranded} {
			for i := range list {
				f(list[i].Body, list[i].History)
			}
		}
	}
}
