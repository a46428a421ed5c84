package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// A queue may keep messages for so long only (DL-22.14): then they are gone, and do not die. An entry has one moment,
// the end of its TTL or of its retention, whichever comes first; which of the two it is must be known after every way
// that a moment takes through journal, pages and snapshots. So its last bit tells, in queues whose rules have
// retention at all: that of a TTL's end is even, that of a retention's odd. It costs a TTL one millisecond at most.

// limited is the moment of an entry whose TTL, which may be 0 for none, ends at due, and whose time here began at since.
func (m *Machine) limited(since, due int64) int64 {
	if !m.Terms.Parity {
		return due
	}
	due = (due + 1) &^ 1
	keep := m.settings.Rules.Retention
	if keep == 0 {
		return due
	}
	if end := min(ending(since, keep)|1, moment.Last-1); due == 0 || end < due {
		return end
	}
	return due
}

// lapse ends the life of an entry whose moment has come: by its TTL, or because the queue keeps it no longer.
func (m *Machine) lapse(now int64, id ID, p index.Place) {
	if m.Terms.Parity && m.Moment(p)&1 != 0 {
		m.sink.Died(deadletter.Expired, false)
		m.Remove(id, p)
		return
	}
	m.die(now, id, p, deadletter.Expired, nil)
}
