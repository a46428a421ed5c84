package index

import (
	"slices"

	"bartleby.mq/internal/core/message"
)

// grave is a page taken out of the queue whose references are still to be given up.
type grave struct {
	level   int
	slot    slot
	version uint32 // when that was
	owed    bool   // the checkpoint being written has it, and its copy is older
	closed  bool   // it went with its queue
}

// Purging is how far a purge has come; the zero value begins one.
type Purging struct {
	// Gone, unless it is nil, is called for each entry with a history that the purge removes. Then pages are read that would
	// otherwise go unread.
	Gone func(history message.Ref, logged bool)

	at   SaveCursor
	ends []uint64 // by level, the number that ends what is purged: what comes later stays
}

// States is a set of states: for each the bit 1<<state.
type States uint8

func (s States) has(state uint8) bool { return s>>state&1 != 0 }

// The costs of a page to a purge, where an entry that goes by itself costs 1.
const (
	purgePassed = 1  // nothing of it goes
	purgeWhole  = 32 // all of it goes
)

// Purge removes the entries in some states, Ready and Returned among them. It goes on where it was, costs about limit
// at most, and says whether there is more: others may come in between. Their references pass
// to the sink by BuryRest, in slices. told, unless it is nil, is called for runs of logged entries that
// it removes.
//
// It costs what it removes, and of pages without any it looks at hardly more than whether they have some.
func (ix *Index) Purge(to *Purging, limit int, of States, told func(first ID, n int)) (more bool) {
	ix.touchMeta()
	if to.ends == nil {
		to.ends = ix.WhatIsThere().ends
	}
	for ; to.at.level < len(ix.lanes); to.at = (SaveCursor{level: to.at.level + 1}) {
		if l := ix.lanes[to.at.level]; l != nil {
			if limit, more = ix.purgeLane(to, l, limit, of, told); more {
				return true
			}
		}
	}
	if ix.Count.Returned == 0 { // else something came back meanwhile, behind a purge in slices
		ix.returns.drop()
	}
	return false
}

// purgeLane is the part of Purge for a level. It returns what is left of the limit.
func (ix *Index) purgeLane(to *Purging, l *lane, limit int, of States, told func(first ID, n int)) (left int, more bool) {
	level, end := to.at.level, to.ends[to.at.level]
	onlyReady := ix.Count.Returned == 0 && (!of.has(Delayed) || ix.Count.Delayed == 0) && (!of.has(Held) || ix.Count.Held == 0)
	if onlyReady && l.ready == 0 {
		return limit, false
	}
	first := to.at.number
	if onlyReady {
		first = max(first, l.head/PageSize)
	}
	var mixed []*page // pages of which something stays, and the one being filled
	k, _ := l.search(first)
	kept := k
	for ; k < len(l.slots) && l.slots[k].number*PageSize < end; k++ {
		if more = limit <= 0; more {
			to.at.number = l.slots[k].number
			break
		}
		s := &l.slots[k]
		if onlyReady && !s.hasReady() && !s.isEmpty() {
			l.slots[kept] = *s
			kept++
			limit -= purgePassed
			continue
		}
		if s.used > 0 && (!s.plain || to.Gone != nil) {
			ix.resident(l, level, k)
			limit -= PageSize
		}
		if s.number < end/PageSize && (s.page == nil || s.page.all(of)) {
			limit -= purgeWhole
			if told != nil {
				limit -= ix.tellLogged(l, level, k, told)
			}
			ix.detach(level, l, *s, to.Gone)
			continue
		}
		mixed = append(mixed, ix.resident(l, level, k))
		limit -= PageSize
		l.slots[kept] = *s
		kept++
	}
	if kept == 0 { // mostly, and there may be very many behind
		clear(l.slots[:k])
		l.slots = l.slots[k:]
	} else {
		l.slots = slices.Delete(l.slots, kept, k)
	}
	for _, p := range mixed {
		for i := p.live.next(0); i < PageSize && p.number*PageSize+uint64(i) < end; i = p.live.next(i + 1) {
			if of.has(p.state(i)) {
				id := MakeID(level, p.number*PageSize+uint64(i))
				body, history, logged := ix.Forget(id, Place{p, i})
				if to.Gone != nil && history != 0 {
					to.Gone(history, logged)
				}
				ix.sink.Removed(id, body, history, false)
				if logged && told != nil {
					told(id, 1)
				}
			}
		}
	}
	ix.dropSpent(l) // an empty page may have become the first
	return limit, more
}

// hasReady says whether some entry of the page is ready.
func (s *slot) hasReady() bool { return s.ready > 0 || s.page != nil && s.page.ready != bitmap{} }

// isEmpty says whether the page has no entry: none such may come to be the first.
func (s *slot) isEmpty() bool { return s.used == 0 && (s.page == nil || s.page.used == 0) }

