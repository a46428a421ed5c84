package queue

import (
	"math"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// Purge removes everything at once: PurgeSome without a limit.
func (m *Machine) Purge(told func(first ID, n int)) int {
	purged, _ := m.PurgeSome(&index.Purging{}, math.MaxInt, told)
	return purged
}

// PurgeSome removes messages that are ready and, on quorum queues and in the queue of an exchange that delays messages,
// those that are delayed or held (DL-2.1). It returns how many. See index.Purge for limit, told, and how it goes on with
// more.
func (m *Machine) PurgeSome(to *index.Purging, limit int, told func(first ID, n int)) (purged int, more bool) {
	var of index.States = 1<<index.Ready | 1<<index.Returned
	if m.config.Type == Quorum || m.config.Delays {
		of |= 1<<index.Delayed | 1<<index.Held
	}
	before := m.Count.Ready + m.Count.Delayed + m.Count.Held
	more = m.Index.Purge(to, limit, of, told)
	return before - (m.Count.Ready + m.Count.Delayed + m.Count.Held), more
}

// Close empties the queue for its deletion and returns the consumers it had. It reads nothing from disk.
func (m *Machine) Close() []*Consumer {
	m.Index.Close()
	m.dying, m.unread, m.watch, m.breaker = nil, nil, never, nil
	return m.cs.clear()
}

// Take removes a ready entry for a move that a client or an operator asked for, such as a replay. The references are
// the caller's.
func (m *Machine) Take(id ID) (body, history message.Ref, logged, ok bool) {
	p := m.Find(id)
	if !p.Ready() {
		return 0, 0, false, false
	}
	body, history, logged = m.Forget(id, p)
	return body, history, logged, true
}

// Discard removes an entry whose record is lost, in whatever state. out says that the entry is delivered to c, or by
// basic.get if c is nil. An entry that is out at another consumer stays. Discard says whether the entry was there and
// is now removed.
func (m *Machine) Discard(id ID, c *Consumer, out bool) bool {
	var p index.Place
	if out {
		if p = m.taken(id, c); p.There() {
			m.ended(0, id, endReturned)
		}
	}
	if !p.There() {
		if p = m.Find(id); !p.There() || p.State() == index.Out {
			return false
		}
	}
	delete(m.unread, id)
	m.Remove(id, p)
	return true
}
