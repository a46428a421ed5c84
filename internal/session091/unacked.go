package session091

import (
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/queue"
)

// unacked is a delivery that the client has not settled.
type unacked struct {
	q        *partition.Queue // nil: settled, or never to be
	id       queue.ID
	consumer *queue.Consumer // nil: basic.get
	pending  bool            // settled in a transaction not yet committed
}

// unackedRing holds a channel's unsettled deliveries by their tags, which grow
// by one: the entry of tag t stands at t-first.
type unackedRing struct {
	list  []unacked
	start int    // of the first entry in list
	first uint64 // its tag
	n     int    // entries not settled
	// pending is how many of n are settled in a transaction not yet committed.
	pending int
}

// pend settles an entry that get returned in a transaction.
func (r *unackedRing) pend(u *unacked) {
	u.pending = true
	r.pending++
}

// unpend takes pend back.
func (r *unackedRing) unpend(u *unacked) {
	u.pending = false
	r.pending--
}

func (r *unackedRing) size() int { return len(r.list) - r.start }

func (r *unackedRing) push(tag uint64, u unacked) {
	if r.size() == 0 {
		r.list, r.start, r.first = r.list[:0], 0, tag
	}
	if r.start > 1024 && r.start > len(r.list)/2 {
		n := copy(r.list, r.list[r.start:])
		clear(r.list[n:])
		r.list, r.start = r.list[:n], 0
	}
	r.list = append(r.list, u)
	r.n++
}

// skip passes over a tag that needs no settlement.
func (r *unackedRing) skip(tag uint64) {
	if r.size() > 0 {
		r.list = append(r.list, unacked{})
	}
}

// get returns the unsettled entry of tag, nil if there is none.
func (r *unackedRing) get(tag uint64) *unacked {
	if tag < r.first || tag-r.first >= uint64(r.size()) {
		return nil
	}
	u := &r.list[r.start+int(tag-r.first)]
	if u.q == nil || u.pending {
		return nil
	}
	return u
}

// covers says whether tag lies within what the ring holds, settled or not.
func (r *unackedRing) covers(tag uint64) bool {
	return tag >= r.first && tag-r.first < uint64(r.size())
}

// inTx returns the entry of tag if it is settled in a transaction.
func (r *unackedRing) inTx(tag uint64) *unacked {
	if !r.covers(tag) {
		return nil
	}
	if u := &r.list[r.start+int(tag-r.first)]; u.q != nil && u.pending {
		return u
	}
	return nil
}

// settled removes an entry that get or inTx returned.
func (r *unackedRing) settled(u *unacked) {
	if u.pending {
		r.pending--
	}
	*u = unacked{}
	r.n--
	r.trim()
}

func (r *unackedRing) trim() {
	for r.start < len(r.list) && r.list[r.start].q == nil {
		r.start++
		r.first++
	}
	if r.start == len(r.list) {
		r.list, r.start = r.list[:0], 0
	}
}

// upTo calls f for each unsettled entry with a tag up to the one given, in order.
func (r *unackedRing) upTo(tag uint64, f func(tag uint64, u *unacked)) {
	for i := 0; i < r.size() && r.first+uint64(i) <= tag; i++ {
		if u := &r.list[r.start+i]; u.q != nil && !u.pending {
			f(r.first+uint64(i), u)
		}
	}
}
