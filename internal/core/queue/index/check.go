package index

import (
	"fmt"
	"slices"
)

// Check recounts the index from nothing and returns the first invariant that
// does not hold, nil if all do. It is slow and meant for tests.
func (ix *Index) Check() (err error) {
	var n Index // of which only the counts are used
	rows := map[uint32]bool{}
	listed := map[ID]int{}
	for _, id := range ix.returns.list {
		listed[id]++
	}
	for level, l := range ix.lanes {
		if l == nil {
			continue
		}
		if err := ix.checkLane(level, l); err != nil {
			return err
		}
	}
	ix.Each(false, func(id ID, at Place) {
		p, i := at.page, at.slot
		n.tally(p.state(i), 1, int64(p.size(i)))
		if p.logged(i) {
			n.Count.Persistent++
		}
		l := ix.lanes[id.Lane()]
		k, _ := l.search(p.number)
		looked := l.slots[k].page != p || p.isAway(i) // it is in memory for us only
		if !looked && p.rows != nil && p.rows[p.at(i)] != 0 {
			row := p.rows[p.at(i)]
			if rows[row] || row > ix.sides.made {
				err = fmt.Errorf("entry %d of level %d: side row %d of %d is not its own", id.Seq(), id.Lane(), row, ix.sides.made)
			}
			rows[row] = true
		}
		if p.state(i) == Returned && listed[id] != 1 {
			err = fmt.Errorf("entry %d of level %d: stands %d times in the returns list", id.Seq(), id.Lane(), listed[id])
		}
	})
	if err != nil {
		return err
	}
	for _, p := range ix.late {
		if err := p.check(ix.pages.version, ix.pages.owes(p.dirty)); err != nil || p.used != 0 || p.rest != nil || len(p.before) == 0 {
			return fmt.Errorf("a page that has gone has %d entries and %d before-images: %w", p.used, len(p.before), err)
		}
	}
	if n.Count != ix.Count {
		return fmt.Errorf("totals are %+v, a recount gives %+v", ix.Count, n.Count)
	}
	if r := &ix.returns; len(r.list)-len(r.strays) != n.Count.Returned && !r.ghosts {
		return fmt.Errorf("the returns list has %d entries, and %d of them strays: want %d", len(r.list), len(r.strays), n.Count.Returned)
	}
	return ix.checkRows(rows)
}

// checkState compares the state of a page with the page and its copy.
func (ix *Index) checkState(p *page) error {
	if p == nil {
		return nil
	}
	if err := p.check(ix.pages.version, ix.pages.owes(p.dirty)); err != nil {
		return err
	}
	for i := p.live.next(0); i < PageSize && p.bodies == bodiesGone; i = p.live.next(i + 1) {
		if !p.ref(i).OnDisk() {
			return fmt.Errorf("entry %d has its body in memory", i)
		}
	}
	if !p.exact() {
		return nil
	}
	d, err := ix.pages.parse(ix.cold.Read(p.id(p.saved)))
	if err != nil {
		return err
	}
	copied := d.plain
	now := ix.flatten(p)
	for i := now.live.next(0); i < PageSize; i = now.live.next(i + 1) {
		if !copied.live.has(i) || copied.marks[i] != now.marks[i] || copied.at[i] != now.at[i] || copied.sizes[i] != now.sizes[i] || copied.dues[i] != now.dues[i] {
			return fmt.Errorf("entry %d is %x, due at %d, at %x; its copy, version %d, is %x, due at %d, at %x",
				i, now.marks[i], now.dues[i], now.at[i], p.saved, copied.marks[i], copied.dues[i], copied.at[i])
		}
	}
	return nil
}

