package queue

import "math"

// Bodies leave memory first where PutAway takes them. If these are not enough, those of large messages go wherever they
// stand: they are what fills memory from short queues, and to read one costs no more than to send it. Then all others. Of
// both only those go that are on disk already: transient messages of short queues are not written there.
//
// Where there are any is known without a look at every queue: its Pages have a list of the machines for each warmth, in
// the order in which they became so warm. Whoever is looked at becomes colder, or is the last again. Of a lane it is
// known from which page on there are some.

// largeBody is the size of the largest body that is not large.
const largeBody = 4 << 10

// warmth is what a machine may have in memory of bodies.
type warmth uint8

const (
	cold warmth = iota // none, or such as are nowhere on disk
	warm               // small ones
	hot                // large ones, or some in the middle of a lane
)

type machineList struct{ first, last *Machine }

// warm moves the machine to the list for a warmth.
func (m *Machine) warm(to warmth) {
	if m.warmth != cold {
		m.breakOff()
		list := &m.pages.warm[m.warmth]
		at := &m.beside
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
	if m.warmth = to; to == cold {
		return
	}
	list := &m.pages.warm[to]
	if m.beside.before = list.last; list.last != nil {
		list.last.beside.after = m
	} else {
		list.first = m
	}
	list.last = m
}

// warmed is called when an entry comes into a page whose body is in memory.
func (m *Machine) warmed(l *lane, p *page, size uint32) {
	if p.cool {
		p.cool = false
		l.stir(p)
	}
	if !p.fresh {
		p.fresh = true
		lower(&l.fresh, p.number+1)
		m.warmer(warm)
	}
	if size > largeBody && !p.large {
		p.large = true
		lower(&l.large, p.number+1)
		m.warmer(hot)
	}
}

// lower makes a bound lower that is not 0, which is none.
func lower(bound *uint64, to uint64) {
	if *bound == 0 || *bound > to {
		*bound = to
	}
}

func (m *Machine) warmer(than warmth) {
	if m.warmth < than && m.cold != nil {
		m.warm(than)
	}
}

// grown is called when a lane has got a page more.
func (m *Machine) grown(l *lane) {
	if len(l.slots) > 2*m.pages.Hot+1 {
		m.grew = true
		m.warmer(hot)
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
func (m *Machine) breakOff() {
	if c := &m.ends; c.from != 0 && m.lanes[c.level] != nil {
		lower(m.lanes[c.level].bound(c.all), c.from)
	}
	m.ends, m.sweeps = endsCursor{}, false
}

// putEndsAway puts bodies away that PutAway has left, those of large messages, or all that are on disk
// already. It says whether r was enough.
func (m *Machine) putEndsAway(r *relief, all bool) (done bool) {
	looks := 0
	c := &m.ends
	for c.all = all; c.level < len(m.lanes); *c = (endsCursor{level: c.level + 1, all: all}) {
		l := m.lanes[c.level]
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
			if p := s.page; p == nil || s.used > 0 || !all && !p.large || all && !p.fresh {
				if looks++; looks%64 == 0 {
					r.pages--
				}
			} else if r.pages--; !m.cool(p, r, all) {
				return false
			}
			c.below = s.number
		}
	}
	*c = endsCursor{}
	return true
}

// cool puts bodies of a page away, the last ones first, and says whether r was enough.
func (m *Machine) cool(p *page, r *relief, all bool) (done bool) {
	cool := true
	for i := uint(pageSize); i > 0; {
		if i--; !p.live.has(i) {
			continue
		}
		j := p.at(i)
		switch {
		case p.refs[j].OnDisk():
			continue
		case !all && p.sizes[j] <= largeBody, m.cold.Locate(p.refs[j]) == 0:
			cool = false
			continue
		case r.give <= 0:
			return false
		}
		cool = m.banish(p, j, r) && cool
	}
	p.cool, p.large, p.fresh = cool, false, p.fresh && !all && !cool
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
	for m := ps.warm[hot].first; m != nil; m = ps.warm[hot].first {
		if r.over() || !m.putHotAway(&r) {
			return true
		}
	}
	for m := ps.warm[warm].first; m != nil; m = ps.warm[warm].first {
		if r.over() || !m.putEndsAway(&r, true) {
			return true
		}
		r.pages--
		m.warm(m.isWarm())
	}
	return false
}

// putHotAway is PutBodiesAway for a machine that is hot. It says whether r was enough.
func (m *Machine) putHotAway(r *relief) (done bool) {
	if !m.sweeps {
		m.SweepAgain(false)
		m.sweeps, m.grew = true, false
	}
	if !m.ends.begun {
		if m.putAway(r, false); r.over() {
			return false
		}
	}
	if !m.putEndsAway(r, false) {
		return false
	}
	r.pages--
	m.warm(m.isWarm())
	return true
}

// isWarm is what the machine may have in memory that has come since it was looked at.
func (m *Machine) isWarm() (is warmth) {
	if m.grew {
		return hot
	}
	for _, l := range m.lanes {
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
