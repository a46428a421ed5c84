package queue

import (
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// The consumer timeout (DL-12.7): deliveries that stay unsettled for too long come back.

// timeout is how long c may leave a delivery unsettled, 0 = for ever. Where every return counts, the queue's timeout
// applies and consumers cannot set their own (DL-22.2).
func (m *Machine) timeout(c *Consumer) int64 {
	if !m.limits() {
		return 0
	}
	if c.Timeout > 0 && !m.settings.Rules.CountReturns() {
		return c.Timeout
	}
	return max(0, m.settings.ConsumerTimeout)
}

// timeOut takes back deliveries that stayed unsettled for too long, at most limit of them, and says whether there are
// more. Where every return counts, nothing else happens (DL-22.2). Otherwise the consumer gets nothing until it has
// settled them all, and the sink hears of it once, when all that has timed out is back.
func (m *Machine) timeOut(now int64, limit int) (more bool) {
	if now < m.watch {
		return false
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
			m.giveBack(now, o.id, p, c, ReturnTimeout, 0)
			if !m.settings.Rules.CountReturns() {
				m.sink.TookBack(c, o.id)
			}
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
				m.cs.relieve() // all of them are back: the next active consumer gets them in order
				m.cs.suspend()
			}
			if c.Idle() && m.settings.Rules.CountReturns() {
				m.sink.TimedOut(c, 0)
			}
		}
	}
	return more
}

// TimeoutCount is how many deliveries the consumer timeout has taken back since the machine was loaded.
func (m *Machine) TimeoutCount() uint64 { return m.timeouts }

// watched returns the entry of a delivery on the watch, unless the delivery was settled. The same entry may have come
// back and be out at c again, as another delivery.
func (m *Machine) watched(c *Consumer, o outstanding) index.Place {
	p := m.FindOut(o.id)
	if !p.In(index.Out) || p.Owner() != c.slot || m.returned(p) != o.returned {
		return index.Place{}
	}
	return p
}

// compactOuts drops settled deliveries from the watch.
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
