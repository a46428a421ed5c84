package index

// A cold page some of whose entries are soon due is split: these come into
// memory, where they are entries like all others, and the rest stays in the copy
// that is in the store. The copy is not written anew; the page remembers which
// of its entries still count there.
//
//	copy     xxxxxxxxxxxxxxxxxxxxxxxx
//	rest     x.xxxx.xx.xxxxxxx.x.xxxx     of the others some have gone
//	memory   .........x.......x......
//
// So a death in a long queue costs the reading of a page only now and then: it
// is read a while before something is due there, and then for all that is due
// within the horizon.

// defaultHorizon is how far ahead a page is read for what will be due, in milliseconds.
const defaultHorizon = 16_000

// maxNear is how many entries a split page has in memory at most; if more are
// due within the horizon, it is a nearer one.
const maxNear = PageSize / 4

// readSlice is how many pages one Tick reads ahead.
const readSlice = 16

// moments are those at which something happens to the entries of a page, by
// slot; 0 = none.
type moments [PageSize]int64

// watches says whether something happens to an entry in this state when its
// moment comes, wherever it stands.
func (ix *Index) watches(state uint8) bool {
	return state == Delayed || !ix.Terms.Strict && (state == Ready || state == Returned)
}

// reach is how much of the horizon h counts for a page: half of it at least, and not
// the same for all, so that pages that were put away together are not all read at once
// the next time.
func reach(number uint64, h int64) int64 {
	return h - int64(number*0x9E3779B97F4A7C15>>56)*h/2>>8
}

// near chooses which of the slots in set of a page are to be in memory, and when the
// others are to be looked at again. ok is false if too many are due too soon.
func (ix *Index) near(number uint64, at *moments, set bitmap, now int64) (near bitmap, wake int64, ok bool) {
	horizon := ix.pages.horizon()
	for h := horizon; h > 0 && h >= horizon/8; h /= 2 {
		near, wake = bitmap{}, never
		until := now + reach(number, h)
		for i := set.next(0); i < PageSize; i = set.next(i + 1) {
			switch {
			case at[i] == 0:
			case at[i] <= until:
				near.set(i)
			default:
				wake = min(wake, at[i])
			}
		}
		if near.count() <= maxNear {
			if wake != never {
				// Which is after now; and the same whatever reach is, so that pages are read in
				// the order in which something is due there even if that has long passed.
				wake -= h / 4
			}
			return near, wake, true
		}
	}
	return set, never, false
}

// remember notes in the slot what is in the copy only.
func (s *slot) remember(sum *summary) {
	s.used, s.ready, s.logged, s.bytes = uint16(sum.used()), uint16(sum.n[Ready]), uint16(sum.logged), int64(sum.size())
	s.plain, s.outs = s.used == s.ready, sum.n[Out] > 0
}

// readAhead brings entries of cold pages into memory that are soon due. It reads
// at most limit pages and says whether there are more to be read now.
func (ix *Index) readAhead(now int64, limit int) (more bool) {
	if now < ix.nextWake {
		return false
	}
	ix.nextWake = never
	for level, l := range ix.lanes {
		if l == nil {
			continue
		}
		for l.wakes.first() <= now && limit > 0 {
			a := l.wakes.pop()
			if k, ok := l.search(a.number); ok && l.slots[k].wake == a.at {
				ix.fetch(now, l, level, k)
				limit--
			}
		}
		ix.nextWake = min(ix.nextWake, l.wakes.first())
	}
	return ix.nextWake <= now
}

// ReadSome reads pages ahead whose time has come, as many as one command may, and says whether there are more.
func (ix *Index) ReadSome(now int64) (more bool) { return ix.readAhead(now, readSlice) }

// readLead is how much sooner than it has to be, in milliseconds, a page is read by ReadAhead.
const readLead = 1000

