package queue

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// An entry is offered while somebody has asked for it to be moved to queues in other logs, and
// these have not said yet whether they take it. It is where it was, nobody gets it, its time
// does not pass, and length limits count it: if nobody takes it, it must be as if nothing had
// been asked.

// Offer makes a ready entry wait for the queues it is offered to. It says whether the entry
// was there and ready.
func (m *Machine) Offer(id ID) bool {
	p := m.Find(id)
	if !p.Ready() {
		return false
	}
	m.SetState(id, p, index.Offered)
	return true
}

// Offered says whether the entry is there and offered.
func (m *Machine) Offered(id ID) bool {
	return m.Find(id).In(index.Offered)
}

// Accept removes an offered entry that is elsewhere now. The references are the caller's.
func (m *Machine) Accept(id ID) (body, history message.Ref, logged, ok bool) {
	p := m.Find(id)
	if !p.In(index.Offered) {
		return 0, 0, false, false
	}
	body, history, logged = m.Forget(id, p)
	return body, history, logged, true
}

// Withdraw makes an offered entry ready again that nobody has taken. It has the place it came
// to the queue with, also where it was in the returns list before. It says whether it was
// there. What follows waits for Flow; if its time has passed meanwhile, for Expire.
func (m *Machine) Withdraw(id ID) bool {
	p := m.Find(id)
	if !p.In(index.Offered) {
		return false
	}
	m.Note(p)
	m.SetState(id, p, index.Ready)
	return true
}

// RangeOffered calls f for each offered entry, until it returns false. f may give the entry to
// Accept or Withdraw.
func (m *Machine) RangeOffered(f func(id ID) bool) {
	if m.Count.Offered == 0 {
		return
	}
	for _, id := range m.All(index.Offered) {
		if !f(id) {
			return
		}
	}
}

// RestoreOffered notes that the entry was offered.
func (m *Machine) RestoreOffered(id ID) {
	if p := m.Find(id); p.There() {
		m.awaken(id, p)
		m.SetState(id, p, index.Offered)
	}
}

// Impose lets a message in whatever the length limit says: it has been asked for already, and
// others have it.
func (m *Machine) Impose(now int64, e *Entry) (ID, Result) {
	m.expire(now, sliceLimit)
	return m.admit(now, e)
}

// Room says whether the queue has room for a message of so many bytes behind so many others
// that are to come. Unlike Accepts it changes nothing, so that it may be asked of a replica.
func (m *Machine) Room(size uint32, others int, bytes int64) bool {
	refuses, _ := m.refuses(int64(others), bytes, size)
	return !refuses
}
