package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// The ends of a delivery: Ack, Reject, Return. A returned entry may die of the delivery limit (DL-11.4) or wait
// (retry.go).

// taken finds an entry that is out at c (nil for basic.get) and gives c its credit back. If the timeout has taken the
// entry back already, the place is not There, and c owes one settlement less.
func (m *Machine) taken(id ID, c *Consumer) index.Place {
	p := m.Find(id)
	var slot uint32
	if c != nil {
		slot = c.slot
	}
	if !p.There() || p.State() != index.Out || p.Owner() != slot || c != nil && slot == 0 {
		if c != nil && c.stale > 0 {
			m.cs.touch(c)
			c.stale--
			if m.cs.awake(c); c.stale == 0 {
				m.cs.resume(c)
			}
		}
		return index.Place{}
	}
	if c != nil {
		m.cs.touch(c)
		c.out--
		m.cs.credited(c)
		m.cs.forget(c)
	}
	return p
}

// Annotatable returns the history of an entry that is out at c (nil for basic.get) if annotations may be merged into it: on a
// quorum queue (DL-14.6).
func (m *Machine) Annotatable(id ID, c *Consumer) (history message.Ref, ok bool) {
	p := m.Find(id)
	var slot uint32
	if c != nil {
		slot = c.slot
	}
	if m.config.Type != Quorum || !p.There() || p.State() != index.Out || p.Owner() != slot || c != nil && slot == 0 {
		return 0, false
	}
	var content Content
	p.Read(&content)
	return content.History, true
}

// Annotate gives an annotatable entry another history. The reference to the one before becomes the caller's.
func (m *Machine) Annotate(id ID, history message.Ref) (before message.Ref) {
	return m.SetHistory(id, m.Find(id), history)
}

// Ack settles a delivery: the message leaves the queue.
func (m *Machine) Ack(now int64, id ID, c *Consumer) bool {
	p := m.taken(id, c)
	if !p.There() {
		return false
	}
	m.Remove(id, p)
	m.ended(now, id, endAcked)
	return true
}

// Reject settles a delivery: the message dies (DL-1.2). failed says that it counts as a failed delivery: basic.reject
// does, basic.nack does not (DL-11.3).
func (m *Machine) Reject(now int64, id ID, c *Consumer, failed bool) bool {
	p := m.taken(id, c)
	if !p.There() {
		return false
	}
	if failed {
		m.CountsOf(p).Deliveries++
	}
	m.dieOf(now, id, p, m.settings.Rules.Rejection(!failed), c, failed)
	m.ended(now, id, endDied)
	return true
}

// ReturnKind says how a delivery came back.
type ReturnKind uint8

// The kinds; failed says which of them count as failed (DL-11.3).
const (
	ReturnNack     ReturnKind = iota // basic.nack with requeue
	ReturnReject                     // basic.reject with requeue
	ReturnRecover                    // basic.recover
	ReturnClosed                     // the channel or the connection ended
	ReturnTimeout                    // the consumer timeout
	ReturnReleased                   // AMQP 1.0 released, or modified without delivery-failed
	ReturnFailed                     // AMQP 1.0 modified with delivery-failed
	returnRestart                    // the node ended; the holder is unknown
)

// countsAsFailed says whether a return of this kind counts as a failed delivery (DL-11.3). Where every return counts, those
// of basic.get still do not (DL-22.1). A nack counts only where the count has a use: a delivery limit, or a delay that
// grows. Other queues would keep a side row for each message that was nacked.
func (m *Machine) countsAsFailed(c *Consumer, k ReturnKind) bool {
	if m.settings.Rules.CountReturns() {
		return k == returnRestart || c != nil && !c.got()
	}
	return k == ReturnReject || k == ReturnClosed || k == returnRestart || k == ReturnFailed || k == ReturnNack && m.settings.CountNack && (m.config.Type == Quorum || m.settings.Retry.on())
}

// overLimit says whether an entry that has come back so often dies of the delivery limit. It may be over the limit without a
// failure here: a dead letter brings its failures along (DL-11.6), and a policy may lower the limit. RabbitMQ lets it die at its
// next return, whatever that is. Where nacks count it dies of a failure only, and only after it has come back more often than
// the limit from here: else whoever looks at a message in a parking queue, and gives it back, would send it on. A nack sends
// it to a dead-letter exchange, but never drops it: RabbitMQ 4.3 would not.
func (m *Machine) overLimit(n Counts, failed bool, kind ReturnKind) bool {
	limit := m.settings.DeliveryLimit
	if !m.limits() || limit < 0 || int64(n.Deliveries) <= limit {
		return false
	}
	lenient := m.config.Type == Quorum && m.settings.CountNack && !m.settings.Rules.CountReturns()
	return !lenient || failed && int64(n.Acquired) > limit && (kind != ReturnNack || m.settings.DeadLetter)
}

// limits says whether a delivery limit and a consumer timeout apply: on quorum queues, and on all queues of virtual
// hosts where every return counts (DL-22.1).
func (m *Machine) limits() bool { return m.config.Type == Quorum || m.settings.Rules.CountReturns() }

// returned is how often the entry has come back, which tells its deliveries apart. A classic queue counts only
// failures; it needs the number only where every return is one.
func (m *Machine) returned(p index.Place) uint32 {
	if m.config.Type == Quorum {
		return p.Counts().Acquired
	}
	return p.Counts().Deliveries
}

// Return gives a delivery back to the queue. The entry becomes ready, waits (DL-12.2), or dies: because it was
// delivered too often (DL-11.4), or because its TTL has ended (DL-8.5).
func (m *Machine) Return(now int64, id ID, c *Consumer, kind ReturnKind) bool {
	return m.ReturnFor(now, id, c, kind, 0)
}

// ReturnFor is Return of an entry that waits for so many milliseconds before its next delivery, whatever the queue's delayed
// retry says; 0: as it says.
func (m *Machine) ReturnFor(now int64, id ID, c *Consumer, kind ReturnKind, wait int64) bool {
	p := m.taken(id, c)
	if !p.There() {
		return false
	}
	m.giveBack(now, id, p, c, kind, wait)
	return true
}

func (m *Machine) giveBack(now int64, id ID, p index.Place, c *Consumer, kind ReturnKind, wait int64) {
	failed := m.countsAsFailed(c, kind)
	retries := m.retries(kind, failed)
	counted := m.config.Type == Quorum || retries
	var counts Counts
	if m.settings.Rules.CountReturns() || wait > 0 { // what waits is logged with its counts
		counts = p.Counts()
	}
	if counted || failed {
		n := m.CountsOf(p)
		if counted {
			n.Acquired++
		}
		if failed {
			n.Deliveries++ // classic queues only pass the count on (DL-6.14)
		}
		counts = *n
	}
	if m.overLimit(counts, failed, kind) {
		m.dieOf(now, id, p, deadletter.DeliveryLimit, c, failed)
		if kind != returnRestart { // no consumer has done that
			m.ended(now, id, endDied)
		}
		return
	}
	m.ended(now, id, endReturned)
	if retries && wait == 0 {
		wait = m.settings.Retry.wait(id, counts)
	}
	if wait > 0 {
		m.delay(id, p, ending(now, wait), counts)
		return
	}
	if m.comeBack(now, id, p) && p.Logged() {
		m.sink.Returned(id, counts, 0)
	}
}
