package index

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Moment is the moment at which something happens to the entry; 0 = none.
func (ix *Index) Moment(at Place) int64 { return ix.due(at.page, at.slot) }

func (ix *Index) due(p *page, i uint) int64 {
	told := p.dueAt(i)
	if told != 0 && told-p.base == maxOffset {
		if s := ix.peekSide(p, i); s != nil {
			return s.far
		}
	}
	return told
}

// SetMoment sets the moment at which something happens to the entry; 0 = none.
func (ix *Index) SetMoment(at Place, due int64) {
	p, i := at.page, at.slot
	ix.touch(p)
	p.altered()
	if due == 0 {
		if p.dues != nil {
			p.dues[p.at(i)] = 0
		}
		return
	}
	if p.dues == nil {
		ix.pages.need(p, &p.dues)
		p.base = max(0, due-dueRoom)
	}
	if due <= p.base {
		ix.rebase(p, max(0, due-dueRoom))
		ix.noteAll(p)
	}
	ix.tell(p, i, due)
	ix.noteDue(p, p.dueAt(i))
}

// tell writes a moment after the page's base into the column; one too far for
// it stands in the side row and is looked at again when the column is due.
func (ix *Index) tell(p *page, i uint, due int64) {
	p.comes = 0
	off := due - p.base
	if off >= maxOffset {
		ix.rowOf(p, i).far = due
		off = maxOffset
	}
	if off < 1 { // it has passed
		p.altered()
		off = 1
		if ix.Terms.Marked {
			off = MarkOf(due).From(p.base+1) - p.base
		}
	}
	p.dues[p.at(i)] = uint32(off)
}

// rebase makes the page's column count from another moment.
func (ix *Index) rebase(p *page, base int64) {
	var dues [PageSize]int64
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		dues[i] = ix.due(p, i)
	}
	p.base = base
	for i, due := range dues {
		if due != 0 {
			ix.tell(p, uint(i), due)
		}
	}
}

// Note sees to it that the entry's moment is not missed, if it has one: its state is about to be one in which
// something happens then.
func (ix *Index) Note(at Place) {
	if due := at.page.dueAt(at.slot); due != 0 {
		ix.noteDue(at.page, due)
	}
}

func (ix *Index) noteDue(p *page, due int64) {
	if due < p.min {
		p.comes = 0
		ix.lanes[p.level].remind(p, due)
		ix.nextDue = min(ix.nextDue, due)
	}
}

// noteAll sees to it that no moment of a page is missed whose base has changed:
// those too far away are told otherwise now.
func (ix *Index) noteAll(p *page) {
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if at := p.dueAt(i); at != 0 {
			ix.noteDue(p, at)
		}
	}
}

// approach looks again at a page with moments that were too far away for its
// column: it counts from now on, or from the first moment that has passed and
// that something is still to come of.
func (ix *Index) approach(now int64, p *page) {
	first := now
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if due := ix.due(p, i); due != 0 && ix.watches(p.state(i)) {
			first = min(first, due)
		}
	}
	ix.rebase(p, first-marks) // so that what has passed still has when it is told with its mark
	ix.noteAll(p)
}

// NextDue is not later than the first moment of an entry in memory to which something happens then.
func (ix *Index) NextDue() int64 { return ix.nextDue }

// NextWake is when a page must be read for entries that are not in memory.
func (ix *Index) NextWake() int64 { return ix.nextWake }

// Ripe goes through the entries in memory that are due: by levels, moments and numbers.
type Ripe struct {
	ix    *Index
	now   int64
	level int
	pages int   // looked at in this level
	page  *page // whose entries are in Pages.ripe
	next  int   // of these
}

// ripeEntry is an entry that is due.
type ripeEntry struct {
	at   int64
	slot uint
}

// IsDue says whether Ripe would find something at now. It is asked with every command.
func (ix *Index) IsDue(now int64) bool {
	ix.clock = max(ix.clock, now)
	if now >= ix.nextWake && ix.pages.Log.ReadsAllDue() {
		ix.readAhead(now, math.MaxInt)
	}
	return now >= ix.nextDue
}

// Ripe begins with what is due at now. End ends it. In between only the entry that Next has returned may change its
// state or moment, or leave. No other index of the same Pages may be asked meanwhile. REQUIRES: IsDue(now).
func (ix *Index) Ripe(now int64) Ripe {
	ix.pages.ripe = ix.pages.ripe[:0]
	return Ripe{ix: ix, now: now}
}

// Next returns the next one. It may be in a state in which nothing happens at its moment.
func (r *Ripe) Next() (id ID, at Place, ok bool) {
	for r.next == len(r.ix.pages.ripe) {
		if !r.nextPage() {
			return 0, Place{}, false
		}
	}
	i := r.ix.pages.ripe[r.next].slot
	r.next++
	return MakeID(r.level, r.page.number*PageSize+uint64(i)), Place{r.page, i}, true
}

