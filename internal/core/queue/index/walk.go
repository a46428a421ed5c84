package index

import "math"

// Each calls f for every entry, by level and number; with special, those
// are left out that are in the copy of a page only and with others in Ready
// there. f must not change the queue, and the place is good during the call only.
func (ix *Index) Each(special bool, f func(id ID, at Place)) {
	for level, l := range ix.lanes {
		if l == nil {
			continue
		}
		for k := range l.slots {
			ix.visit(l, level, k, special, func(id ID, at Place) bool {
				f(id, at)
				return true
			})
		}
	}
}

// visit calls f for the entries of the page at k until it returns false, and says whether there was a page to be
// looked at: with special, it passes over one that is in the copy only, and with others in Ready there.
func (ix *Index) visit(l *lane, level, k int, special bool, f func(id ID, at Place) (more bool)) (looked bool) {
	p, whole := l.slots[k].page, !special || !l.slots[k].plain
	if whole {
		p = ix.look(l, level, k)
	}
	if p == nil {
		return false
	}
	first := MakeID(level, p.number*PageSize)
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if !f(first+ID(i), Place{p, i}) {
			break
		}
	}
	if whole {
		ix.unlook(l, k, p)
	}
	return true
}

// All are the entries in the state given, which is not Ready, by level and number.
func (ix *Index) All(state uint8) (list []ID) {
	ix.Each(true, func(id ID, at Place) {
		if at.State() == state {
			list = append(list, id)
		}
	})
	return list
}

// RangeOut calls f for entries in Out until it returns false, higher levels first and in order. owner is the slot of
// the consumer that has the entry.
func (ix *Index) RangeOut(f func(id ID, owner uint32) (more bool)) {
	more := true
	for level := len(ix.lanes) - 1; level >= 0; level-- {
		l := ix.lanes[level]
		for k := 0; l != nil && k < len(l.slots) && more; k++ {
			ix.visit(l, level, k, true, func(id ID, at Place) bool {
				more = at.State() != Out || f(id, at.Owner())
				return more
			})
		}
	}
}

// SaveCursor is how far a call that goes through the pages of a queue in steps has come.
type SaveCursor struct {
	level  int
	number uint64
}

// RangeFrom calls f for entries from the cursor on, as Each does with special. It looks at no more than about limit
// entries, a page that it passes over counting as one, and says whether that was all.
func (ix *Index) RangeFrom(from SaveCursor, limit int, f func(id ID, at Place)) (next SaveCursor, done bool) {
	for ; from.level < len(ix.lanes); from.level, from.number = from.level+1, 0 {
		l := ix.lanes[from.level]
		if l == nil {
			continue
		}
		k, _ := l.search(from.number)
		for ; k < len(l.slots); k++ {
			if limit <= 0 {
				from.number = l.slots[k].number
				return from, false
			}
			limit--
			looked := ix.visit(l, from.level, k, true, func(id ID, at Place) bool {
				f(id, at)
				return true
			})
			if looked {
				limit -= PageSize
			}
		}
	}
	return from, true
}

// Cursor is a place in a queue between two entries; the zero value is before
// the first. It stays good whatever happens to the entries.
type Cursor struct {
	begun bool
	id    ID
	ends  []uint64 // by level, the number that ends what is shown; nil: all is shown. It is never changed
}

// Behind is the place right behind the entry, with the end that c has.
func (c Cursor) Behind(id ID) Cursor { return Cursor{true, id, c.ends} }

func (c *Cursor) end(level int) uint64 {
	if c.ends == nil {
		return math.MaxUint64
	}
	if level >= len(c.ends) { // a stored cursor that another queue wrote
		return 0
	}
	return c.ends[level]
}

// WhatIsThere is a cursor before the first entry which ends with what is in the queue now: entries that
// come later have higher numbers.
func (ix *Index) WhatIsThere() Cursor {
	c := Cursor{ends: make([]uint64, len(ix.lanes))}
	for level, l := range ix.lanes {
		if l != nil {
			c.ends[level] = l.next
		}
	}
	return c
}

// Ends are by level the numbers that end what the cursor shows, nil if it shows all.
func (c Cursor) Ends() []uint64 { return c.ends }

// Last is the entry that the cursor is behind; ok is false if it is before the first.
func (c Cursor) Last() (id ID, ok bool) { return c.id, c.begun }

// At is the place right before the entry with this number of a level, with the end that c has. REQUIRES: c is from
// WhatIsThere, and the level is one of those in Ends.
func (c Cursor) At(level int, seq uint64) Cursor {
	switch {
	case seq > 0:
		return c.Behind(MakeID(level, seq-1))
	case level+1 < len(c.ends):
		return c.Behind(MakeID(level+1, 1<<seqBits-1))
	}
	return Cursor{ends: c.ends}
}

// Browse calls f for the entries after the cursor, in the order of levels,
// highest first, and numbers, until f returns false or limit entries were
// shown; it returns the cursor to go on from, and done at the end, which is
// that of the cursor if it has one. It changes nothing.
func (ix *Index) Browse(after Cursor, limit int, f func(id ID, at Place) bool) (next Cursor, done bool) {
	level, seq := len(ix.lanes)-1, uint64(0)
	if after.begun {
		level, seq = min(after.id.Lane(), level), after.id.Seq()+1
	}
	for ; level >= 0; level, seq = level-1, 0 {
		l := ix.lanes[level]
		if l == nil {
			continue
		}
		end := after.end(level)
		k, _ := l.search(seq / PageSize)
		for ; k < len(l.slots) && l.slots[k].number*PageSize < end; k++ {
			if limit == 0 {
				return after, false
			}
			stopped := false
			ix.visit(l, level, k, false, func(id ID, at Place) bool {
				switch {
				case id.Seq() < seq:
					return true
				case id.Seq() >= end:
					return false
				}
				if stopped = limit == 0; !stopped {
					limit--
					after = after.Behind(id)
					stopped = !f(id, at)
				}
				return !stopped
			})
			if stopped {
				return after, false
			}
		}
	}
	return after, true
}
