package index

import "bartleby.mq/internal/core/message"

// Place is where an entry stands in memory: a page and a slot of it. It is good until an entry comes, goes, or is
// looked for elsewhere.
type Place struct {
	page *page
	slot uint
}

// Content is what an entry is, whatever state it is in.
type Content struct {
	Body        message.Ref
	History     message.Ref
	Counts      Counts
	Size        uint32 // bytes, as length limits count them (DL-10.2)
	Redelivered bool
	Logged      bool
}

// There says whether the place has an entry.
func (at Place) There() bool { return at.page != nil }

// State is the state of the entry.
func (at Place) State() uint8 { return at.page.state(at.slot) }

// In says whether there is an entry, in the state given.
func (at Place) In(state uint8) bool { return at.page != nil && at.page.state(at.slot) == state }

// Ready says whether there is an entry that may be delivered.
func (at Place) Ready() bool { return at.In(Ready) || at.In(Returned) }

// Dead says whether there is an entry that has died.
func (at Place) Dead() bool { return at.In(Dying) || at.In(Held) }

// Size is the entry's bytes, as length limits count them.
func (at Place) Size() uint32 { return at.page.size(at.slot) }

// Body is the reference to its body.
func (at Place) Body() message.Ref { return at.page.ref(at.slot) }

// Logged says whether the journal knows it.
func (at Place) Logged() bool { return at.page.logged(at.slot) }

// Redelivered says whether it was delivered before (BR-9.15).
func (at Place) Redelivered() bool { return at.page.redelivered(at.slot) }

// Owner is the slot of the consumer that has the entry, which is in Out.
func (at Place) Owner() uint32 { return at.page.owner(at.slot) }

// Counts are what is counted about it.
func (at Place) Counts() Counts { return at.page.countsOf(at.slot) }

// Read reads all of the entry at once: each look for its position in the columns costs as much as a column.
func (at Place) Read(c *Content) {
	p := at.page
	j := p.at(at.slot)
	mark := p.marks[j]
	c.Body, c.Size, c.Redelivered, c.Logged = p.refs[j], p.sizes[j], mark&flagRedelivered != 0, mark&flagLogged != 0
	c.History, c.Counts = 0, Counts{}
	if p.histories != nil {
		c.History = p.histories[j]
	}
	if p.counts != nil {
		c.Counts = p.counts[j]
	}
}

// Find returns the place of an entry, which comes into memory for it.
func (ix *Index) Find(id ID) Place {
	if id.Lane() >= len(ix.lanes) || ix.lanes[id.Lane()] == nil {
		return Place{}
	}
	return ix.at(ix.lanes[id.Lane()], id.Lane(), id.Seq())
}

// FindOut is Find for an entry that is in Out. It reads no page but one with entries that were out before a restart:
// what is out is in memory (quiet).
func (ix *Index) FindOut(id ID) Place {
	if id.Lane() >= len(ix.lanes) || ix.lanes[id.Lane()] == nil {
		return Place{}
	}
	l := ix.lanes[id.Lane()]
	k, ok := l.search(id.Seq() / PageSize)
	if !ok || l.slots[k].cold(uint(id.Seq()%PageSize)) && !l.slots[k].outs {
		return Place{}
	}
	return ix.at(l, id.Lane(), id.Seq())
}

// Side returns the entry's side row to be read, nil if it has none.
func (ix *Index) Side(at Place) *Side { return ix.peekSide(at.page, at.slot) }

// SideOf returns the entry's side row to be changed, making one if need be.
func (ix *Index) SideOf(at Place) *Side {
	ix.touchEntry(at.page, at.slot)
	return ix.rowOf(at.page, at.slot)
}

func (ix *Index) rowOf(p *page, i uint) *Side {
	ix.pages.need(p, &p.rows)
	row := &p.rows[p.at(i)]
	if *row == 0 {
		*row = ix.sides.take()
	}
	return ix.sides.at(*row)
}

func (ix *Index) peekSide(p *page, i uint) *Side {
	if p.rows == nil {
		return nil
	}
	if row := p.rows[p.at(i)]; row != 0 {
		return ix.sides.at(row)
	}
	return nil
}

// dropSide gives the entry's side row back.
func (ix *Index) dropSide(p *page, i uint) {
	if p.rows == nil {
		return
	}
	if row := &p.rows[p.at(i)]; *row != 0 {
		ix.sides.give(*row)
		*row = 0
	}
}

// CountsOf returns what is counted about the entry, to be changed.
func (ix *Index) CountsOf(at Place) *Counts {
	p := at.page
	ix.touchEntry(p, at.slot)
	p.altered()
	ix.pages.needCounts(p)
	return &p.counts[p.at(at.slot)]
}

// GiveTo notes who has the entry, which is in Out, or is about to be: the consumer at a slot, 0 being basic.get.
func (ix *Index) GiveTo(at Place, slot uint32) { ix.setOwner(at.page, at.slot, slot) }

func (ix *Index) setOwner(p *page, i uint, slot uint32) {
	if p.owners == nil {
		ix.pages.need(p, &p.owners)
	}
	p.owners[p.at(i)] = slot
}

// SetRedelivered notes that the entry is delivered.
func (ix *Index) SetRedelivered(at Place) { at.page.marks[at.page.at(at.slot)] |= flagRedelivered }

