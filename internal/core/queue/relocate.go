package queue

import "bartleby.mq/internal/core/message"

// RangeBodies calls f for the entries, from the cursor on, whose bodies lie on
// disk at a place that in wants, none of which is in memory then. It looks at no
// more than limit pages and says whether that was all. f must not change the queue.
func (m *Machine) RangeBodies(from SaveCursor, limit int, in func(location uint64) bool, f func(id ID, body message.Ref)) (next SaveCursor, done bool) {
	if m.cold == nil {
		return from, true
	}
	for ; from.level < len(m.lanes); from.level, from.number = from.level+1, 0 {
		l := m.lanes[from.level]
		if l == nil {
			continue
		}
		k, _ := l.search(from.number)
		for ; k < len(l.slots); k++ {
			if limit == 0 {
				from.number = l.slots[k].number
				return from, false
			}
			limit--
			p := m.look(l, from.level, k)
			for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
				j := p.at(i)
				if at := m.cold.Locate(p.refs[j]); at != 0 && in(at) {
					// Entries of other queues may share the copy in memory, and its
					// place with it: each is to be moved by itself.
					p.refs[j] = m.cold.Cool(p.refs[j])
					f(makeID(from.level, p.number*pageSize+uint64(i)), p.refs[j])
				}
			}
			m.unlook(l, k, p)
		}
	}
	return from, true
}

// Relocation gives entries other references to their bodies, page by page: a page
// that was not in memory goes back to where it was when the next one's turn comes.
// The zero value of the rest is right; End ends it, before the queue is used otherwise.
type Relocation struct {
	M *Machine

	page   *page // the one before, if it came into memory for this
	number uint64
	level  int
}

// Move is Machine.Relocate.
func (r *Relocation) Move(id ID, from, to message.Ref) bool {
	m := r.M
	if l := m.lanes[id.Lane()]; l != nil && (r.page == nil || r.number != id.Seq()/pageSize || r.level != id.Lane()) {
		r.End()
		if k, ok := l.search(id.Seq() / pageSize); ok {
			if s := &l.slots[k]; s.page == nil || s.page.rest != nil {
				r.page, r.number, r.level = m.resident(l, id.Lane(), k), s.number, id.Lane()
			}
		}
	}
	return m.Relocate(id, from, to)
}

// End puts the last page back.
func (r *Relocation) End() {
	if r.page == nil {
		return
	}
	l := r.M.lanes[r.level]
	if k, ok := l.search(r.number); ok && l.slots[k].page == r.page && r.page.cool && r.M.quiet(r.page) {
		r.M.spill(l, r.level, k)
	}
	r.page = nil
}

// Relocate gives the entry another reference to the same body, which was moved on
// disk, and says whether the entry still had the one that was expected. That one is
// the caller's again.
func (m *Machine) Relocate(id ID, from, to message.Ref) bool {
	p, i := m.find(id)
	if p == nil || p.ref(i) != from {
		return false
	}
	m.touch(p)
	p.altered()
	p.refs[p.at(i)] = to
	return true
}
