package queue

import (
	"bartleby.mq/internal/core/moment"
)

// never is the moment that does not come.
const never = moment.Never

// sliceLimit is how many entries one command handles of its own accord before
// it leaves the rest to the next Tick, so that no caller holds its lock for long.
const sliceLimit = 512

// Tick does what is due at now: messages expire, delayed ones become ready,
// deliveries time out. It handles at most limit entries and says whether there
// is more to do at once.
func (m *Machine) Tick(now int64, limit int) (more bool) {
	if m.timeOut(now, limit) {
		return true // what has come back may be what is due, so that this comes first, however much it is
	}
	if !m.pages.Exact { // else expire reads all that is due, and what follows must not depend on it
		more = m.ReadSome(now)
	}
	if m.expire(now, limit) || more || m.Trim(now, limit) {
		return true
	}
	return m.Pump(now, limit)
}

// NextDue is the moment at which Tick should be called next, in milliseconds
// since 1970; math.MaxInt64 if there is nothing to wait for. It may be early,
// never late.
func (m *Machine) NextDue() int64 {
	if m.busy || m.overflowing() {
		return 0
	}
	due := min(m.Index.NextDue(), m.NextRead(), m.watch)
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	if m.settings.Expires >= 0 && len(m.cs.list) == 0 {
		due = min(due, m.expiry())
	}
	return due
}
