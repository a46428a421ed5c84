package session091

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/queue"
)

// unacked is a delivery that the client has not settled.
type unacked struct {
	tag      uint64
	q        *partition.Queue // nil: settled
	id       queue.ID
	consumer *queue.Consumer // nil: basic.get
	pending  bool            // settled in a transaction not yet committed
}

// unackedList holds a channel's unsettled deliveries in the order of their tags.
//
// A settled entry stays as a hole until it is at the front or the back, or until holes
// are more than what is left: then the list is packed. So the list is at most twice as
// long as what is unsettled, and each delivery is moved a bounded number of times on
// the average, whatever the order in which a client settles.
//
// An entry is found by its tag: tags grow by at least one from entry to entry, so that
// of tag t is at most t-first places behind the first. With no holes packed and no tags
// passed over, it is just there; else it is searched for below.
type unackedList struct {
	list []unacked
	n    int // entries not settled
	// pending is how many of n are settled in a transaction not yet committed.
	pending int
	// passed is a tag up to which upTo has nothing left: who settles many in one
	// transaction, a few at a time, does not pay for those before each time.
	passed uint64
}

// keptUnacked is how many holes a list may have however short it is, and for how many
// entries it keeps room.
const keptUnacked = 1024

// push adds a delivery. REQUIRES: its tag is larger than those before it.
func (l *unackedList) push(u unacked) {
	l.list = append(l.list, u)
	l.n++
}

// find returns the entry of a tag, settled in a transaction or not; nil if there is none.
func (l *unackedList) find(tag uint64) *unacked {
	if len(l.list) == 0 || tag < l.list[0].tag {
		return nil
	}
	at := min(tag-l.list[0].tag, uint64(len(l.list)-1))
	if u := &l.list[at]; u.tag == tag {
		return u.unsettled()
	}
	if i, found := l.search(int(at), tag); found {
		return l.list[i].unsettled()
	}
	return nil
}

// search finds the place of a tag among the first n entries.
func (l *unackedList) search(n int, tag uint64) (int, bool) {
	return slices.BinarySearchFunc(l.list[:n], tag, func(u unacked, tag uint64) int { return cmp.Compare(u.tag, tag) })
}

func (u *unacked) unsettled() *unacked {
	if u.q == nil {
		return nil
	}
	return u
}

// get returns the unsettled entry of tag, nil if there is none. What a transaction
// settles is none.
func (l *unackedList) get(tag uint64) *unacked {
	if u := l.find(tag); u != nil && !u.pending {
		return u
	}
	return nil
}

// inTx returns the entry of tag if it is settled in a transaction.
func (l *unackedList) inTx(tag uint64) *unacked {
	if u := l.find(tag); u != nil && u.pending {
		return u
	}
	return nil
}

// pend settles an entry that get returned in a transaction.
func (l *unackedList) pend(u *unacked) {
	u.pending = true
	l.pending++
}

// unpend takes pend back.
func (l *unackedList) unpend(u *unacked) {
	u.pending = false
	l.pending--
	l.passed = 0
}

// settled removes an entry that get or inTx returned, which is not valid any more.
func (l *unackedList) settled(u *unacked) {
	if u.pending {
		l.pending--
	}
	*u = unacked{tag: u.tag} // the tag keeps the list in order
	l.n--
	l.trim()
}

// trim gives back what the holes take.
func (l *unackedList) trim() {
	if l.n == 0 {
		if l.list = l.list[:0]; cap(l.list) > 4*keptUnacked {
			l.list = nil
		}
		return
	}
	for l.list[len(l.list)-1].q == nil {
		l.list = l.list[:len(l.list)-1]
	}
	if holes := len(l.list) - l.n; holes <= l.n || holes < keptUnacked {
		return
	}
	kept := l.list[:0]
	if room := l.n + keptUnacked; cap(l.list) > 4*room {
		kept = make([]unacked, 0, 2*room)
	}
	for i := range l.list {
		if l.list[i].q != nil {
			kept = append(kept, l.list[i])
		}
	}
	if cap(kept) == cap(l.list) {
		clear(l.list[len(kept):])
	}
	l.list = kept
}

// upTo calls f for each unsettled entry with a tag up to the one given, in order. f
// settles it, at once or in a transaction.
func (l *unackedList) upTo(tag uint64, f func(u *unacked)) {
	i, _ := l.search(len(l.list), l.passed+1)
	for ; i < len(l.list) && l.list[i].tag <= tag; i++ {
		if u := &l.list[i]; u.q != nil && !u.pending {
			f(u)
		}
		l.passed = l.list[i].tag
	}
}

// takeUpTo removes the unsettled entries with a tag up to the one given, and appends
// them to dst in order.
func (l *unackedList) takeUpTo(tag uint64, dst []unacked) []unacked {
	l.upTo(tag, func(u *unacked) {
		dst = append(dst, *u)
		*u = unacked{tag: u.tag}
		l.n--
	})
	l.trim()
	return dst
}

// all appends the entries that are not settled, or only in a transaction, to dst in order.
func (l *unackedList) all(dst []unacked) []unacked {
	for i := range l.list {
		if l.list[i].q != nil {
			dst = append(dst, l.list[i])
		}
	}
	return dst
}
