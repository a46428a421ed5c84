package queue

import (
	"math"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
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

// strictTick is how often RabbitMQ's quorum queues look whether they are used, in milliseconds.
const strictTick = 5000

// expiry is when the queue goes if nobody uses it (DL-8.12). REQUIRES: x-expires is in force.
func (m *Machine) expiry() int64 {
	at := moment.After(m.lastUse, m.settings.Expires)
	if m.config.Strict && m.config.Type == Quorum {
		looks := (at - m.born - 1) / strictTick // before the one that finds it unused
		at = moment.After(m.born, moment.Times(strictTick, looks+1))
	}
	return at
}

// Unused says whether the queue is to be deleted because nobody used it for as
// long as x-expires allows (DL-8.12).
func (m *Machine) Unused(now int64) bool {
	return m.settings.Expires >= 0 && len(m.cs.list) == 0 && now >= m.expiry()
}

// Touch notes a use of the queue (DL-8.12).
func (m *Machine) Touch(now int64) { m.lastUse = now }

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

// timeout is how long c may leave a delivery unsettled, 0 = for ever (DL-12.7). Where all queues have one, consumers
// have no say (DL-22.2).
func (m *Machine) timeout(c *Consumer) int64 {
	if !m.limits() {
		return 0
	}
	if c.Timeout > 0 && !m.settings.Rules.CountReturns() {
		return c.Timeout
	}
	return max(0, m.settings.ConsumerTimeout)
}

// timeOut takes back what consumers left unsettled for too long, at most limit deliveries, and says whether there are more.
// Where a return counts as a failed attempt that is all (DL-22.2); else the consumer gets nothing until it has settled
// what was taken back, and is told once that is all there is for now.
func (m *Machine) timeOut(now int64, limit int) (more bool) {
	if now < m.watch {
		return false
	}
	if m.pages.AllTimeouts {
		limit = math.MaxInt
	}
	m.watch = never
	for _, c := range m.cs.slots {
		if c == nil {
			continue
		}
		n, stopped := 0, false
		for t := m.timeout(c); t > 0 && len(c.outs) > 0; {
			m.cs.touch(c)
			o := c.outs[0]
			p := m.watched(c, o)
			if !p.There() {
				c.outs = c.outs[1:]
				continue
			}
			end := moment.After(o.at, t)
			if stopped = end <= now && n == limit; stopped || end > now {
				m.watch = min(m.watch, end)
				break
			}
			c.outs = c.outs[1:]
			c.out--
			n++
			m.giveBack(now, o.id, p, c, ReturnTimeout)
		}
		limit -= n
		more = more || stopped
		m.timeouts += uint64(n)
		if m.settings.Rules.CountReturns() {
			c.late = 0
		} else {
			c.stale += n
			c.late += n
		}
		if c.late > 0 && !stopped {
			m.sink.TimedOut(c, c.late)
			c.late = 0
		}
		if n > 0 {
			m.cs.awake(c)
			m.cs.forget(c)
			if !stopped {
				m.cs.relieve() // all has come back: the next one gets it in its order
			}
			if c.Idle() && m.settings.Rules.CountReturns() {
				m.sink.TimedOut(c, 0)
			}
		}
	}
	return more
}

// TimeoutCount is how many deliveries have been taken back by the consumer timeout while the machine is in memory.
func (m *Machine) TimeoutCount() uint64 { return m.timeouts }

// watched returns the entry of a delivery on the watch, if it was not settled. The same entry may have come back and
// be out at c once more, as another delivery.
func (m *Machine) watched(c *Consumer, o outstanding) index.Place {
	p := m.FindOut(o.id)
	if !p.In(index.Out) || p.Owner() != c.slot || m.returned(p) != o.returned {
		return index.Place{}
	}
	return p
}

// compactOuts drops from the watch what was settled.
func (m *Machine) compactOuts(c *Consumer) {
	kept := c.outs[:0]
	if c.shared {
		kept, c.shared = make([]outstanding, 0, c.out), false
	}
	for _, o := range c.outs {
		if p := m.watched(c, o); p.There() {
			kept = append(kept, o)
		}
	}
	c.outs = kept
}
