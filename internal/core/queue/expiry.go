package queue

import (
	"math"

	"bartleby.mq/internal/core/queue/index"
)

// When a message expires (DL-8): wherever it stands when its moment comes, or in strict mode when it is at a head.

// ExpiresBy says whether entries may expire with a Tick at the moment given, or were to have
// expired before it. It may say so without reason, but not again after that Tick, unless that was
// at its limit.
func (m *Machine) ExpiresBy(at int64) bool {
	due := min(m.Index.NextDue(), m.NextWake())
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	return due <= at
}

// Expire lets die what is due. Callers do so before they show the queue's counts.
func (m *Machine) Expire(now int64) (more bool) { return m.expire(now, sliceLimit) }

// expire lets what is due in memory die, wherever it stands (in strict
// mode, at the heads only, DL-8.4), and handles at most limit of it: by levels,
// moments and numbers.
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
		if !m.pages.Exact { // what dies by one command must not depend on whether a checkpoint is being written
			limit -= m.pages.Saves() - before
		}
	}
	return due.End()
}

// ripe handles an entry that is due, and says whether anything came of it.
func (m *Machine) ripe(now int64, id ID, p index.Place) bool {
	switch p.State() {
	case index.Delayed:
		m.unhide(id, p)
		if m.comeBack(now, id, p) && len(m.cs.list) > 0 {
			m.busy = true // whoever has asked may pump or not: a look, or a publish that is refused
		}
		return true
	case index.Ready, index.Returned:
		if m.config.Strict {
			return false // it waits until it is at the head: expireHeads
		}
		m.lapse(now, id, p)
		return true
	}
	return false // out, dying or held: comeBack looks at its moment again
}

// headsDue is the first moment of the entries that expireHeads looks at, one of
// which may have come to the head after its moment.
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

// expireHeads lets expired heads die, as RabbitMQ does: of the highest level
// that has messages on classic queues (DL-8.9), of each level on quorum queues.
// At most sliceLimit die at once: nobody gets what has expired, and NextDue tells of the rest.
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
	if m.pages.AllHeads {
		limit = math.MaxInt
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
