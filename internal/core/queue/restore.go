package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
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

// RestoreDelayed notes that the entry is to be delivered only from the moment given on, for the first time.
func (m *Machine) RestoreDelayed(id ID, until int64) {
	if p := m.Find(id); p.There() {
		m.awaken(id, p)
		m.hide(id, p, until)
	}
}

// RestoreHeld notes that the entry died and waits for its targets.
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

// awaken ends what the entry was in before: the journal does not tell the end of
// a wait, nor that an entry left the returns list from its middle.
func (m *Machine) awaken(id ID, p index.Place) {
	switch p.State() {
	case index.Delayed:
		m.unhide(id, p)
	case index.Returned:
		m.SetState(id, p, index.Ready)
		m.ReturnsAgain(id)
	}
}

// RestoreRemoved notes that the entry is gone. The references are the caller's.
func (m *Machine) RestoreRemoved(id ID) (body, history message.Ref, ok bool) {
	p := m.Find(id)
	if !p.There() {
		return 0, 0, false
	}
	delete(m.unread, id)
	body, history, _ = m.Forget(id, p)
	return body, history, true
}

// Restored ends recovery: deliveries that were out come back, as if their
// channels had closed (BR-14.2), in order; what is due or too much dies by Tick
// and Trim as usual.
func (m *Machine) Restored(now int64) {
	m.lastUse = now
	for _, id := range m.All(index.Out) {
		if p := m.Find(id); p.There() {
			m.giveBack(now, id, p, nil, returnRestart)
		}
	}
}

// TakeSurplus takes out the message that the length limit would have die first, if the queue is
// over it. The references in it are the caller's.
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
