package queue

import (
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// Delivery: which message comes next, and who gets it. Pump serves consumers, Get serves basic.get.

// Delivery is a message on its way to a consumer, or to basic.get.
type Delivery struct {
	ID ID // 0 if the message never was an entry
	Content
	NoAck bool
	By    *Consumer // set by GetFor: who got it and has not acknowledged it
}

// handOut delivers an entry in index.Out to c, which acknowledges.
func (m *Machine) handOut(now int64, id ID, p index.Place, c *Consumer) {
	m.GiveTo(p, c.slot)
	m.cs.touch(c)
	c.out++
	c.credit--
	if t := m.timeout(c); t > 0 {
		if len(c.outs) > 2*c.out+64 {
			m.compactOuts(c)
		}
		c.outs = append(c.outs, outstanding{id, m.returned(p), now})
		m.watch = min(m.watch, moment.After(now, t))
	}
	m.handing.fill(id, p)
	m.SetRedelivered(p)
	if !m.sink.Deliver(c, &m.handing) {
		c.paused = true
	}
}

// fill sets d to the delivery of the entry.
func (d *Delivery) fill(id ID, p index.Place) {
	d.ID, d.NoAck = id, false
	p.Read(&d.Content)
}

// Pump delivers ready messages to consumers that can take them, at most limit. It says whether there may be more to
// do.
func (m *Machine) Pump(now int64, limit int) (more bool) {
	m.busy = false
	for n := 0; m.Count.Ready > 0 && len(m.cs.list) > 0; n++ {
		if n == limit {
			m.busy = true
			return true
		}
		id, p, ok := m.First()
		if !ok {
			return false
		}
		if due := m.Moment(p); due != 0 && due <= now {
			m.lapse(now, id, p) // DL-8.8
			continue
		}
		if m.stopped(now) {
			return false
		}
		c := m.cs.next()
		if c == nil {
			return false
		}
		m.give(now, id, p, c)
	}
	return false
}

// give delivers a deliverable entry to c.
func (m *Machine) give(now int64, id ID, p index.Place, c *Consumer) {
	if c.NoAck {
		m.handing.fill(id, p)
		m.handing.NoAck = true
		m.Forget(id, p)
		m.cs.touch(c)
		c.credit--
		if !m.sink.Deliver(c, &m.handing) {
			c.paused = true
		}
		m.passedOn(now, id)
		return
	}
	m.SetState(id, p, index.Out)
	m.handOut(now, id, p, c)
	m.tries(id)
}

// Get takes the next message for basic.get (BR-9.10). With noAck the references in the delivery are the caller's;
// otherwise they are the machine's.
func (m *Machine) Get(now int64, noAck bool) (d Delivery, ok bool) {
	for again := true; again; {
		d, ok, again = m.GetFor(now, nil, noAck)
	}
	return d, ok
}

// GetFor is Get on behalf of c. c is not attached and only holds the delivery; it is nil if nobody needs to know the
// holder. One call lets about a slice of due entries die. If more are due, it returns again = true and no message:
// the caller asks once more, and other work may run in between.
func (m *Machine) GetFor(now int64, c *Consumer, noAck bool) (d Delivery, ok, again bool) {
	m.lastUse = now
	limit := sliceLimit
	more := m.expire(now, limit)
	id, p, ok := m.First()
	for ; ok && m.Moment(p) != 0 && m.Moment(p) <= now; id, p, ok = m.First() {
		if limit--; limit < 0 {
			return Delivery{}, false, true
		}
		m.lapse(now, id, p)
	}
	if !ok || m.stopped(now) {
		return Delivery{}, false, more // a delayed entry that is due may become the next message
	}
	d.fill(id, p)
	if d.NoAck = noAck; noAck {
		m.Forget(id, p)
		m.passedOn(now, id)
		return d, true, false
	}
	m.SetState(id, p, index.Out)
	m.tries(id)
	m.GiveTo(p, 0)
	if c != nil {
		m.cs.seat(c)
		c.gone, c.out, d.By = true, 1, c
		m.GiveTo(p, c.slot)
	}
	m.SetRedelivered(p)
	return d, true, false
}
