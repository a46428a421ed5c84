package index

import (
	"slices"

	"bartleby.mq/internal/core/message"
)

// Cold is the world a queue puts pages into that have no room in memory, and
// bodies. It is for one queue. A queue has no answer to a disk that fails: an
// implementation that cannot do what it is asked must not return.
type Cold interface {
	// Locate is where a body lies on disk, 0 if nowhere.
	Locate(body message.Ref) (location uint64)
	// Cool exchanges a reference to a body in memory for one to its place on disk,
	// where it is written first if need be. It returns body if that is impossible.
	Cool(body message.Ref) message.Ref
	// At is the reference to the body at a location. References to places on disk
	// go on being counted while their page is cold.
	At(location uint64) message.Ref

	// Parts are what a history has in common with others, 0 if nothing, and the bytes of its
	// own; they are valid as long as it is. Bytes are those of what is common, which may be read from disk. Keep makes a
	// history of both, of its own bytes alone if there are no others; Retain and Release add
	// and give up a reference.
	Parts(history message.Ref) (common message.Ref, own []byte)
	Bytes(common message.Ref) []byte
	Keep(common, own []byte) message.Ref
	Retain(history message.Ref)
	Release(history message.Ref)

	// Write keeps a page under its name and a summary of it.
	Write(id PageID, page, summary []byte)
	// Read returns a page; it is valid until the next call.
	Read(id PageID) []byte
	// WriteDelta keeps the delta of a page, which Read is not asked for.
	WriteDelta(id PageID, delta []byte)
	// WriteMeta keeps what saveMeta is about.
	WriteMeta(version uint32, meta []byte)
	// Discard is told that a page is not needed any more once the checkpoint of
	// version by is whole: at once if the page's own version is not less.
	Discard(id PageID, by uint32)
	// DiscardDelta is the same for a delta.
	DiscardDelta(id PageID, by uint32)
	// Fail is told of a page that Read returned and that is nonsense.
	Fail(id PageID, err error)
}

// PageID names a copy of a page of a queue.
type PageID struct {
	Lane    int
	Number  uint64
	Version uint32
}

// SetCold tells the machine where its pages may go; without, all stay in memory
// and there are no checkpoints. Call it before the first command.
func (ix *Index) SetCold(c Cold) { ix.cold = c }

// HotPages is how many pages at each end of a lane are usually not put away.
const HotPages = 16

// A relief is how much of putting away is done at once: the queue's partition is held meanwhile.
type relief struct {
	pages int   // that are looked into
	write int64 // bytes of bodies that are nowhere on disk, and of pages, that are written there
	give  int64 // bytes of bodies that leave memory
}

// over says whether there is to be no more. The last body may be more than is left of the bytes.
func (r *relief) over() bool { return r.pages <= 0 || r.write <= 0 || r.give <= 0 }

const (
	putAwayBytes = 8 << 20  // relief.write at most
	putAwayGiven = 32 << 20 // relief.give at most: memory that goes back to the system is work for it
)

// PutAway takes pages out of memory that stand neither near the head nor near
// the tail of their lane: their bodies, and with index also their entries. It
// handles at most limit pages, fewer if their bodies are many bytes, and returns
// how many it handled, limit if there were so many bytes; 0 means that there are no others.
func (ix *Index) PutAway(limit int, index bool) (handled int) {
	r := relief{limit, putAwayBytes, putAwayGiven}
	ix.putAway(&r, index)
	if r.over() {
		return limit
	}
	return limit - r.pages
}

// A span is the pages that a sweep has looked at: those from from to below to; to = 0: none.
type span struct{ from, to uint64 }

func (s *span) has(number uint64) bool { return number >= s.from && number < s.to }

