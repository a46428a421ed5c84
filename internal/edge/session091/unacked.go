package session091

import (
	"cmp"
	"iter"
	"slices"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
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
// A settled entry stays as a hole until it is at the front or the back, or until there are
// more holes than entries: then the list is packed. So the list is at most twice as long as
// the number of unsettled deliveries, and each delivery moves a bounded number of times on
// average, whatever the order of settlements.
//
// An entry is found by its tag. Tags grow by at least one from entry to entry, so the entry
// of tag t is at most t-first places after the first. If no holes were packed and no tags
// skipped, it is exactly there; otherwise a search before that place finds it.
//
// There may be millions of entries. They are in chunks: one slice would copy all of them when it
// grows, and the garbage collector, and everybody who waits for it, would wait for the copy.
type unackedList struct {
	full  [][]unacked // chunks of chunkUnacked entries each, which precede list
	list  []unacked   // the last chunk; empty if there is no entry
	spare []unacked   // an empty chunk, if one was left
	n     int         // entries not settled
	// pending is how many of n are settled in a transaction not yet committed.
	pending int
	// passed is a tag up to which upTo has nothing left, so that settling many deliveries in
	// one transaction, a few at a time, does not walk the earlier ones each time.
	passed uint64
}

const (
	// keptUnacked is how many holes even a short list may have.
	keptUnacked = 1024
	// chunkUnacked is the capacity of a chunk.
	chunkUnacked = 4 * keptUnacked
)

// len is the number of entries, including holes.
func (l *unackedList) len() int { return len(l.full)*chunkUnacked + len(l.list) }

// chunk is the k-th chunk; the last has index len(l.full).
func (l *unackedList) chunk(k int) []unacked {
	if k < len(l.full) {
		return l.full[k]
	}
	return l.list
}

// push adds a delivery. REQUIRES: its tag is larger than all earlier ones.
func (l *unackedList) push(u unacked) {
	if len(l.list) == cap(l.list) {
		l.grow()
	}
	l.list = append(l.list, u)
	l.n++
}

// grow makes room in the last chunk.
func (l *unackedList) grow() {
	if k := len(l.list); k < chunkUnacked {
		const few = 8
		l.list = append(make([]unacked, 0, min(max(2*k, few), chunkUnacked)), l.list...)
		return
	}
	l.full = append(l.full, l.list)
	if l.list, l.spare = l.spare, nil; l.list == nil {
		l.list = make([]unacked, 0, chunkUnacked)
	}
}

// where is the index of the chunk that has, or would have, the entry of a tag.
func (l *unackedList) where(tag uint64) int {
	if len(l.full) == 0 || tag >= l.list[0].tag {
		return len(l.full)
	}
	k, found := slices.BinarySearchFunc(l.full, tag, func(chunk []unacked, tag uint64) int { return cmp.Compare(chunk[0].tag, tag) })
	if !found {
		k--
	}
	return max(k, 0)
}

// find returns the entry of a tag, settled in a transaction or not; nil if there is none.
func (l *unackedList) find(tag uint64) *unacked {
	chunk := l.chunk(l.where(tag))
	if len(chunk) == 0 || tag < chunk[0].tag {
		return nil
	}
	at := min(tag-chunk[0].tag, uint64(len(chunk)-1))
	if u := &chunk[at]; u.tag == tag {
		return u.unsettled()
	}
	if i, found := search(chunk[:at], tag); found {
		return chunk[i].unsettled()
	}
	return nil
}

// search finds the place of a tag among entries.
func search(list []unacked, tag uint64) (int, bool) {
	return slices.BinarySearchFunc(list, tag, func(u unacked, tag uint64) int { return cmp.Compare(u.tag, tag) })
}

func (u *unacked) unsettled() *unacked {
	if u.q == nil {
		return nil
	}
	return u
}

// get returns the unsettled entry of tag, nil if there is none. An entry that a transaction settles counts as
// settled.
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

// unpend undoes pend.
func (l *unackedList) unpend(u *unacked) {
	u.pending = false
	l.pending--
	l.passed = 0
}

// settled removes an entry that get or inTx returned. The entry is no longer valid afterwards.
func (l *unackedList) settled(u *unacked) {
	if u.pending {
		l.pending--
	}
	*u = unacked{tag: u.tag} // the tag keeps the list in order
	l.n--
	l.trim()
}

// trim frees the memory of holes.
func (l *unackedList) trim() {
	if l.n == 0 {
		l.full, l.list, l.spare = nil, l.list[:0], nil
		return
	}
	for l.list[len(l.list)-1].q == nil {
		if l.list = l.list[:len(l.list)-1]; len(l.list) == 0 {
			last := len(l.full) - 1
			l.spare, l.list, l.full[last] = l.list, l.full[last], nil
			l.full = l.full[:last]
		}
	}
	if holes := l.len() - l.n; holes > l.n && holes >= keptUnacked {
		l.pack()
	}
}

// pack closes the gaps.
func (l *unackedList) pack() {
	k, n := 0, 0 // index of the next entry
	for from := range len(l.full) + 1 {
		for _, u := range l.chunk(from) {
			if u.q == nil {
				continue
			}
			if n == chunkUnacked {
				k, n = k+1, 0
			}
			l.chunk(k)[n] = u
			n++
		}
	}
	last := l.chunk(k)
	clear(last[n:])
	l.list, l.spare = last[:n], nil
	clear(l.full[k:])
	l.full = l.full[:k]
}

// upTo calls f for the first most unsettled entries with a tag up to the given one, in order. f settles each, at once
// or in a transaction.
func (l *unackedList) upTo(tag uint64, most int, f func(u *unacked)) {
	for k := l.where(l.passed + 1); k <= len(l.full); k++ {
		chunk := l.chunk(k)
		i, _ := search(chunk, l.passed+1)
		for ; i < len(chunk); i++ {
			u := &chunk[i]
			if u.tag > tag || most == 0 {
				return
			}
			if u.q != nil && !u.pending {
				f(u)
				most--
			}
			l.passed = u.tag
		}
	}
}

// takeUpTo removes the first most unsettled entries with a tag up to the given one and appends them to dst, in order.
func (l *unackedList) takeUpTo(tag uint64, most int, dst []unacked) []unacked {
	l.upTo(tag, most, func(u *unacked) {
		dst = append(dst, *u)
		*u = unacked{tag: u.tag}
		l.n--
	})
	l.trim()
	return dst
}

// all iterates over the entries that are not settled, or only in a transaction, in order.
func (l *unackedList) all() iter.Seq[*unacked] {
	return func(yield func(*unacked) bool) {
		for k := range len(l.full) + 1 {
			chunk := l.chunk(k)
			for i := range chunk {
				if chunk[i].q != nil && !yield(&chunk[i]) {
					return
				}
			}
		}
	}
}
