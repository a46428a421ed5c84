package index

import "bartleby.mq/internal/core/message"

// RangeBodies calls f for the entries, from the cursor on, whose bodies lie on
// disk at a place that in wants, none of which is in memory then. It looks at no
// more than limit pages and says whether that was all. f must not change the queue.
func (ix *Index) RangeBodies(from SaveCursor, limit int, in func(location uint64) bool, f func(id ID, body message.Ref)) (next SaveCursor, done bool) {
	if ix.cold == nil {
		return from, true
	}
	for ; from.level < len(ix.lanes); from.level, from.number = from.level+1, 0 {
		l := ix.lanes[from.level]
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
			p := ix.look(l, from.level, k)
			for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
				j := p.at(i)
				if at := ix.cold.Locate(p.refs[j]); at != 0 && in(at) {
					// Entries of other queues may share the copy in memory, and its
					// place with it: each is to be moved by itself.
					p.refs[j] = ix.cold.Cool(p.refs[j])
					f(MakeID(from.level, p.number*PageSize+uint64(i)), p.refs[j])
				}
			}
			ix.unlook(l, k, p)
		}
	}
	return from, true
}

// Relocation gives entries other references to their bodies, page by page: a page
// that was not in memory goes back to where it was when the next one's turn comes.
// The zero value of the rest is right; End ends it, before the queue is used otherwise.
type Relocation struct {
	X *Index

	page   *page // the one before, if it came into memory for this
	number uint64
	level  int
}

// Move is Machine.Relocate.
func (r *Relocation) Move(id ID, from, to message.Ref) bool {
	ix := r.X
	if l := ix.lanes[id.Lane()]; l != nil && (r.page == nil || r.number != id.Seq()/PageSize || r.level != id.Lane()) {
		r.End()
		if k, ok := l.search(id.Seq() / PageSize); ok {
			if s := &l.slots[k]; s.page == nil || s.page.rest != nil {
				r.page, r.number, r.level = ix.resident(l, id.Lane(), k), s.number, id.Lane()
			}
		}
	}
	return ix.Relocate(id, from, to)
}

// End puts the last page back.
func (r *Relocation) End() {
	if r.page == nil {
		return
	}
	l := r.X.lanes[r.level]
	if k, ok := l.search(r.number); ok && l.slots[k].page == r.page && r.page.bodies == bodiesGone && r.X.quiet(r.page) {
		r.X.spill(l, r.level, k)
	}
	r.page = nil
}

// Relocate gives the entry another reference to the same body, which was moved on
// disk, and says whether the entry still had the one that was expected. That one is
// the caller's again.
func (ix *Index) Relocate(id ID, from, to message.Ref) bool {
	at := ix.Find(id)
	if !at.There() || at.Body() != from {
		return false
	}
	ix.SetBody(at, to)
	return true
}
