package queue

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// An entry is offered while a client or an operator moves it to queues in other logs and these have not answered yet.
// It keeps its place; it is not delivered, its TTL does not end, and length limits count it. If no queue takes it, the
// entry must be as if it had never been offered.

// Offer makes a ready entry wait for the answers of the queues it is offered to. It says whether the entry was there
// and ready.
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

// Accept removes an offered entry that another queue has taken. The references are the caller's.
func (m *Machine) Accept(id ID) (body, history message.Ref, logged, ok bool) {
	p := m.Find(id)
	if !p.In(index.Offered) {
		return 0, 0, false, false
	}
	body, history, logged = m.Forget(id, p)
	return body, history, logged, true
}

// Withdraw makes an offered entry ready again because no queue took it. The entry stands where it first entered the
// queue, even if it was in the returns list before the offer. Withdraw says whether the entry was there. The caller
// then calls Flow, and Expire if the TTL has ended meanwhile.
func (m *Machine) Withdraw(id ID) bool {
	p := m.Find(id)
	if !p.In(index.Offered) {
		return false
	}
	m.Note(p)
	m.SetState(id, p, index.Ready)
	return true
}

// RangeOffered calls f for each offered entry until f returns false. f may give the entry to Accept or Withdraw.
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

// RestoreOffered notes that the entry was offered. It is for recovery.
func (m *Machine) RestoreOffered(id ID) {
	if p := m.Find(id); p.There() {
		m.awaken(id, p)
		m.SetState(id, p, index.Offered)
	}
}

// Impose lets a message in beyond any length limit: it was announced before, and other queues have already taken it.
func (m *Machine) Impose(now int64, e *Entry) (ID, Result) {
	m.expire(now, sliceLimit)
	return m.admit(now, e)
}

// Room says whether the queue would have room for a message of size bytes after `others` more messages with `bytes`
// bytes in all. Unlike Accepts it changes nothing, so any replica may ask it.
func (m *Machine) Room(size uint32, others int, bytes int64) bool {
	refuses, _ := m.refuses(int64(others), bytes, size)
	return !refuses
}