// middle returns which slots of a lane stand neither near its head nor near its tail.
func (ix *Index) middle(l *lane) (begin, end int) {
	hot := ix.pages.Hot
	if len(l.slots) <= 2*hot {
		return 0, 0
	}
	begin, _ = l.search(l.head / PageSize)
	begin += hot
	end = len(l.slots) - max(hot, 1) // the last one is being filled
	return begin, max(begin, end)
}

func (ix *Index) putAway(r *relief, index bool) {
	if ix.cold == nil || ix.pages.version == 0 {
		return
	}
	looks := 0
	put := func(l *lane, level, k int) (done bool) {
		s := &l.slots[k]
		p := s.page
		if p == nil || s.used > 0 || p.bodies == bodiesGone && !index { // cold or split; there may be very many
			if looks++; looks%64 == 0 {
				r.pages--
			}
			return true
		}
		r.pages--
		if !ix.chill(p, r) {
			return false
		}
		l.stirred = l.stirred || p.bodies != bodiesGone
		if index && p.bodies == bodiesGone && ix.quiet(p) {
			before := ix.pages.wrote
			ix.spill(l, level, k)
			r.write -= ix.pages.wrote - before
		}
		return true
	}
	for level, l := range ix.lanes {
		if l == nil {
			continue
		}
		begin, end := ix.middle(l)
		if begin == end {
			continue
		}
		swept := &l.swept
		if index {
			swept = &l.spilled
		}
		if k, _ := l.search(swept.to); k < begin {
			swept.to = 0 // what it looked at has gone
		}
		if swept.to == 0 {
			*swept = span{l.slots[end].number, l.slots[end].number}
		}
		// First what became the tail's neighbour meanwhile; then towards the head:
		// what is furthest from it will be needed last.
		k, _ := l.search(swept.to)
		for ; k < end && !r.over(); k++ {
			n := l.slots[k].number
			if !put(l, level, k) {
				return
			}
			swept.to = n + 1
		}
		if k, _ = l.search(swept.from); k > end && !index {
			l.stirred = true // the pages between were not looked at
		}
		for k = min(k, end) - 1; k >= begin && !r.over(); k-- {
			n := l.slots[k].number
			if !index && l.calm.has(n) {
				swept.from = l.calm.from
				k, _ = l.search(l.calm.from)
				continue
			}
			if !put(l, level, k) {
				return
			}
			swept.from = n
		}
	}
}

// SweepAgain lets PutAway begin anew, with index or without. Without, it passes over pages in which it has
// left no bodies: it need not look at all of a long queue to find that only the last
// pages have any.
func (ix *Index) SweepAgain(index bool) {
	for _, l := range ix.lanes {
		if l != nil {
			l.sweepAgain(index)
		}
	}
}

func (l *lane) sweepAgain(index bool) {
	if index {
		l.spilled = span{}
		return
	}
	switch s, c := l.swept, &l.calm; {
	case l.stirred:
		*c, l.stirred = span{}, false
	case s.to == 0:
	case s.from <= c.to && c.from <= s.to:
		*c = span{min(c.from, s.from), max(c.to, s.to)}
	case s.to-s.from > c.to-c.from:
		*c = s
	}
	l.swept = span{}
}

// stir is called for a page of the lane that has bodies in memory, or will have.
func (l *lane) stir(p *page) {
	l.stirred = l.stirred || l.calm.has(p.number) || l.swept.has(p.number)
}

// chill lets the bodies of a page go to disk, as far as r allows, and says whether that was far enough.
func (ix *Index) chill(p *page, r *relief) (done bool) {
	if p.bodies == bodiesGone {
		return true
	}
	gone := true
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		j := p.at(i)
		if p.refs[j].OnDisk() {
			continue
		}
		if r.write <= 0 || r.give <= 0 {
			return false
		}
		gone = ix.banish(p, j, r) && gone
	}
	p.chilled(gone)
	return true
}

