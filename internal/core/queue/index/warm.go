package index

import "math"

// Bodies leave memory first where PutAway takes them. If these are not enough, those of large messages go wherever they
// stand: they are what fills memory from short queues, and to read one costs no more than to send it. Then all others. Of
// both only those go that are on disk already: transient messages of short queues are not written there.
//
// Where there are any is known without a look at every queue: its Pages have a list of the machines for each warmth, in
// the order in which they became so warm. Whoever is looked at becomes colder, or is the last again. Of a lane it is
// known from which page on there are some.

// LargeBody is the size of the largest body that is not large.
const LargeBody = 4 << 10

// warmth is what a machine may have in memory of bodies.
type warmth uint8

const (
	cold warmth = iota // none, or such as are nowhere on disk
	warm               // small ones
	hot                // large ones, or some in the middle of a lane
)

type indexList struct{ first, last *Index }

// warm moves the machine to the list for a warmth.
func (ix *Index) warm(to warmth) {
	if ix.warmth != cold {
		ix.breakOff()
		list := &ix.pages.warm[ix.warmth]
		at := &ix.beside
		if at.before != nil {
			at.before.beside.after = at.after
		} else {
			list.first = at.after
		}
		if at.after != nil {
			at.after.beside.before = at.before
		} else {
			list.last = at.before
		}
		at.before, at.after = nil, nil
	}
	if ix.warmth = to; to == cold {
		return
	}
	list := &ix.pages.warm[to]
	if ix.beside.before = list.last; list.last != nil {
		list.last.beside.after = ix
	} else {
		list.first = ix
	}
	list.last = ix
}

// warmed is called when an entry comes into a page whose body is in memory.
func (ix *Index) warmed(l *lane, p *page, size uint32) {
	was := p.bodies
	p.warmed(size > LargeBody)
	if was == bodiesGone {
		l.stir(p)
	}
	if was < bodiesCame {
		lower(&l.fresh, p.number+1)
		ix.warmer(warm)
	}
	if was < p.bodies && p.bodies == bodiesLarge {
		lower(&l.large, p.number+1)
		ix.warmer(hot)
	}
}

// lower makes a bound lower that is not 0, which is none.
func lower(bound *uint64, to uint64) {
	if *bound == 0 || *bound > to {
		*bound = to
	}
}

func (ix *Index) warmer(than warmth) {
	if ix.warmth < than && ix.cold != nil {
		ix.warm(than)
	}
}

// grown is called when a lane has got a page more.
func (ix *Index) grown(l *lane) {
	if len(l.slots) > 2*ix.pages.Hot+1 {
		ix.grew = true
		ix.warmer(hot)
	}
}

// endsCursor is where putEndsAway is: below a page of a level.
type endsCursor struct {
	level       int
	begun       bool // with this level
	all         bool
	from, below uint64
}

// bound is from where on there are pages of the lane with bodies in memory, of large messages or of all.
func (l *lane) bound(all bool) *uint64 {
	if all {
		return &l.fresh
	}
	return &l.large
}

// breakOff lets whoever puts bodies away begin anew.
func (ix *Index) breakOff() {
	if c := &ix.ends; c.from != 0 && ix.lanes[c.level] != nil {
		lower(ix.lanes[c.level].bound(c.all), c.from)
	}
	ix.ends, ix.sweeps = endsCursor{}, false
}

// putEndsAway puts bodies away that PutAway has left, those of large messages, or all that are on disk
// already. It says whether r was enough.
func (ix *Index) putEndsAway(r *relief, all bool) (done bool) {
	looks, least := 0, bodiesLarge
	if all {
		least = bodiesCame
	}
	c := &ix.ends
	for c.all = all; c.level < len(ix.lanes); *c = (endsCursor{level: c.level + 1, all: all}) {
		l := ix.lanes[c.level]
		if l == nil {
			continue
		}
		if bound := l.bound(all); !c.begun {
			c.begun, c.from, c.below = true, *bound, math.MaxUint64
			*bound = 0
		}
		k, _ := l.search(c.below)
		for k--; c.from != 0 && k >= 0; k-- {
			s := &l.slots[k]
			if s.number < c.from-1 {
				break
			}
			if r.over() {
				return false
			}
			if p := s.page; p == nil || s.used > 0 || p.bodies < least {
				if looks++; looks%64 == 0 {
					r.pages--
				}
			} else if r.pages--; !ix.cool(p, r, all) {
				return false
			}
			c.below = s.number
		}
	}
	*c = endsCursor{}
	return true
}

// cool puts bodies of a page away, the last ones first, and says whether r was enough.
func (ix *Index) cool(p *page, r *relief, all bool) (done bool) {
	gone := true
	for i := uint(PageSize); i > 0; {
		if i--; !p.live.has(i) {
			continue
		}
		j := p.at(i)
		switch {
		case p.refs[j].OnDisk():
			continue
		case !all && p.sizes[j] <= LargeBody, ix.cold.Locate(p.refs[j]) == 0:
			gone = false
			continue
		case r.give <= 0:
			return false
		}
		gone = ix.banish(p, j, r) && gone
	}
	p.cooled(all, gone)
	return true
}

// HasBodies says whether PutBodiesAway would find any, for tests.
func (ps *Pages) HasBodies() bool { return ps.warm[hot].first != nil || ps.warm[warm].first != nil }

// PutBodiesAway takes bodies out of memory until so many bytes have left it: first those that PutAway takes, then those
// of large messages, then all, of these two as far as they are on disk already. Of each queue those go first that are furthest from its head. It
// handles at most limit pages, fewer if their bodies are many bytes, and says whether there are more to be put away.
func (ps *Pages) PutBodiesAway(limit int, bytes int64) (more bool) {
	if ps.version == 0 {
		return false
	}
	r := relief{limit, putAwayBytes, min(bytes, putAwayGiven)}
	for ix := ps.warm[hot].first; ix != nil; ix = ps.warm[hot].first {
		if r.over() || !ix.putHotAway(&r) {
			return true
		}
	}
	for ix := ps.warm[warm].first; ix != nil; ix = ps.warm[warm].first {
		if r.over() || !ix.putEndsAway(&r, true) {
			return true
		}
		r.pages--
		ix.warm(ix.isWarm())
	}
	return false
}

// putHotAway is PutBodiesAway for a machine that is hot. It says whether r was enough.
func (ix *Index) putHotAway(r *relief) (done bool) {
	if !ix.sweeps {
		ix.SweepAgain(false)
		ix.sweeps, ix.grew = true, false
	}
	if !ix.ends.begun {
		if ix.putAway(r, false); r.over() {
			return false
		}
	}
	if !ix.putEndsAway(r, false) {
		return false
	}
	r.pages--
	ix.warm(ix.isWarm())
	return true
}

// isWarm is what the machine may have in memory that has come since it was looked at.
func (ix *Index) isWarm() (is warmth) {
	if ix.grew {
		return hot
	}
	for _, l := range ix.lanes {
		switch {
		case l == nil:
		case l.large != 0 || l.stirred:
			return hot
		case l.fresh != 0:
			is = warm
		}
	}
	return is
}