func (ix *Index) checkLane(level int, l *lane) error {
	ready, empty := 0, 0
	for k := range l.slots {
		number := l.slots[k].number
		if k > 0 && l.slots[k-1].number >= number {
			return fmt.Errorf("level %d: page %d stands behind page %d", level, number, l.slots[k-1].number)
		}
		s := &l.slots[k]
		var near bitmap
		if s.page != nil {
			near = s.page.live
			if err := s.page.checkForm(); err != nil {
				return fmt.Errorf("level %d: page %d: %w", level, number, err)
			}
		}
		p := ix.look(l, level, k)
		rest := p.live.less(near)
		sum := ix.pages.summary()
		if rest != (bitmap{}) {
			sum = ix.pages.summarize(ix.flatten(p), rest)
		}
		if err := ix.checkState(s.page); err != nil {
			return fmt.Errorf("level %d: page %d: %w", level, number, err)
		}
		if err := ix.checkComing(s.page); err != nil {
			return fmt.Errorf("level %d: page %d: %w", level, number, err)
		}
		if sum.used() != uint64(s.used) || sum.logged != int(s.logged) || sum.size() != uint64(s.bytes) || sum.n[Ready] != uint64(s.ready) || s.used > 0 && s.plain != (s.used == s.ready) {
			return fmt.Errorf("level %d: of page %d %+v is remembered, a recount gives %+v", level, number, *s, sum)
		}
		if s.page != nil && s.page.rest != nil && *s.page.rest != rest {
			return fmt.Errorf("level %d: of page %d %x is in the copy only, %x should be", level, number, rest, *s.page.rest)
		}
		if err := l.checkAlarms(s); err != nil {
			return fmt.Errorf("level %d: %w", level, err)
		}
		if p.number != number || int(p.level) != level {
			return fmt.Errorf("level %d: page %d says it is %d of level %d", level, number, p.number, p.level)
		}
		used := 0
		for i := range uint(PageSize) {
			seq := number*PageSize + uint64(i)
			if p.ready.has(i) && !p.live.has(i) {
				return fmt.Errorf("level %d: entry %d is ready and not live", level, seq)
			}
			if !p.live.has(i) {
				continue
			}
			used++
			state := p.state(i)
			if state > Offered || p.ready.has(i) != (state == Ready) {
				return fmt.Errorf("level %d: entry %d is in state %d, its ready bit is %v", level, seq, state, p.ready.has(i))
			}
			if p.ready.has(i) {
				ready++
				if seq < l.head {
					return fmt.Errorf("level %d: entry %d is ready below the head %d", level, seq, l.head)
				}
			}
			if seq >= l.next {
				return fmt.Errorf("level %d: entry %d is live, the next is %d", level, seq, l.next)
			}
			watched := ix.watches(state)
			bound, at := p.min, ix.due(p, i)
			if rest.has(i) {
				bound = s.wake
			}
			if watched && at != 0 && at < bound {
				return fmt.Errorf("level %d: entry %d is due at %d, its page at %d", level, seq, at, bound)
			}
			if real := ix.due(p, i); real != 0 && real < p.dueAt(i) {
				return fmt.Errorf("level %d: entry %d is due at %d, its column says %d", level, seq, real, p.dueAt(i))
			}
		}
		if used != int(p.used) {
			return fmt.Errorf("level %d: page %d counts %d entries and has %d", level, number, p.used, used)
		}
		if l.spent(s) {
			empty++
			if k == 0 {
				return fmt.Errorf("level %d: page %d is empty and the first", level, number)
			}
		} else if used == 0 && number != l.next/PageSize {
			return fmt.Errorf("level %d: page %d is empty and kept", level, number)
		}
		ix.unlook(l, k, p)
	}
	if empty > l.empty {
		return fmt.Errorf("level %d has %d empty pages and counts %d", level, empty, l.empty)
	}
	if l.dues.first() < ix.nextDue || l.wakes.first() < ix.nextWake {
		return fmt.Errorf("level %d is due at %d and wakes at %d, the queue at %d and %d", level, l.dues.first(), l.wakes.first(), ix.nextDue, ix.nextWake)
	}
	if filled := ix.filled[level>>6]&(1<<(level&63)) != 0; ready != l.ready || filled != (ready > 0) {
		return fmt.Errorf("level %d has %d ready, counts %d, filled is %v", level, ready, l.ready, filled)
	}
	return nil
}

// checkComing finds all that is due before the last slot of coming, and was not due before
// the page is, among the others.
func (ix *Index) checkComing(p *page) error {
	if p == nil || p.comes == 0 {
		return nil
	}
	var coming bitmap
	last := int64(0)
	for _, slot := range p.coming[:p.comes] {
		i := uint(slot)
		coming.set(i)
		if !p.live.has(i) || p.dueAt(i) == 0 {
			continue
		}
		if p.dueAt(i) < last {
			return fmt.Errorf("entry %d comes too late", i)
		}
		last = p.dueAt(i)
	}
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if at := p.dueAt(i); at >= p.min && at < last && !coming.has(i) {
			return fmt.Errorf("entry %d is due at %d and not among those that come until %d", i, at, last)
		}
	}
	return nil
}

