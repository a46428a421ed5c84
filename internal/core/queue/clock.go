package queue

import (
	"bartleby.mq/internal/core/moment"
)

// never is the moment that does not come.
const never = moment.Never

// sliceLimit is how many entries one command handles besides its own before it leaves the rest to the next Tick. It
// keeps every hold of the partition's lock short.
const sliceLimit = 512

// Tick does what is due at now: deliveries time out, messages expire, delayed messages become ready. It handles at
// most limit entries and says whether there is more to do at once.
func (m *Machine) Tick(now int64, limit int) (more bool) {
	if m.breaker != nil {
		m.breaker.begins(now)
	}
	if m.timeOut(now, limit) {
		return true // what has come back may itself be due, so all of it comes back before anything expires
	}
	if !m.pages.Log.ReadsAllDue() { // with it, expire reads everything that is due
		more = m.ReadSome(now)
	}
	if m.expire(now, limit) || more || m.Trim(now, limit) {
		return true
	}
	return m.Pump(now, limit)
}

// NextDue is the moment at which Tick should be called next, in milliseconds since 1970; math.MaxInt64 if there is
// nothing to wait for. It may be too early, but is never too late.
func (m *Machine) NextDue() int64 {
	if m.busy || m.overflowing() {
		return 0
	}
	due := min(m.Index.NextDue(), m.NextRead(), m.watch)
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	if m.breaker != nil && m.breaker.state == BreakerOpen {
		due = min(due, m.breaker.until)
	}
	if m.settings.Expires >= 0 && len(m.cs.list) == 0 {
		due = min(due, m.expiry())
	}
	return due
}