// nextPage looks for what is due in the page whose alarm is the first.
func (r *Ripe) nextPage() bool {
	ix := r.ix
	for ; r.level < len(ix.lanes); r.level, r.pages = r.level+1, 0 {
		l := ix.lanes[r.level]
		for l != nil && l.dues.first() <= r.now {
			if r.pages%(Glances/2) == 0 {
				ix.glance(l, r.now)
			}
			r.pages++
			a := l.dues.pop()
			if p := l.loaded(a.number); p != nil && p.min == a.at {
				r.page, r.next = p, 0
				ix.ripen(r.now, l, p)
				return true
			}
		}
	}
	return false
}

// End says whether there is more that is due.
func (r *Ripe) End() (more bool) {
	ix := r.ix
	if r.next < len(ix.pages.ripe) {
		r.page.comes = 0
		ix.noteDue(r.page, ix.pages.ripe[r.next].at)
	}
	ix.nextDue = never
	for _, l := range ix.lanes {
		if l != nil {
			ix.nextDue = min(ix.nextDue, l.dues.first())
		}
	}
	return ix.nextDue <= r.now
}

// ripen puts what is due in a page, whose alarm was the first, until the next alarm, into Pages.ripe.
func (ix *Index) ripen(now int64, l *lane, p *page) {
	until := max(p.min, min(now, l.dues.first()-1))
	ripe, least := p.dueBy(until, ix.pages.ripe[:0])
	far := false
	for j := 0; j < len(ripe); {
		r := &ripe[j]
		if r.at = ix.due(p, r.slot); r.at <= until {
			j++
			continue
		}
		far = true // its column could not tell
		*r = ripe[len(ripe)-1]
		ripe = ripe[:len(ripe)-1]
	}
	ix.pages.ripe = ripe
	slices.SortFunc(ripe, func(a, b ripeEntry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.slot, b.slot))
	})
	l.remind(p, least)
	if far {
		ix.approach(now, p)
	}
}

// dueBy appends the entries whose column tells a moment up to the one given, and
// returns the first moment of the others. A look at a whole column notes which come
// next, so that the next calls need none: as long as no entry gets another moment.
func (p *page) dueBy(until int64, list []ripeEntry) (ripe []ripeEntry, least int64) {
	if p.dues == nil {
		return list, never
	}
	begin := len(list)
	for ; p.comes > 0; p.come() {
		i := uint(p.coming[0])
		at := int64(0)
		if p.live.has(i) {
			at = p.dueAt(i)
		}
		if at > until {
			return list, at
		}
		if at != 0 {
			list = append(list, ripeEntry{at, i})
		}
	}
	list = list[:begin]
	most := min(until-p.base, maxOffset)
	if p.room() == PageSize && !p.ranked && most > 0 {
		return p.dueInFull(uint32(most), list)
	}
	next := never
	n := uint(0)
	for w, v := range p.live {
		for ; v != 0; v &= v - 1 {
			i := uint(w)<<6 + uint(bits.TrailingZeros64(v))
			j := i & uint(p.mask)
			if p.ranked {
				j = n
				n++
			}
			switch off := int64(p.dues[j]); {
			case off == 0:
			case off <= most:
				list = append(list, ripeEntry{p.base + off, i})
			default:
				next = min(next, off)
			}
		}
	}
	if next == never {
		return list, never
	}
	return list, p.base + next
}

// come takes the first slot of coming away.
func (p *page) come() {
	copy(p.coming[:], p.coming[1:])
	p.comes--
}

// dueInFull is dueBy for a page whose columns have a position for each slot: no moment
// stands there of a slot that is not live.
func (p *page) dueInFull(most uint32, list []ripeEntry) (ripe []ripeEntry, least int64) {
	var next [mostComing]uint32 // the first moments of the others, in their order
	for k := range next {
		next[k] = math.MaxUint32
	}
	n := 0
	for i, off := range p.dues {
		if off--; off >= next[mostComing-1] { // those without a moment, too
			continue
		}
		if off < most {
			list = append(list, ripeEntry{p.base + int64(off) + 1, uint(i)})
			continue
		}
		k := min(n, mostComing-1)
		for ; k > 0 && off < next[k-1]; k-- {
			next[k], p.coming[k] = next[k-1], p.coming[k-1]
		}
		next[k], p.coming[k] = off, uint8(i)
		n = min(n+1, mostComing)
	}
	p.comes = uint8(n)
	if n == 0 {
		return list, never
	}
	return list, p.base + int64(next[0]) + 1
}
