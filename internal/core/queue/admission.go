package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// Admission decides what becomes of a message that arrives. The order is: expire what is due, refuse if the queue is
// full (limits.go), hand the message over at once if a consumer without acknowledgements waits and nothing is ahead
// of it, else store it with the moment at which its TTL or delay ends. Deliveries and deaths that follow from it are
// Flow's, after the caller has logged the entry.

// Entry is a message that enters a queue.
type Entry struct {
	Content
	Priority int   // the message's property; -1 if it has none
	TTL      int64 // the message's own TTL in milliseconds; -1 = none
	Delay    int64 // milliseconds until it may be delivered; its TTL begins then (DL-22.12)
	Rests    bool  // it has no TTL here, neither its own nor the queue's (DL-22.8)

	// Due is set only by recovery: the moment that was decided when the message first entered.
	Due int64
}

// Result is what became of an arriving message.
type Result uint8

// The results. After Refused, the references are still the caller's. After the others, they are the machine's or the
// sink's.
const (
	Stored      Result = iota
	Delivered          // handed to a consumer without becoming an entry
	Refused            // the queue is full (DL-10.7)
	RefusedDead        // the queue is full, and the message died of that (DL-10.9)
)

func (m *Machine) level(priority int) int {
	switch {
	case m.config.Type == Quorum:
		if priority < 0 {
			return quorumDefault
		}
		return min(priority, quorumLevels-1)
	case m.Terms.Levels == 1 || priority < 0:
		return 0
	}
	return min(priority, m.Terms.Levels-1)
}

// ending returns the end of a span of ttl milliseconds that begins now. The current millisecond has begun already, so
// the end is one later: it must never be early.
func ending(now, ttl int64) int64 {
	return moment.After(now+1, ttl)
}

// Enqueue lets a message in. The message is refused, handed to a consumer that does not acknowledge, or stored. The
// deliveries and deaths that follow from a stored message wait for Flow, so that the caller can log the entry first.
func (m *Machine) Enqueue(now int64, e *Entry) (ID, Result) {
	m.expire(now, sliceLimit)
	if m.full(e.Size) {
		if m.settings.Overflow == RejectPublishDLX && m.config.Type == Classic && m.settings.DeadLetter {
			id, p := m.enter(0, e, 0)
			m.die(now, id, p, deadletter.MaxLen, nil)
			m.SideOf(p).Told = true // the caller logs this death with the entry, which was never alive in the queue (DL-10.9)
			return id, RefusedDead
		}
		return 0, Refused
	}
	return m.admit(now, e)
}

// Force lets a dead letter in. A quorum queue must take it even beyond its limit (DL-6.12); a classic queue may
// refuse it like any message.
func (m *Machine) Force(now int64, e *Entry) (ID, Result) {
	if m.config.Type == Classic {
		return m.Enqueue(now, e)
	}
	return m.Impose(now, e)
}

// enter makes an entry of a message, with the given ID, or as the last of its level if id is 0.
func (m *Machine) enter(id ID, e *Entry, due int64) (ID, index.Place) {
	level := id.Lane()
	if id == 0 {
		level = m.level(e.Priority)
	}
	return m.Enter(level, id.Seq(), &e.Content, due)
}

func (m *Machine) admit(now int64, e *Entry) (ID, Result) {
	ttl := e.TTL
	if m.settings.TTL >= 0 && (ttl < 0 || m.settings.TTL < ttl) {
		ttl = m.settings.TTL
	}
	if e.Rests {
		ttl = -1
	}
	if m.Count.Ready == 0 && len(m.cs.list) > 0 && e.Delay <= 0 && !m.stopped(now) {
		if c := m.cs.nextNoAck(); c != nil {
			m.cs.touch(c)
			m.handing = Delivery{Content: e.Content, NoAck: true}
			m.handing.Logged, m.handing.Redelivered = false, e.Redelivered && m.config.Type == Quorum
			c.credit--
			if !m.sink.Deliver(c, &m.handing) {
				c.paused = true
			}
			m.passedOn(now, 0)
			return 0, Delivered
		}
	}
	begin, due := now, int64(0)
	if e.Delay > 0 {
		begin = ending(now, e.Delay)
	}
	switch {
	case ttl == 0 && m.config.Type == Classic && e.Delay <= 0:
		m.instant = true // DL-8.7: delivered now or never, not even after a crash
		due = now
	case ttl >= 0:
		due = ending(begin, max(ttl, 1)) // quorum queues treat 0 as 1
	}
	due = m.limited(begin, due)
	if e.Redelivered && m.config.Type == Classic && m.Count.Ready == 0 && m.cs.anyAble() && !m.stopped(now) {
		// RabbitMQ's classic queues pass such a message on before they look whether it was delivered in another
		// queue.
		fresh := *e
		fresh.Redelivered = false
		e = &fresh
	}
	id, p := m.enter(0, e, due)
	if e.Delay > 0 {
		m.hide(id, p, begin)
	}
	return id, Stored
}

// Flow does what follows when Enqueue, Force or a Return has made entries ready: deliveries, and deaths by the length
// limit. id is the entry last stored, 0 if none was.
func (m *Machine) Flow(now int64, id ID) {
	if m.instant {
		m.instant = false
		m.nowOrNever(now, id)
		return
	}
	if id == 0 && m.config.Type == Classic {
		m.Trim(now, sliceLimit) // classic: what came back may exceed the limit, even if a consumer could take it (DL-10.6)
	}
	if len(m.cs.list) > 0 && m.Count.Ready > 0 {
		m.Pump(now, sliceLimit)
	}
	m.Trim(now, sliceLimit)
	if m.config.Strict {
		m.expireHeads(now)
	}
}

// nowOrNever treats an entry with a TTL of 0: it is delivered if it is the next and a consumer can take it; otherwise
// it dies (DL-8.7).
func (m *Machine) nowOrNever(now int64, id ID) {
	p := m.Find(id)
	if !p.In(index.Ready) {
		return
	}
	if first, _, ok := m.First(); ok && first == id && !m.stopped(now) {
		c := m.cs.next()
		if c == nil && !m.cs.single {
			c = m.cs.turn() // it cannot wait for what is coming back meanwhile (Hush), and it came before that
		}
		if c != nil {
			m.give(now, id, p, c)
			return
		}
	}
	m.die(now, id, p, deadletter.Expired, nil)
}
