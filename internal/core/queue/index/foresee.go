package index

import "bartleby.mq/internal/core/message"

// What is due soon may have been written long ago, and the system has given the memory
// that it was kept in to others. Whoever can wait for the disk reads it ahead, so that
// at its moment nobody has to. Nothing that can be seen changes by it.

// ComingCursor is how far ComingPages has come with a queue.
type ComingCursor struct{ level, place int }

// comingLooks is how many alarms one call of ComingPages looks at: they follow each other
// in memory, and are looked at in microseconds.
const comingLooks = 8192

// ComingPages appends pages in memory some of whose entries are due by then, in no
// order, and some of them twice: each by the ID that its first entry has, or had. It goes
// on where the cursor tells; what changes between two calls may hide a page from it.
func (ix *Index) ComingPages(from ComingCursor, until int64, pages []ID) (next ComingCursor, more bool, all []ID) {
	looks := comingLooks
	for ; from.level < len(ix.lanes); from.level, from.place = from.level+1, 0 {
		l := ix.lanes[from.level]
		if l == nil {
			continue
		}
		for ; from.place < len(l.dues); from.place++ {
			if looks == 0 {
				return from, true, pages
			}
			looks--
			if a := l.dues[from.place]; a.at <= until {
				pages = append(pages, MakeID(from.level, a.number*PageSize))
			}
		}
	}
	return from, false, pages
}

// Coming is an entry that is due soon.
type Coming struct {
	At   message.Location // of its record
	Size uint32           // of its body, in bytes
}

// ComingBodies appends those of a page's entries that are due by then and whose records
// are on disk, but for those that just go away. With mark, they are not listed again as
// long as the page is in memory.
func (ix *Index) ComingBodies(page ID, until int64, mark bool, list []Coming) []Coming {
	l := ix.lanes[page.Lane()]
	if l == nil {
		return list
	}
	p := l.loaded(page.Seq() / PageSize)
	if p == nil || p.dues == nil {
		return list
	}
	after := p.seen
	if after > until {
		after = 0 // the clock was put back
	}
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		j := p.at(i)
		if due := p.dueAt(i); due <= after || due > until || !p.refs[j].OnDisk() {
			continue
		}
		if state := p.state(i); ix.watches(state) && (state == Delayed || ix.Terms.Routes) {
			list = append(list, Coming{p.refs[j].Location(), p.sizes[j]})
		}
	}
	if mark {
		p.seen = until
	}
	return list
}
