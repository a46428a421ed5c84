package queue

import (
	"math"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// Purge is PurgeSome of all at once.
func (m *Machine) Purge(told func(first ID, n int)) int {
	purged, _ := m.PurgeSome(&index.Purging{}, math.MaxInt, told)
	return purged
}

// PurgeSome removes messages that are ready, and on quorum queues those that
// are delayed or held (DL-2.1), and returns their number. How it goes on and what it costs, index.Purge tells.
func (m *Machine) PurgeSome(to *index.Purging, limit int, told func(first ID, n int)) (purged int, more bool) {
	var of index.States = 1<<index.Ready | 1<<index.Returned
	if m.config.Type == Quorum {
		of |= 1<<index.Delayed | 1<<index.Held
	}
	before := m.Count.Ready + m.Count.Delayed + m.Count.Held
	more = m.Index.Purge(to, limit, of, told)
	return before - (m.Count.Ready + m.Count.Delayed + m.Count.Held), more
}

// Close empties the queue for its deletion and returns the consumers it had. It asks nothing of the disk.
func (m *Machine) Close() []*Consumer {
	m.Index.Close()
	m.dying, m.unread, m.watch = nil, nil, never
	return m.cs.clear()
}

// Take removes a ready entry for a move that somebody asked for, such as a
// replay. The references are the caller's.
func (m *Machine) Take(id ID) (body, history message.Ref, logged, ok bool) {
	p := m.Find(id)
	if !p.Ready() {
		return 0, 0, false, false
	}
	body, history, logged = m.Forget(id, p)
	return body, history, logged, true
}

// Discard removes an entry whose record is lost, whatever it waits for. out says that c
// has it, or nil by a get; one that is out at somebody else stays. It says whether the
// entry was there and went.
func (m *Machine) Discard(id ID, c *Consumer, out bool) bool {
	var p index.Place
	if out {
		p = m.taken(id, c)
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
