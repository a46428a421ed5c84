package index

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/moment"
)

// ID names an entry of a queue: the lane in the upper 8 bits, the sequence
// number within the lane below. IDs are never reused.
type ID uint64

const seqBits = 56

// MakeID is the ID of the entry with this number of a lane.
func MakeID(lane int, seq uint64) ID { return ID(lane)<<seqBits | ID(seq) }

// Lane is the priority level of the entry.
func (id ID) Lane() int { return int(id >> seqBits) }

// Seq is the entry's number within its lane; entries of a lane are in the order
// of their numbers.
func (id ID) Seq() uint64 { return uint64(id) & (1<<seqBits - 1) }

// never is the moment that does not come.
const never = moment.Never

// A lane is the entries of one priority level, in order. It keeps hardly any pages
// but those that have entries, however far apart these lie: a message that nobody
// settles does not make the lane remember all that passed it.
//
// Invariant: slots are in the order of their numbers; one that is empty is in
// memory, being filled or counted in empty; no entry below head is in
// Ready; ready is their number. dues has an alarm for the min of each page,
// wakes one for the wake of each slot, and both may have others.
type lane struct {
	slots []slot
	next  uint64 // the number the next entry gets
	head  uint64
	ready int
	empty int // about how many pages are empty, but for the one being filled
	dues  alarms
	wakes alarms

	swept, spilled span // by PutAway, in the sweep for bodies, and in that for entries

	// In sweeps before, PutAway has left no bodies in memory in the pages of calm. stirred
	// is set if there may be some all the same.
	calm    span
	stirred bool

	// One more than the number of the first page with large set, and with fresh, or less; 0: there is none (warm.go).
	large, fresh uint64
}

// A slot is the place of one page, which is in memory, cold, or split.
type slot struct {
	page   *page // nil while it is cold
	number uint64

	// Of the entries that are in the copy only.
	wake   int64 // earlier than the moment of any
	bytes  int64
	used   uint16 // how many there are
	ready  uint16 // of them in Ready
	logged uint16 // of them
	plain  bool   // all are in Ready
	outs   bool   // some are in Out: the copy was made before this process, since nothing that is out is put away

	saved uint32 // the version of the copy of a cold page
}

// cold says whether the entry at i, if it is there, is in the copy only.
func (s *slot) cold(i uint) bool { return s.page == nil || s.page.isAway(i) }

// search returns where the page with number n is in slots, or would be.
func (l *lane) search(n uint64) (k int, ok bool) {
	if len(l.slots) == 0 || n < l.slots[0].number {
		return 0, false
	}
	// Mostly pages follow each other without a gap.
	if at := n - l.slots[0].number; at < uint64(len(l.slots)) && l.slots[at].number == n {
		return int(at), true
	}
	if last := len(l.slots) - 1; n >= l.slots[last].number {
		if n == l.slots[last].number {
			return last, true
		}
		return last + 1, false
	}
	return slices.BinarySearchFunc(l.slots, n, func(s slot, n uint64) int { return cmp.Compare(s.number, n) })
}

// loaded returns the page with number n if it is in memory, or some of it, else nil.
func (l *lane) loaded(n uint64) *page {
	if k, ok := l.search(n); ok {
		return l.slots[k].page
	}
	return nil
}

// at returns the place of seq, in which nothing is if there is no such entry.
func (ix *Index) at(l *lane, level int, seq uint64) Place {
	k, ok := l.search(seq / PageSize)
	if !ok {
		return Place{}
	}
	p, i := l.slots[k].page, uint(seq%PageSize)
	if l.slots[k].cold(i) {
		p = ix.resident(l, level, k)
	}
	if !p.live.has(i) {
		return Place{}
	}
	return Place{p, i}
}

// slotFor makes room for seq, which may lie anywhere: recovery enters with gaps,
// and not in order.
func (ix *Index) slotFor(l *lane, level int, seq uint64) (*page, uint) {
	n := seq / PageSize
	room := 0 // as much as the page before needs now
	if last := len(l.slots) - 1; last >= 0 && l.slots[last].number != n && l.slots[last].page != nil {
		if p := l.slots[last].page; p.used == 0 && p.rest == nil {
			ix.drop(l, last) // it is not being filled any more
		} else {
			room = classFor(int(p.used))
		}
	}
	k, ok := l.search(n)
	if !ok {
		l.slots = slices.Insert(l.slots, k, slot{page: ix.pages.get(level, n, room), number: n, wake: never})
		ix.grown(l)
	}
	return ix.resident(l, level, k), uint(seq % PageSize)
}

