package index

import (
	"math/bits"

	"bartleby.mq/internal/core/message"
)

// columns are what a page knows of its entries, by position. All that are there
// have the same length, a power of two from minRoom to PageSize. A page comes
// in two forms, which differ in where the entry of a slot stands:
//
//	direct   at the slot modulo the length: pages that fill, which begin small and
//	         grow when two slots meet; full ones; those of which a run is left
//	ranked   behind those of the live slots below: what is left here and there
//
//	slots     .......x....x..............x....
//	direct    |..x.|x..x|     length 8: 7, 12 and 27 are 7, 4 and 3
//	ranked    |xxx.|          length 4
//
// So a page takes about as much memory as it has entries, and one that fills or
// is full is indexed without a search.
type columns struct {
	marks []uint8 // state and flags
	sizes []uint32
	refs  []message.Ref

	// Not there before some entry has one.
	dues      []uint32      // milliseconds after page.base, 0 = never
	rows      []uint32      // row of Machine.sides, 0 = none
	owners    []uint32      // consumer slot, meaningful while the state is Out
	histories []message.Ref // 0 = none
	counts    []Counts
}

const (
	minRoom = 4
	classes = 7 // of lengths: minRoom<<class
)

// classFor is the least class with room for n entries.
func classFor(n int) int { return max(0, bits.Len(uint(max(1, n)-1))-2) }

func (p *page) room() int  { return int(p.mask) + 1 }
func (p *page) class() int { return classFor(p.room()) }

// at is the position of a live slot.
func (p *page) at(i uint) uint {
	if p.ranked {
		return p.live.rank(i)
	}
	return i & uint(p.mask)
}

// bytes is what the columns take.
func (c *columns) bytes() int {
	each := 8 + 4 + 1
	for _, column := range [...][]uint32{c.dues, c.owners, c.rows} {
		if column != nil {
			each += 4
		}
	}
	if c.histories != nil {
		each += 8
	}
	if c.counts != nil {
		each += countsBytes
	}
	return each * len(c.marks)
}

// wipe clears what not every entry has.
func (c *columns) wipe(j uint) {
	if c.dues != nil {
		c.dues[j] = 0
	}
	if c.rows != nil {
		c.rows[j] = 0
	}
	if c.histories != nil {
		c.histories[j] = 0
	}
	if c.counts != nil {
		c.counts[j] = Counts{}
	}
}

// take copies an entry from other columns. REQUIRES: c has the columns that o has.
func (c *columns) take(j uint, o *columns, from uint) {
	c.refs[j], c.sizes[j], c.marks[j] = o.refs[from], o.sizes[from], o.marks[from]
	if o.dues != nil {
		c.dues[j] = o.dues[from]
	}
	if o.owners != nil {
		c.owners[j] = o.owners[from]
	}
	if o.rows != nil {
		c.rows[j] = o.rows[from]
	}
	if o.histories != nil {
		c.histories[j] = o.histories[from]
	}
	if o.counts != nil {
		c.counts[j] = o.counts[from]
	}
}

// close closes the gap at j, the positions from n on being free.
func (c *columns) close(j, n uint) {
	copy(c.refs[j:n], c.refs[j+1:n])
	copy(c.sizes[j:n], c.sizes[j+1:n])
	copy(c.marks[j:n], c.marks[j+1:n])
	for _, column := range [...][]uint32{c.dues, c.owners, c.rows} {
		if column != nil {
			copy(column[j:n], column[j+1:n])
		}
	}
	if c.histories != nil {
		copy(c.histories[j:n], c.histories[j+1:n])
	}
	if c.counts != nil {
		copy(c.counts[j:n], c.counts[j+1:n])
	}
}

// admit makes a slot live and returns its position; who calls it writes refs,
// sizes and marks.
func (ps *Pages) admit(p *page, i uint) uint {
	if p.ranked || p.used > 0 && p.mask < PageSize-1 && p.meets(i) {
		live := p.live
		live.set(i)
		class := p.class() + 1
		for !live.fits(class) {
			class++
		}
		ps.reform(p, live, class)
		return p.at(i)
	}
	p.live.set(i)
	p.used++
	j := i & uint(p.mask)
	p.wipe(j)
	return j
}

// meets says whether the position of slot i is taken. REQUIRES: the page is direct.
func (p *page) meets(i uint) bool {
	f := p.live.folded(uint(p.room()))
	return f.has(i & uint(p.mask))
}

// fits says whether a direct page of the class has room for these slots.
func (b *bitmap) fits(class int) bool {
	f := b.folded(minRoom << class)
	return f.count() == b.count()
}

// expel takes a live slot out.
func (p *page) expel(i uint) {
	if p.ranked {
		p.close(p.live.rank(i), uint(p.used))
	} else if p.dues != nil {
		p.dues[i&uint(p.mask)] = 0 // see dueInFull
	}
	p.live.clear(i)
	p.ready.clear(i)
	p.used--
}

// sparse says whether the page would be much smaller after shrink. A run may go
// soon, what is left here and there rather not.
func (p *page) sparse() bool {
	if p.ranked {
		return int(p.used) <= p.room()/2 && p.room() > minRoom
	}
	return int(p.used) <= p.room()/4 && p.room() > minRoom
}

// shrink gives a page that has become sparse the memory that its entries need.
func (ps *Pages) shrink(p *page) { ps.reform(p, p.live, classFor(int(p.used))) }

// reform gives a page columns of the class given, in the form that suits the
// slots in live, which take the place of p.live. Entries that stay are moved
// with all they have; for those that are new, as with admit.
func (ps *Pages) reform(p *page, live bitmap, class int) {
	old := *p
	p.live, p.ready, p.used = live, p.ready.and(live), uint16(live.count())
	p.mask, p.ranked = uint8(minRoom<<class-1), !live.fits(class)
	p.columns = ps.columns(class)
	if old.dues != nil {
		ps.need(p, &p.dues)
	}
	if old.owners != nil {
		ps.need(p, &p.owners)
	}
	if old.rows != nil {
		ps.need(p, &p.rows)
	}
	if old.histories != nil {
		ps.needHistories(p)
	}
	if old.counts != nil {
		ps.needCounts(p)
	}
	both := old.live.and(live)
	for i := both.next(0); i < PageSize; i = both.next(i + 1) {
		p.take(p.at(i), &old.columns, old.at(i))
	}
	ps.reclaim(&old.columns)
}
