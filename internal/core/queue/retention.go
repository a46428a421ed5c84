package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// Retention (DL-22.14) limits how long a queue keeps a message: at its end the message is removed and does not die.
//
// An entry has one moment: the end of its TTL or of its retention, whichever comes first. Journal, pages and
// snapshots must all keep which of the two it is. So the moment bears a mark, in queues whose rules have a retention.
// This lengthens a TTL by one millisecond at most.
const (
	byTTL       index.Mark = iota // the moment is even
	byRetention                   // it is odd
)

// limited returns the moment of an entry: due is the end of its TTL (0 = none), since is when its time in this queue
// began.
func (m *Machine) limited(since, due int64) int64 {
	if !m.Terms.Marked {
		return due
	}
	due = byTTL.From(due)
	keep := m.settings.Rules.Retention
	if keep == 0 {
		return due
	}
	if end := min(byRetention.From(ending(since, keep)), moment.Last-1); due == 0 || end < due {
		return end
	}
	return due
}

// lapse ends the life of an entry whose moment has come: it dies of its TTL, or is removed by the retention.
func (m *Machine) lapse(now int64, id ID, p index.Place) {
	if m.Terms.Marked && index.MarkOf(m.Moment(p)) == byRetention {
		m.sink.Died(deadletter.Expired, false)
		m.Remove(id, p)
		return
	}
	m.die(now, id, p, deadletter.Expired, nil)
}
