package queue

import "bartleby.mq/internal/message"

// What is due soon may have been written long ago, and the system has given the memory
// that it was kept in to others. Whoever can wait for the disk reads it ahead, so that
// at its moment nobody has to. Nothing changes by it.

// ComingPages appends the pages in memory some of whose entries are due by then, in no
// order: each by the ID that its first entry has, or had.
func (m *Machine) ComingPages(until int64, pages []ID) []ID {
	if m.nextDue > until {
		return pages
	}
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		l.dues.by(until, 0, func(a alarm) { pages = append(pages, makeID(level, a.number*pageSize)) })
	}
	return pages
}

// Coming is an entry that is due soon.
type Coming struct {
	At   message.Location // of its record
	Size uint32           // of its body, in bytes
}

// ComingBodies appends where the bodies lie of a page's entries that are due after the
// one moment and by the other, and are read then: those in memory are left out, and so
// are those that just go away.
func (m *Machine) ComingBodies(page ID, after, until int64, list []Coming) []Coming {
	l := m.lanes[page.Lane()]
	if l == nil {
		return list
	}
	k, ok := l.search(page.Seq() / pageSize)
	if !ok || l.slots[k].page == nil || l.slots[k].page.dues == nil {
		return list
	}
	p := l.slots[k].page
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		j := p.at(i)
		if due := p.dueAt(i); due <= after || due > until || !p.refs[j].OnDisk() {
			continue
		}
		if state := p.state(i); m.watches(state) && (state == stateDelayed || m.settings.DeadLetter) {
			list = append(list, Coming{p.refs[j].Location(), p.sizes[j]})
		}
	}
	return list
}
