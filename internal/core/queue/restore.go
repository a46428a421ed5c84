package queue

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// The commands of this file redo what a journal says happened. They decide
// nothing: no limit, no expiry, no delivery. Unknown entries are ignored, since
// the record that made them may be gone with all that followed from it.

// Restored is the state of an entry as the journal holds it.
type Restored struct {
	Entry
	NotBefore int64 // it waits for its retry until then; 0 = it does not
	Out       bool
	Returned  bool              // it is in the returns list, behind those told before
	Offered   bool              // it waits for whether it is taken elsewhere
	Held      deadletter.Reason // not 0: it is held, having died for this reason
	DiedAt    int64
}

// Restore makes an entry with the ID it had, or replaces what is there. It says
// whether it was made; if not, the queue cannot have had such an entry, and the
// references stay the caller's.
func (m *Machine) Restore(id ID, r *Restored) bool {
	if id.Seq() == 0 || id.Lane() >= len(m.lanes) {
		return false
	}
	if p, i := m.find(id); p != nil {
		m.awaken(id, p, i)
		m.remove(id, p, i)
	}
	r.Logged = true
	_, p, i := m.enter(id.Lane(), id.Seq(), &r.Entry, stateReady, r.Due)
	switch {
	case r.Held != 0:
		m.setState(id, p, i, stateHeld)
		s := m.sideOf(p, i)
		s.reason, s.diedAt = r.Held, r.DiedAt
	case r.Offered:
		m.RestoreOffered(id)
	case r.Out:
		m.RestoreOut(id)
	case r.NotBefore != 0:
		m.hide(id, p, i, r.NotBefore)
	case r.Returned:
		m.RestoreReturned(id, r.Counts, 0)
	}
	return true
}

// RestoreOut notes that the entry was delivered.
func (m *Machine) RestoreOut(id ID) {
	p, i := m.find(id)
	if p == nil {
		return
	}
	m.setOwner(p, i, 0)
	p.marks[p.at(i)] |= flagRedelivered
	m.awaken(id, p, i)
	m.setState(id, p, i, stateOut)
}

// RestoreReturned notes that the entry came back.
func (m *Machine) RestoreReturned(id ID, counts Counts, notBefore int64) {
	p, i := m.find(id)
	if p == nil {
		return
	}
	p.marks[p.at(i)] |= flagRedelivered
	m.awaken(id, p, i)
	if counts != (Counts{}) {
		*m.counts(p, i) = counts
	}
	if notBefore != 0 {
		m.hide(id, p, i, notBefore)
		return
	}
	if m.config.Type == Quorum {
		m.touchMeta()
		m.returns = append(m.returns, id)
		m.setState(id, p, i, stateReturned)
		return
	}
	m.setState(id, p, i, stateReady)
}

// RestoreDelayed notes that the entry is to be delivered only from the moment given on, for the first time.
func (m *Machine) RestoreDelayed(id ID, until int64) {
	if p, i := m.find(id); p != nil {
		m.awaken(id, p, i)
		m.hide(id, p, i, until)
	}
}

// RestoreHeld notes that the entry died and waits for its targets.
func (m *Machine) RestoreHeld(id ID, reason deadletter.Reason, at int64) {
	p, i := m.find(id)
	if p == nil {
		return
	}
	m.awaken(id, p, i)
	m.setState(id, p, i, stateHeld)
	s := m.sideOf(p, i)
	s.reason, s.diedAt = reason, at
}

// awaken ends what the entry was in before: the journal does not tell the end of
// a wait, nor that an entry left the returns list from its middle.
func (m *Machine) awaken(id ID, p *page, i uint) {
	switch p.state(i) {
	case stateDelayed:
		m.unhide(id, p, i)
	case stateReturned:
		m.touchMeta()
		m.setState(id, p, i, stateReady)
		if _, stray := m.strays[id]; stray { // seldom: it may come to the list again
			delete(m.strays, id)
			if at := slices.Index(m.returns, id); at >= 0 {
				m.returns = slices.Delete(m.returns, at, at+1)
			}
		}
	}
}

// RestoreRemoved notes that the entry is gone. The references are the caller's.
func (m *Machine) RestoreRemoved(id ID) (body, history message.Ref, ok bool) {
	p, i := m.find(id)
	if p == nil {
		return 0, 0, false
	}
	body, history, _ = m.forget(id, p, i)
	return body, history, true
}

// RestorePurge notes that everything is gone but the entries that keep names.
func (m *Machine) RestorePurge(keep func(ID) bool) {
	for level, l := range m.lanes {
		for k := 0; l != nil && k < len(l.slots); {
			p, number := m.resident(l, level, k), l.slots[k].number
			for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
				if id := makeID(level, p.number*pageSize+uint64(i)); !keep(id) {
					m.remove(id, p, i)
				}
			}
			// It may have gone with its last entry, and others that were empty.
			var there bool
			if k, there = l.search(number); there {
				k++
			}
		}
	}
}

// Reserve sees to it that no entry to come gets the number of one that was not logged, and is gone, as long as
// somebody still speaks of it.
func (m *Machine) Reserve(id ID) {
	if id.Lane() >= len(m.lanes) {
		return
	}
	l := m.lane(id.Lane())
	if l.next > id.Seq() {
		return
	}
	m.touchMeta()
	l.next = id.Seq() + 1
	if last := len(l.slots) - 1; last >= 0 && l.spent(&l.slots[last]) {
		m.drop(l, last) // it is not being filled any more
	}
}

// Restored ends recovery: deliveries that were out come back, as if their
// channels had closed (BR-14.2), in order; what is due or too much dies by Tick
// and Trim as usual.
func (m *Machine) Restored(now int64) {
	m.lastUse = now
	var out []ID
	m.each(true, func(id ID, p *page, i uint) {
		if p.state(i) == stateOut {
			out = append(out, id)
		}
	})
	for _, id := range out {
		if p, i := m.find(id); p != nil {
			m.giveBack(now, id, p, i, nil, returnRestart)
		}
	}
}

// TakeSurplus takes out the message that the length limit would have die first, if the queue is
// over it. The references in it are the caller's.
func (m *Machine) TakeSurplus() (e Entry, ok bool) {
	if !m.overflowing() {
		return e, false
	}
	id, p, i, ok := m.first()
	if !ok {
		return e, false
	}
	m.awaken(id, p, i)
	e.Size = p.sizes[p.at(i)]
	e.Body, e.History, _ = m.forget(id, p, i)
	return e, true
}