// NextRead is the moment at which ReadAhead, or the rules by ReadSome, should read a page.
func (ix *Index) NextRead() int64 {
	if ix.nextWake != never && ix.pages.Log.ReadsAllDue() {
		return max(0, ix.nextWake-readLead)
	}
	return ix.nextWake
}

// ReadsAhead says whether there are pages for ReadAhead.
func (ix *Index) ReadsAhead(now int64) bool { return ix.nextWake <= now+readLead }

// ReadAhead reads some of the pages that will be needed soon, at most readSlice, and says whether there are
// more. It is for whoever proposes commands: a command reads all that are needed by then (Log.ReadsAllDue), and
// finds none where they are in memory already. Nothing else changes by it.
func (ix *Index) ReadAhead(now int64) (more bool) { return ix.readAhead(now+readLead, readSlice) }

// fetch reads the page at k ahead.
func (ix *Index) fetch(now int64, l *lane, level, k int) {
	s := &l.slots[k]
	p := s.page
	if p == nil {
		p = ix.pages.get(level, s.number, 0)
		p.loaded(s.saved, 0)
	}
	id := p.id(p.saved)
	d, err := ix.pages.parse(ix.cold.Read(id))
	if err != nil {
		ix.cold.Fail(id, err)
	}
	there := d.live
	if p.rest != nil {
		there = *p.rest
	}
	var at moments
	for i := there.next(0); i < PageSize; i = there.next(i + 1) {
		if ix.watches(d.marks[i] & stateMask) {
			at[i] = d.dues[i]
		}
	}
	near, wake, _ := ix.near(s.number, &at, there, now)
	if err := ix.decode(p, d, near); err != nil {
		ix.cold.Fail(id, err)
	}
	s.page = p
	if rest := there.less(near); rest != (bitmap{}) {
		ix.leave(s, p, rest, ix.pages.summarize(&d.plain, rest))
		ix.setWake(l, k, wake)
	} else {
		ix.forgetRest(s)
	}
	ix.noteLeast(l, k)
}

// leave notes that the rest of the page is in the copy only.
func (ix *Index) leave(s *slot, p *page, rest bitmap, sum *summary) {
	p.leave(rest)
	s.remember(sum)
	ix.pages.told(p, sum)
}

// forgetRest notes that no entry of the page is in the copy only.
func (ix *Index) forgetRest(s *slot) {
	s.page.joined()
	ix.pages.told(s.page, nil)
	s.remember(&summary{})
	s.wake = never
}

// setWake notes when the page at k is to be read ahead.
func (ix *Index) setWake(l *lane, k int, at int64) {
	s := &l.slots[k]
	if s.wake = at; at == never {
		return
	}
	l.wakes.push(alarm{at, s.number})
	if len(l.wakes) > 2*len(l.slots)+keepAlarms {
		l.remake(&l.wakes, func(s *slot) int64 { return s.wake })
	}
	ix.nextWake = min(ix.nextWake, at)
}

// noteLeast sees to it that no moment of the entries in memory is missed.
func (ix *Index) noteLeast(l *lane, k int) {
	p := l.slots[k].page
	p.comes = 0
	if p.dues == nil {
		return
	}
	least := never
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if at := p.dueAt(i); at != 0 {
			least = min(least, at)
		}
	}
	l.remind(p, least)
	ix.nextDue = min(ix.nextDue, least)
}

// join brings the rest of a split page into memory. It changes nothing else: the
// caller calls joined, or gives the rest up again by part.
func (ix *Index) join(p *page) {
	id := p.id(p.saved)
	d, err := ix.pages.parse(ix.cold.Read(id))
	if err == nil {
		err = ix.decode(p, d, *p.rest)
	}
	if err != nil {
		ix.cold.Fail(id, err)
	}
}

// part takes the rest of a page out of memory. REQUIRES: the copy has it.
func (ix *Index) part(p *page) {
	ix.release(p, *p.rest)
	near := p.live.less(*p.rest)
	ix.pages.reform(p, near, classFor(near.count()))
}
