package queue

import (
	"math"

	"bartleby.mq/internal/deadletter"
)

// sliceLimit is how many entries one command handles of its own accord before
// it leaves the rest to the next Tick, so that no caller holds its lock for long.
const sliceLimit = 512

// Tick does what is due at now: messages expire, delayed ones become ready,
// deliveries time out. It handles at most limit entries and says whether there
// is more to do at once.
func (m *Machine) Tick(now int64, limit int) (more bool) {
	m.timeOut(now)
	if m.expire(now, limit) || m.Trim(now, limit) {
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
	due := min(m.nextDue, m.watch)
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	if m.settings.Expires >= 0 && len(m.cs.list) == 0 {
		due = min(due, m.expiry())
	}
	return due
}

// strictTick is how often RabbitMQ's quorum queues look whether they are used, in milliseconds.
const strictTick = 5000

// expiry is when the queue goes if nobody uses it (DL-8.12). REQUIRES: x-expires is in force.
func (m *Machine) expiry() int64 {
	at := m.lastUse + m.settings.Expires
	if m.config.Strict && m.config.Type == Quorum {
		at = m.born + (at-m.born+strictTick-1)/strictTick*strictTick
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

// expire finds the entries that are due, wherever they stand (in strict mode,
// at the heads only, DL-8.4), and handles at most limit of them.
func (m *Machine) expire(now int64, limit int) (more bool) {
	if m.config.Strict {
		defer m.expireHeads(now)
	}
	if now < m.nextDue {
		return false
	}
	next := int64(never)
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		if l.due <= now {
			more = m.expireLane(now, level, l, &limit) || more
		}
		next = min(next, l.due)
	}
	m.nextDue = next
	return more
}

func (m *Machine) expireLane(now int64, level int, l *lane, limit *int) (more bool) {
	var ripe [pageSize]uint8
	for k := 0; k < len(l.pages); {
		p := l.pages[k]
		if l.mins[k] > now {
			k++
			continue
		}
		n, least := 0, int64(never)
		for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
			at := p.dueAt(i)
			switch {
			case at == 0:
			case at > now:
				least = min(least, at)
			default:
				ripe[n] = uint8(i)
				n++
			}
		}
		l.mins[k] = least
		for j, slot := range ripe[:n] {
			if *limit == 0 {
				// What is left makes this page due at once.
				for _, s := range ripe[j:n] {
					l.mins[k] = min(l.mins[k], p.dueAt(uint(s)))
				}
				more = true
				break
			}
			if m.ripe(now, makeID(level, p.number*pageSize+uint64(slot)), p, uint(slot)) {
				*limit--
			}
		}
		if more {
			break
		}
		if k < len(l.pages) && l.pages[k] == p { // or it went with its last entry
			k++
		}
	}
	l.due = never
	for _, due := range l.mins {
		l.due = min(l.due, due)
	}
	return more
}

// ripe handles an entry whose column says that it is due, and says whether
// anything came of it.
func (m *Machine) ripe(now int64, id ID, p *page, i uint) bool {
	switch p.state(i) {
	case stateDelayed:
		if until := m.due(p, i); until > now {
			m.approach(now, id, p)
			return true
		}
		m.unhide(id, p, i)
		m.comeBack(now, id, p, i)
		return true
	case stateReady, stateReturned:
		if m.due(p, i) > now {
			m.approach(now, id, p)
			return true
		}
		if m.config.Strict {
			return false // it waits until it is at the head: expireHeads
		}
		m.die(now, id, p, i, deadletter.Expired, nil)
		return true
	}
	return false // out, dying or held: comeBack looks at its moment again
}

// approach looks again at a page with moments that were too far away for its
// column: from now on it counts from now.
func (m *Machine) approach(now int64, id ID, p *page) {
	m.rebase(p, now-1)
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if at := p.dueAt(i); at > now {
			m.noteDue(id, at)
		}
	}
}

// headsDue is the first moment of the entries that expireHeads looks at, one of
// which may have come to the head after its moment.
func (m *Machine) headsDue() int64 {
	due := int64(never)
	note := func(p *page, i uint) {
		if at := m.due(p, i); at != 0 {
			due = min(due, at)
		}
	}
	if _, p, i, ok := m.first(); ok {
		note(p, i)
	}
	if m.config.Type == Quorum {
		for _, l := range m.lanes {
			if l != nil && l.ready > 0 {
				_, p, i := l.firstReady()
				note(p, i)
			}
		}
	}
	return due
}

// expireHeads lets expired heads die, as RabbitMQ does: of the highest level
// that has messages on classic queues (DL-8.9), of each level on quorum queues.
func (m *Machine) expireHeads(now int64) {
	for range sliceLimit {
		id, p, i, ok := m.first()
		if !ok {
			return
		}
		if due := m.due(p, i); due == 0 || due > now {
			break
		}
		m.die(now, id, p, i, deadletter.Expired, nil)
	}
	if m.config.Type != Quorum {
		return
	}
	for level, l := range m.lanes {
		for l != nil && l.ready > 0 {
			seq, p, i := l.firstReady()
			if due := m.due(p, i); due == 0 || due > now {
				break
			}
			m.die(now, makeID(level, seq), p, i, deadletter.Expired, nil)
		}
	}
}

// timeout is how long c may leave a delivery unsettled, 0 = for ever (DL-12.7).
func (m *Machine) timeout(c *Consumer) int64 {
	if m.config.Type != Quorum {
		return 0
	}
	if c.Timeout > 0 {
		return c.Timeout
	}
	return max(0, m.settings.ConsumerTimeout)
}

// timeOut takes back what consumers left unsettled for too long.
func (m *Machine) timeOut(now int64) {
	if now < m.watch {
		return
	}
	m.watch = math.MaxInt64
	for _, c := range m.cs.slots {
		if c == nil {
			continue
		}
		t := m.timeout(c)
		if t <= 0 {
			continue
		}
		n := 0
		for len(c.outs) > 0 {
			o := c.outs[0]
			p, i := m.watched(c, o)
			if p == nil {
				c.outs = c.outs[1:]
				continue
			}
			if o.at+t > now {
				m.watch = min(m.watch, o.at+t)
				break
			}
			c.outs = c.outs[1:]
			c.out--
			n++
			m.giveBack(now, o.id, p, i, c, ReturnTimeout)
		}
		if n > 0 {
			c.stale += n
			m.sink.TimedOut(c, n)
			m.cs.forget(c)
		}
	}
}

// watched returns the entry of a delivery on the watch; the page is nil if it
// was settled. The same entry may have come back and be out at c once more, as
// another delivery.
func (m *Machine) watched(c *Consumer, o outstanding) (*page, uint) {
	p, i := m.find(o.id)
	if p == nil || p.state(i) != stateOut || p.owner[i] != c.slot || m.acquired(p, i) != o.acquired {
		return nil, 0
	}
	return p, i
}

// acquired is how often the entry came back.
func (m *Machine) acquired(p *page, i uint) uint32 {
	if s := m.peekSide(p, i); s != nil {
		return s.counts.Acquired
	}
	return 0
}

// compactOuts drops from the watch what was settled.
func (m *Machine) compactOuts(c *Consumer) {
	kept := c.outs[:0]
	for _, o := range c.outs {
		if p, _ := m.watched(c, o); p != nil {
			kept = append(kept, o)
		}
	}
	c.outs = kept
}
