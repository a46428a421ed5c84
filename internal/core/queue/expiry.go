package queue

import (
	"bartleby.mq/internal/core/queue/index"
)

// Expiry (DL-8): a message dies at its moment wherever it stands, or, in strict mode, once it is at a head.

// ExpiresBy says whether a Tick at the given moment may find something to expire, now or overdue. It may say yes
// without reason, but not again after that Tick, unless the Tick stopped at its limit.
func (m *Machine) ExpiresBy(at int64) bool {
	due := min(m.Index.NextDue(), m.NextWake())
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	return due <= at
}

// Expire lets due entries die. Callers do so before they show the queue's counters.
func (m *Machine) Expire(now int64) (more bool) { return m.expire(now, sliceLimit) }

// expire lets due entries in memory die, wherever they stand; in strict mode only at the heads (DL-8.4). It handles
// at most limit entries, ordered by level, moment and number.
func (m *Machine) expire(now int64, limit int) (more bool) {
	if m.IsDue(now) {
		more = m.expireDue(now, limit)
	}
	if m.config.Strict {
		m.expireHeads(now)
	}
	return more
}

func (m *Machine) expireDue(now int64, limit int) (more bool) {
	due := m.Ripe(now)
	for limit > 0 {
		id, p, ok := due.Next()
		if !ok {
			break
		}
		before := m.pages.Saves()
		if m.ripe(now, id, p) {
			limit--
		}
		if m.pages.Log.CountsSaves() {
			limit -= m.pages.Saves() - before
		}
	}
	return due.End()
}

// ripe handles an entry that is due and says whether that changed anything.
func (m *Machine) ripe(now int64, id ID, p index.Place) bool {
	switch p.State() {
	case index.Delayed:
		m.unhide(id, p)
		if m.comeBack(now, id, p) && len(m.cs.list) > 0 {
			m.busy = true // not every caller of expire pumps afterwards: a look does not, nor does a refused publish
		}
		return true
	case index.Ready, index.Returned:
		if m.config.Strict {
			return false // it waits until it is at the head: expireHeads
		}
		m.lapse(now, id, p)
		return true
	}
	return false // out, dying or held: comeBack looks at its moment when it comes back
}

// headsDue is the first moment among the entries that expireHeads looks at. A head may have come to its place after
// its moment.
func (m *Machine) headsDue() int64 {
	due := never
	note := func(p index.Place) {
		if at := m.Moment(p); at != 0 {
			due = min(due, at)
		}
	}
	if _, p, ok := m.First(); ok {
		note(p)
	}
	for level := 0; m.config.Type == Quorum && level < m.Terms.Levels; level++ {
		if m.ReadyIn(level) > 0 {
			_, p := m.FirstIn(level)
			note(p)
		}
	}
	return due
}

// expireHeads lets expired heads die, as RabbitMQ does: on classic queues the heads of the highest level that has
// messages (DL-8.9), on quorum queues the heads of each level. At most sliceLimit die in one call. The rest can wait:
// expired messages are never delivered, and NextDue returns a moment for them.
func (m *Machine) expireHeads(now int64) {
	limit := sliceLimit
	for ; limit > 0; limit-- {
		id, p, ok := m.First()
		if !ok {
			return
		}
		if due := m.Moment(p); due == 0 || due > now {
			break
		}
		m.lapse(now, id, p)
	}
	if m.config.Type != Quorum {
		return
	}
	for level := range m.Terms.Levels {
		for ; limit > 0 && m.ReadyIn(level) > 0; limit-- {
			id, p := m.FirstIn(level)
			if due := m.Moment(p); due == 0 || due > now {
				break
			}
			m.lapse(now, id, p)
		}
	}
}
