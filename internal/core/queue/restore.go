package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// The functions of this file redo what a journal records. They decide nothing: no limit, no expiry, no delivery. They
// ignore unknown entries, because the record that made such an entry may be lost, with everything that followed from
// it.

// Restored is an entry and its state, as the journal has it.
type Restored struct {
	Entry
	NotBefore int64 // it waits for its retry until this moment; 0 = it does not wait
	Out       bool
	Returned  bool              // it is in the returns list, behind those restored before
	Offered   bool              // it waits for other queues to take it (offer.go)
	Held      deadletter.Reason // if not 0, it is held and died for this reason
	DiedAt    int64
}

// Restore makes an entry with a given ID, and replaces one that is there. It says whether it could: an ID that this
// queue cannot have is refused, and the references stay the caller's.
func (m *Machine) Restore(id ID, r *Restored) bool {
	if id.Seq() == 0 || id.Lane() >= m.Terms.Levels {
		return false
	}
	if p := m.Find(id); p.There() {
		m.awaken(id, p)
		m.Remove(id, p)
	}
	r.Logged = true
	_, p := m.enter(id, &r.Entry, r.Due)
	switch {
	case r.Held != 0:
		m.SetState(id, p, index.Held)
		s := m.SideOf(p)
		s.Reason, s.DiedAt = r.Held, r.DiedAt
	case r.Offered:
		m.RestoreOffered(id)
	case r.Out:
		m.RestoreOut(id)
	case r.NotBefore != 0:
		m.hide(id, p, r.NotBefore)
	case r.Returned:
		m.RestoreReturned(id, r.Counts, 0)
	}
	return true
}

// RestoreOut notes that the entry was delivered.
func (m *Machine) RestoreOut(id ID) {
	p := m.Find(id)
	if !p.There() {
		return
	}
	m.GiveTo(p, 0)
	m.SetRedelivered(p)
	m.awaken(id, p)
	m.SetState(id, p, index.Out)
}

// RestoreReturned notes that the entry came back.
func (m *Machine) RestoreReturned(id ID, counts Counts, notBefore int64) {
	p := m.Find(id)
	if !p.There() {
		return
	}
	m.SetRedelivered(p)
	m.awaken(id, p)
	if counts != (Counts{}) {
		*m.CountsOf(p) = counts
	}
	if notBefore != 0 {
		m.hide(id, p, notBefore)
		return
	}
	if m.config.Type == Quorum {
		m.SetState(id, p, index.Returned)
		return
	}
	m.SetState(id, p, index.Ready)
}

// RestoreDelayed notes that the entry waits until the given moment for its first delivery.
func (m *Machine) RestoreDelayed(id ID, until int64) {
	if p := m.Find(id); p.There() {
		m.awaken(id, p)
		m.hide(id, p, until)
	}
}

// RestoreHeld notes that the entry died and is held for its targets.
func (m *Machine) RestoreHeld(id ID, reason deadletter.Reason, at int64) {
	p := m.Find(id)
	if !p.There() {
		return
	}
	m.awaken(id, p)
	m.SetState(id, p, index.Held)
	s := m.SideOf(p)
	s.Reason, s.DiedAt = reason, at
}

// RestoreNoted gives an entry the history with which it died. The reference to the one before becomes the caller's. ok is
// false if there is no such entry.
func (m *Machine) RestoreNoted(id ID, history message.Ref) (before message.Ref, ok bool) {
	p := m.Find(id)
	if !p.There() {
		return 0, false
	}
	return m.SetHistory(id, p, history), true
}

// awaken ends a wait, or the place in the returns list, before the entry gets its next state. The journal records
// neither the end of a wait nor that an entry left the returns list from the middle.
func (m *Machine) awaken(id ID, p index.Place) {
	switch p.State() {
	case index.Delayed:
		m.unhide(id, p)
	case index.Returned:
		m.SetState(id, p, index.Ready)
		m.ReturnsAgain(id)
	}
}

// RestoreRemoved removes the entry. The references are the caller's.
func (m *Machine) RestoreRemoved(id ID) (body, history message.Ref, ok bool) {
	p := m.Find(id)
	if !p.There() {
		return 0, 0, false
	}
	delete(m.unread, id)
	body, history, _ = m.Forget(id, p)
	return body, history, true
}

// Restored ends recovery. Deliveries that were out come back in order, as if their channels had closed (BR-14.2). Due
// entries, and entries beyond the limit, die afterwards by Tick and Trim.
func (m *Machine) Restored(now int64) {
	m.lastUse = now
	for _, id := range m.All(index.Out) {
		if p := m.Find(id); p.There() {
			m.giveBack(now, id, p, nil, returnRestart, 0)
		}
	}
}

// TakeSurplus removes the message that the length limit would let die first, if the queue is over its limit. The
// references in it are the caller's.
func (m *Machine) TakeSurplus() (e Entry, ok bool) {
	if !m.overflowing() {
		return e, false
	}
	id, p, ok := m.First()
	if !ok {
		return e, false
	}
	m.awaken(id, p)
	e.Size = p.Size()
	e.Body, e.History, _ = m.Forget(id, p)
	return e, true
}