// checkAlarms finds the slot's moments among the lane's.
func (l *lane) checkAlarms(s *slot) error {
	if s.page != nil && s.page.min != never && !slices.Contains(l.dues, alarm{s.page.min, s.number}) {
		return fmt.Errorf("page %d is due at %d and has no alarm", s.number, s.page.min)
	}
	if s.wake != never && !slices.Contains(l.wakes, alarm{s.wake, s.number}) {
		return fmt.Errorf("page %d wakes at %d and has no alarm", s.number, s.wake)
	}
	return nil
}

// checkForm compares the page's columns with its form and its entries.
func (p *page) checkForm() error {
	room := p.room()
	if len(p.refs) != room || len(p.sizes) != room || len(p.marks) != room || !p.ranked && !p.live.fits(p.class()) {
		return fmt.Errorf("%d slots are live in %d positions, ranked %v", p.used, room, p.ranked)
	}
	for _, column := range [...][]uint32{p.dues, p.owners, p.rows} {
		if column != nil && len(column) != room {
			return fmt.Errorf("a column has %d positions, the page %d", len(column), room)
		}
	}
	for i, off := range p.dues {
		if off != 0 && room == PageSize && !p.ranked && !p.live.has(uint(i)) {
			return fmt.Errorf("slot %d has a moment and is not live", i)
		}
	}
	return nil
}

// checkRows finds every side row either in use, in the graveyard, or free.
func (ix *Index) checkRows(rows map[uint32]bool) error {
	for _, g := range ix.graveyard {
		p := g.slot.page
		if p == nil {
			continue
		}
		for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
			if p.rows != nil && p.rows[p.at(i)] != 0 {
				rows[p.rows[p.at(i)]] = true
			}
		}
	}
	for row := ix.sides.free; row != 0; row = ix.sides.at(row).nextFree {
		if rows[row] {
			return fmt.Errorf("side row %d is free and in use", row)
		}
		rows[row] = true
	}
	if made := int(ix.sides.made); len(rows) != made {
		return fmt.Errorf("%d of %d side rows are lost", made-len(rows), made)
	}
	return nil
}

// The rest of this file shows tests what is in memory, and what would be saved.

// PageView is a page, as tests see it.
type PageView struct {
	Number      uint64
	Cold, Split bool // all of its entries are in the copy only, or some
	Cool        bool // none of its bodies is in memory
	Used        int  // entries in memory
	Before      int  // before-images
	Seen        int64
	Rows        bool // there are side rows
	Late        bool // the last change belongs to the checkpoint that comes next
}

// Survey are the pages of a level.
func (ix *Index) Survey(level int) (list []PageView) {
	if ix.lanes[level] == nil {
		return nil
	}
	for _, s := range ix.lanes[level].slots {
		v := PageView{Number: s.number, Cold: s.page == nil}
		if p := s.page; p != nil {
			v.Split, v.Cool, v.Used, v.Before, v.Seen = p.rest != nil, p.bodies == bodiesGone, int(p.used), len(p.before), p.seen
			v.Rows, v.Late = p.rows != nil, p.dirty == ix.pages.version
		}
		list = append(list, v)
	}
	return list
}

// RangeInMemory calls f for the entries in memory, and says whether their page has others.
func (ix *Index) RangeInMemory(f func(id ID, at Place, split bool)) {
	for level, l := range ix.lanes {
		for k := 0; l != nil && k < len(l.slots); k++ {
			if p := l.slots[k].page; p != nil {
				for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
					f(MakeID(level, p.number*PageSize+uint64(i)), Place{p, i}, l.slots[k].used > 0)
				}
			}
		}
	}
}

// Column is the moment that the column tells of an entry, which may be nearer than it is.
func (ix *Index) Column(at Place) int64 { return at.page.dueAt(at.slot) }

// Kept are the state and the counts that an entry would be saved with.
func (ix *Index) Kept(at Place) (state uint8, counts Counts) {
	return ix.kept(at.page, at.slot), ix.keptCounts(at.page, at.slot)
}

// Listed is the returns list with those that have strayed, and how many these are.
func (ix *Index) Listed() (list []ID, strays int) { return ix.returns.list, len(ix.returns.strays) }

// Middle says whether all bodies have left memory that PutAway may take out, but for split pages.
func (ix *Index) Middle() error {
	for level, l := range ix.lanes {
		if l == nil {
			continue
		}
		begin, end := ix.middle(l)
		for k := begin; k < end; k++ {
			if s := l.slots[k]; s.page != nil && s.used == 0 && s.page.bodies != bodiesGone {
				return fmt.Errorf("page %d of level %d has bodies in memory; those from %d to %d were looked at", s.number, level, l.swept.from, l.swept.to)
			}
		}
	}
	return nil
}