// banish lets a body go to disk that is in memory, and says whether it has gone.
func (ix *Index) banish(p *page, j uint, r *relief) bool {
	written := ix.cold.Locate(p.refs[j]) != 0
	if p.refs[j] = ix.cold.Cool(p.refs[j]); !p.refs[j].OnDisk() {
		return false // it is passed over, and takes nothing of r from those behind it
	}
	if !written {
		r.write -= int64(p.sizes[j])
	}
	r.give -= int64(p.sizes[j])
	return true
}

// quiet says whether nobody waits for an entry of the page: none is delivered,
// none is about to be routed.
func (ix *Index) quiet(p *page) bool {
	busy := func(mark uint8) bool { return mark&stateMask == Out || mark&stateMask == Dying }
	if p.ranked {
		return !slices.ContainsFunc(p.marks[:p.used], busy)
	}
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if busy(p.marks[i&uint(p.mask)]) {
			return false
		}
	}
	return true
}

// spill takes a page with its entries out of memory, but for those that are soon due.
func (ix *Index) spill(l *lane, level, k int) {
	s := &l.slots[k]
	p := s.page
	var at moments
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if ix.watches(p.state(i)) {
			at[i] = ix.due(p, i)
		}
	}
	near, wake, ok := ix.near(s.number, &at, p.live, ix.clock)
	rest := p.live.less(near)
	if !ok || rest == (bitmap{}) {
		return // it goes soon
	}
	if !p.stored() {
		ix.saveCopy(p, ix.flatten(p))
	}
	if p.dirty != 0 {
		ix.saveCopy(p, ix.flatten(p)) // that was for the checkpoint being written, of what it was at its cut
	}
	if !p.stored() {
		return
	}
	ix.leave(s, p, rest, ix.pages.summarize(ix.flatten(p), rest))
	ix.setWake(l, k, wake)
	ix.part(p)
	if near == (bitmap{}) {
		s.page, s.saved = nil, p.saved
		ix.pages.put(p)
	}
}

// release gives back what entries of a page hold beside their columns: side rows
// and references to histories.
func (ix *Index) release(p *page, set bitmap) {
	if p.rows == nil && p.histories == nil {
		return
	}
	for i := set.next(0); i < PageSize; i = set.next(i + 1) {
		ix.dropSide(p, i)
		if h := p.history(i); h != 0 {
			ix.cold.Release(h)
		}
	}
}

// resident returns the page at k, all of it in memory.
func (ix *Index) resident(l *lane, level, k int) *page {
	s := &l.slots[k]
	switch {
	case s.page == nil:
		s.page = ix.load(s, level)
	case s.page.rest != nil:
		ix.join(s.page)
	default:
		return s.page
	}
	ix.forgetRest(s)
	ix.noteLeast(l, k)
	return s.page
}

// load returns a cold page, in memory.
func (ix *Index) load(s *slot, level int) *page {
	p := ix.pages.get(level, s.number, 0)
	p.loaded(s.saved, 0)
	id := PageID{level, s.number, s.saved}
	d, err := ix.pages.parse(ix.cold.Read(id))
	if err == nil {
		err = ix.decode(p, d, d.live)
	}
	if err != nil {
		ix.cold.Fail(id, err)
	}
	return p
}

// look is resident for those who only read: what is cold of a page stays cold.
// The page is given back by unlook.
func (ix *Index) look(l *lane, level, k int) *page {
	s := &l.slots[k]
	if s.page == nil {
		return ix.load(s, level)
	}
	if s.page.rest != nil {
		ix.join(s.page)
	}
	return s.page
}

func (ix *Index) unlook(l *lane, k int, p *page) {
	switch {
	case l.slots[k].page != p:
		ix.release(p, p.live)
		ix.pages.put(p)
	case p.rest != nil:
		ix.part(p)
	}
}

// discard is called for a page that has gone, in the version given.
func (ix *Index) discard(p *page, version uint32) {
	if p.saved != 0 {
		ix.cold.Discard(p.id(p.saved), version)
	}
	ix.discardDelta(p, version)
}