// all says whether every entry of the page is in one of the states.
func (p *page) all(of States) bool {
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if !of.has(p.state(i)) {
			return false
		}
	}
	return true
}

// tellLogged calls told for the logged entries of the page at k, and returns what that costs a purge.
func (ix *Index) tellLogged(l *lane, level, k int, told func(first ID, n int)) (cost int) {
	s := &l.slots[k]
	first := MakeID(level, s.number*PageSize)
	switch {
	case s.page == nil && s.logged == 0:
		return 0
	case s.page == nil && s.logged == PageSize: // no need to read them
		told(first, PageSize)
		return 0
	case s.used > 0:
		cost = PageSize
	}
	p := ix.look(l, level, k)
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if p.logged(i) {
			told(first+ID(i), 1)
		}
	}
	ix.unlook(l, k, p)
	return cost
}

// detach takes a page with all its entries out of the counts and puts it into
// the graveyard; the caller takes it out of the lane.
func (ix *Index) detach(level int, l *lane, s slot, gone func(history message.Ref, logged bool)) {
	if s.used > 0 && (!s.plain || ix.pages.Hash != nil) {
		if s.page == nil {
			s.page = ix.load(&s, level)
		} else {
			ix.join(s.page)
		}
		ix.forgetRest(&s)
	}
	if p := s.page; p != nil {
		for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
			ix.tally(p.state(i), -1, -int64(p.size(i)))
			if h := p.history(i); gone != nil && h != 0 {
				gone(h, p.logged(i))
			}
			if p.logged(i) {
				if ix.pages.Hash != nil {
					ix.mixIn(minus, MakeID(level, p.number*PageSize+uint64(i)), p.size(i), p.history(i))
				}
				ix.Count.Persistent--
			}
		}
		l.ready -= p.ready.count()
	}
	ix.tally(Ready, -int(s.used), -s.bytes)
	ix.Count.Persistent -= int(s.logged)
	l.ready -= int(s.ready)
	if l.ready == 0 {
		ix.filled[level>>6] &^= 1 << (level & 63)
	}
	ix.inter(level, s, false)
}

// inter puts a page into the graveyard; closed says whether with its queue.
func (ix *Index) inter(level int, s slot, closed bool) {
	owed := s.page != nil && ix.pages.owes(s.page.dirty)
	ix.graveyard = append(ix.graveyard, grave{level, s, ix.pages.version, owed, closed})
}

// Close empties the index for the deletion of its queue. It asks
// nothing of the disk: the references pass to the sink, and what the checkpoint being
// written has of the queue is saved, by BuryRest.
func (ix *Index) Close() {
	ix.oweMeta()
	for level, l := range ix.lanes {
		if l == nil {
			continue
		}
		for _, s := range l.slots {
			ix.inter(level, s, true) // as it is: what was put away, or is in parts, BuryRest reads
		}
		ix.lanes[level] = nil
	}
	ix.Count, ix.filled = Totals{}, [4]uint64{}
	ix.warm(cold)
	ix.returns.drop()
	ix.nextDue, ix.nextWake = never, never
	if len(ix.graveyard)+len(ix.late) == 0 {
		ix.sides.trim(0)
	}
}

// BuryRest gives up what Purge and Close took out, at most about limit entries,
// and says whether there is more. What the checkpoint being written has of it, and of
// other pages that have gone, is saved before.
func (ix *Index) BuryRest(limit int) (more bool) {
	ix.payMeta()
	if len(ix.graveyard)+len(ix.late) == 0 {
		return false
	}
	for len(ix.late) > 0 && limit > 0 {
		last := len(ix.late) - 1
		p := ix.late[last]
		ix.late[last] = nil
		ix.late = ix.late[:last]
		ix.save(p)
		ix.discard(p, ix.pages.version)
		ix.pages.put(p)
		limit -= PageSize
	}
	for len(ix.graveyard) > 0 && limit > 0 {
		last := len(ix.graveyard) - 1
		g := ix.graveyard[last]
		ix.graveyard[last] = grave{}
		ix.graveyard = ix.graveyard[:last]
		p := g.slot.page
		if g.owed && ix.pages.saving {
			ix.save(p) // not by detach: that would be all of a long queue at once
		}
		if p == nil {
			p = ix.load(&g.slot, g.level)
		} else if p.rest != nil {
			ix.join(p)
			p.joined()
		}
		ix.discard(p, g.version)
		for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
			if state := p.state(i); g.closed && (state == Dying || state == Held) {
				reason, _, _ := ix.DiedOf(Place{p, i})
				ix.sink.Ended(MakeID(g.level, p.number*PageSize+uint64(i)), reason, state == Held)
			}
			ix.sink.Removed(0, p.ref(i), p.history(i), false)
			ix.dropSide(p, i)
			limit--
		}
		ix.pages.put(p)
	}
	if len(ix.graveyard)+len(ix.late) > 0 {
		return true
	}
	ix.sides.trim(0)
	return false
}