// SetBody gives the entry another reference to its body.
func (ix *Index) SetBody(at Place, body message.Ref) {
	ix.touch(at.page)
	at.page.altered()
	at.page.refs[at.page.at(at.slot)] = body
}

// SetHistory gives the entry another history. The reference to the one before becomes the caller's.
func (ix *Index) SetHistory(id ID, at Place, history message.Ref) (before message.Ref) {
	p := at.page
	ix.touch(p)
	p.altered()
	ix.pages.needHistories(p)
	j := p.at(at.slot)
	before = p.histories[j]
	if ix.pages.Hash != nil && p.logged(at.slot) {
		ix.mixIn(minus, id, p.sizes[j], before)
		ix.mixIn(1, id, p.sizes[j], history)
	}
	p.histories[j] = history
	return before
}

// SetTold notes that the journal tells that the entry, which is in Dying, is dead: it is saved in another state from
// now on.
func (ix *Index) SetTold(at Place) {
	ix.touchEntry(at.page, at.slot)
	at.page.altered()
	ix.rowOf(at.page, at.slot).Told = true
}

// SetState moves an entry from its state to another. One that comes to Returned is the last of the returns list.
func (ix *Index) SetState(id ID, at Place, to uint8) {
	p, i := at.page, at.slot
	ix.touchEntry(p, i)
	j := p.at(i)
	from, size := p.marks[j]&stateMask, int64(p.sizes[j])
	if from != Ready || to != Dying || ix.pages.Log.SavesDying() { // else it is saved as ready (kept)
		p.altered()
	}
	ix.tally(from, -1, -size)
	ix.tally(to, 1, size)
	p.marks[j] = p.marks[j]&^stateMask | to
	l := ix.lanes[id.Lane()]
	switch from {
	case Ready:
		p.ready.clear(i)
		ix.lessReady(l, id.Lane())
	case Returned:
		ix.returns.unlist(id)
	}
	switch to {
	case Ready:
		p.ready.set(i)
		l.ready++
		ix.filled[id.Lane()>>6] |= 1 << (id.Lane() & 63)
		l.head = min(l.head, id.Seq())
	case Returned:
		ix.returns.enlist(id)
	}
}

// Enter makes an entry, in Ready, and returns its ID: the next of the level if seq is 0. due is its moment, 0 = none.
func (ix *Index) Enter(level int, seq uint64, c *Content, due int64) (ID, Place) {
	ix.touchMeta()
	l := ix.lane(level)
	if seq == 0 {
		if l.next == 0 {
			l.next = 1 // so that no ID is 0
		}
		seq = l.next
	}
	l.next = max(l.next, seq+1)
	p, i := ix.slotFor(l, level, seq)
	ix.touch(p)
	p.altered()
	j := ix.pages.admit(p, i)
	if !c.Body.OnDisk() && (p.bodies < bodiesCame || c.Size > LargeBody) {
		ix.warmed(l, p, c.Size)
	}
	mark := uint8(stateMask) // none, until SetState
	if c.Logged {
		mark |= flagLogged
		ix.Count.Persistent++
	}
	if c.Redelivered {
		mark |= flagRedelivered
	}
	p.refs[j], p.sizes[j], p.marks[j] = c.Body, c.Size, mark
	if c.History != 0 {
		ix.pages.needHistories(p)
		p.histories[j] = c.History
	}
	if c.Counts != (Counts{}) {
		ix.pages.needCounts(p)
		p.counts[j] = c.Counts
	}
	id, at := MakeID(level, seq), Place{p, i}
	if ix.pages.Hash != nil && c.Logged {
		ix.mixIn(1, id, c.Size, c.History)
	}
	ix.SetMoment(at, due)
	ix.SetState(id, at, Ready)
	return id, at
}

// Forget removes an entry and returns what it held; the references are the caller's.
func (ix *Index) Forget(id ID, at Place) (body, history message.Ref, logged bool) {
	p, i := at.page, at.slot
	ix.touchEntry(p, i)
	j := p.at(i)
	from := p.marks[j] & stateMask
	ix.tally(from, -1, -int64(p.sizes[j]))
	l := ix.lanes[id.Lane()]
	switch from {
	case Ready:
		ix.lessReady(l, id.Lane())
	case Returned:
		ix.returns.unlist(id)
	}
	body, logged = p.refs[j], p.marks[j]&flagLogged != 0
	if p.histories != nil {
		history = p.histories[j]
	}
	if logged {
		ix.Count.Persistent--
	}
	if p.rows != nil {
		ix.dropSide(p, i)
	}
	if ix.pages.Hash != nil && logged {
		ix.mixIn(minus, id, p.sizes[j], history)
	}
	p.expel(i)
	ix.freed(l, p)
	return body, history, logged
}

// Remove is Forget for an entry that leaves other than by its death: the references pass to the sink.
func (ix *Index) Remove(id ID, at Place) {
	body, history, logged := ix.Forget(id, at)
	ix.sink.Removed(id, body, history, logged)
}

// TTL is the moment of the TTL of an entry in Delayed, 0 = none: its own moment is the end of its wait.
func (ix *Index) TTL(at Place) int64 {
	if s := ix.Side(at); s != nil {
		return s.TTL
	}
	return 0
}