// freed is called when an entry of p has gone; it gives back the memory that p does
// not need any more, or p, and others with it, if it is empty.
func (ix *Index) freed(l *lane, p *page) {
	switch filling := p.number >= l.next/PageSize; {
	case filling && p.used == 0 && p.room() > idleRoom:
		ix.pages.reform(p, bitmap{}, classFor(idleRoom))
	case filling:
	case p.used == 0 && p.rest == nil:
		ix.emptied(l, p)
	case p.sparse() && p.number != l.head/PageSize: // the head goes soon
		ix.pages.shrink(p)
	}
}

// keepEmpty is how many empty pages a lane may have, or one in emptyShare if that
// are more.
const (
	keepEmpty  = 16
	emptyShare = 16
)

// emptied is called when the last entry of a page has gone, which is not being
// filled. It goes at once if it is the lane's first, and with others if it is not:
// each time the slots behind are moved, and a lane may have very many.
func (ix *Index) emptied(l *lane, p *page) {
	if l.slots[0].page == p {
		ix.drop(l, 0)
		ix.dropSpent(l)
		return
	}
	if l.empty++; l.empty > max(keepEmpty, len(l.slots)/emptyShare) {
		kept := l.slots[:0]
		for _, s := range l.slots {
			if l.spent(&s) {
				ix.giveUp(s.page)
			} else {
				kept = append(kept, s)
			}
		}
		clear(l.slots[len(kept):])
		l.slots, l.empty = kept, 0
	}
}

// dropSpent takes empty pages out that are the lane's first.
func (ix *Index) dropSpent(l *lane) {
	for len(l.slots) > 0 && l.spent(&l.slots[0]) {
		ix.drop(l, 0)
		l.empty--
	}
}

// spent says whether the slot's page is empty and will stay so.
func (l *lane) spent(s *slot) bool {
	return s.page != nil && s.page.used == 0 && s.page.rest == nil && s.number < l.next/PageSize
}

// idleRoom is the room of a page that is being filled once it was empty.
const idleRoom = 16

// drop takes the page at k, which is empty, out of the lane.
func (ix *Index) drop(l *lane, k int) {
	p := l.slots[k].page
	l.cut(k)
	ix.giveUp(p)
}

// giveUp gives a page up that is empty and in no lane any more.
func (ix *Index) giveUp(p *page) {
	if len(p.before) > 0 {
		ix.late = append(ix.late, p) // not saved here: where a queue ends many go at once
		return
	}
	ix.discard(p, ix.pages.savingAs(p.dirty)) // it may have been empty at the cut
	ix.pages.put(p)
}

// cut takes the slot at k out.
func (l *lane) cut(k int) {
	if k == 0 {
		l.slots[0] = slot{}
		l.slots = l.slots[1:]
		return
	}
	l.slots = slices.Delete(l.slots, k, k+1)
}

// FirstIn returns the first entry of a level that is in Ready. REQUIRES: ReadyIn(level) > 0.
func (ix *Index) FirstIn(level int) (ID, Place) {
	l := ix.lanes[level]
	from := l.head / PageSize
	k, _ := l.search(from)
	for ; ; k++ {
		s := &l.slots[k]
		if s.ready > 0 {
			ix.resident(l, level, k)
		}
		p := s.page
		if p == nil {
			continue
		}
		begin := uint(0)
		if p.number == from {
			begin = uint(l.head % PageSize)
		}
		if i := p.ready.next(begin); i < PageSize {
			l.head = p.number*PageSize + uint64(i)
			return MakeID(level, l.head), Place{p, i}
		}
	}
}

// remind sets the minimum of a page.
func (l *lane) remind(p *page, at int64) {
	if p.min = at; at == never {
		return
	}
	l.dues.push(alarm{at, p.number})
	if len(l.dues) > 2*len(l.slots)+keepAlarms {
		l.remake(&l.dues, func(s *slot) int64 {
			if s.page == nil {
				return never
			}
			return s.page.min
		})
	}
}

// remake drops the alarms that do not hold any more.
func (l *lane) remake(a *alarms, at func(*slot) int64) {
	list := (*a)[:0]
	for k := range l.slots {
		if s := &l.slots[k]; at(s) != never {
			list = append(list, alarm{at(s), s.number})
		}
	}
	list.heapify()
	*a = list
}
