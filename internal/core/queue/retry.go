package queue

import (
	"math"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// Delayed retry (DL-12): how long an entry that came back waits, and how it comes back.

// on says whether any returned delivery waits.
func (r *Retry) on() bool { return r.Min > 0 && r.Type != RetryDisabled }

// retries says whether a returned delivery waits before the next one (DL-12.3). A nack that counts as a failure is delayed
// by RetryFailed, and by RetryReturned as in RabbitMQ.
func (m *Machine) retries(kind ReturnKind, failed bool) bool {
	r := &m.settings.Retry
	switch {
	case !r.on():
		return false
	case r.Type == RetryFailed:
		return failed
	case r.Type == RetryReturned:
		return !failed || kind == ReturnNack
	}
	return true
}

// delay hides a returned entry until the given moment and tells the sink (DL-12.4).
func (m *Machine) delay(id ID, p index.Place, until int64, counts Counts) {
	m.hide(id, p, until)
	if p.Logged() {
		m.sink.Returned(id, counts, until)
	}
}

// hide makes the entry wait until the given moment. Meanwhile the end of its TTL is in its side row.
func (m *Machine) hide(id ID, p index.Place, until int64) {
	m.SideOf(p).TTL = m.Moment(p)
	m.SetState(id, p, index.Delayed)
	m.SetMoment(p, until)
}

// unhide ends an entry's wait: its moment is the end of its TTL again. The caller gives it its next state.
func (m *Machine) unhide(id ID, p index.Place) {
	s := m.SideOf(p)
	ttl := s.TTL
	s.TTL = 0
	m.SetMoment(p, ttl)
}

// comeBack makes the entry deliverable again. On a classic queue it returns to its place; on a quorum queue it joins
// the returns list (BR-9.13), unless it was never delivered. If its TTL has ended, it dies instead and comeBack
// returns false.
func (m *Machine) comeBack(now int64, id ID, p index.Place) bool {
	if due := m.Moment(p); due != 0 {
		if due <= now {
			m.lapse(now, id, p)
			return false
		}
		m.Note(p)
	}
	if m.config.Type == Quorum && p.Redelivered() {
		m.SetState(id, p, index.Returned)
	} else {
		m.SetState(id, p, index.Ready)
	}
	return true
}

// RetriesFrom calls f with the moment at which each message that waits for a retry comes back, beginning at the cursor, in no
// certain order. A message whose first delivery is delayed waits for no retry. It looks at about limit entries; a page on
// disk in which all are ready counts as one. done says that it has reached the end.
func (m *Machine) RetriesFrom(from index.SaveCursor, limit int, f func(until int64)) (next index.SaveCursor, done bool) {
	return m.RangeFrom(from, limit, func(_ ID, p index.Place) {
		if p.State() == index.Delayed && p.Redelivered() {
			f(m.Moment(p))
		}
	})
}

// wait is how long a message with these counts waits, in milliseconds (DL-12.2).
func (r *Retry) wait(id ID, n Counts) int64 {
	times := max(1, int64(n.Deliveries))
	most := max(r.Max, r.Min)
	if r.Max == 0 && r.Multiplier > 1 {
		most = math.MaxInt32 // no limit was configured: this is 24 days
	}
	var ms int64
	if r.Multiplier > 1 {
		ms = min(moment.Scale(r.Min, math.Pow(r.Multiplier, float64(times-1))), most)
	} else {
		ms = min(moment.Times(r.Min, times), most)
	}
	if r.Jitter > 0 {
		// By chance, but the same on every replica: a hash of the entry and its counters.
		h := (uint64(id) + uint64(n.Acquired)<<40 + 1) * 0x9E3779B97F4A7C15
		h ^= h >> 29
		unit := float64(h>>11)/(1<<53)*2 - 1
		ms = max(1, moment.Scale(ms, 1+r.Jitter*unit))
	}
	return ms
}
