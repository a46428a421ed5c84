package queue

import (
	"cmp"
	"slices"
)

// Consumers is the number of consumers attached.
func (m *Machine) Consumers() int { return len(m.cs.list) }

// Attached is a consumer of a queue. Code that does not hold the queue's lock may read only those fields of the
// Consumer that never change.
type Attached struct {
	*Consumer
	Active bool // it gets messages now
	order  uint64
}

// Attached returns the consumers, in no order: see SortAttached.
func (m *Machine) Attached() []Attached {
	list := make([]Attached, 0, len(m.cs.list))
	for _, c := range m.cs.list {
		list = append(list, Attached{c, !m.cs.single || m.cs.active == c, c.order})
	}
	return list
}

// Available is how many messages there are for c. On a quorum queue with a single active consumer there are none for the others.
func (m *Machine) Available(c *Consumer) int {
	if m.config.Type == Quorum && m.cs.single && m.cs.active != c {
		return 0
	}
	return m.Totals().Ready
}

// SortAttached sorts consumers by priority and age. It needs no lock.
func SortAttached(list []Attached) {
	slices.SortFunc(list, func(a, b Attached) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.order, b.order))
	})
}

// Distinguished returns the tags of the exclusive consumer and of the single active one (BR-9.5), "" where there is
// none.
func (m *Machine) Distinguished() (exclusive, active string) {
	if len(m.cs.list) == 1 && m.cs.list[0].Exclusive {
		exclusive = m.cs.list[0].Tag
	}
	if m.cs.single && m.cs.active != nil {
		active = m.cs.active.Tag
	}
	return exclusive, active
}

// Attach adds a consumer (BR-9.1) and says whether it may. On a classic queue an exclusive consumer must be the only
// one, and it is refused on a queue with a single active consumer (BR-9.3). Nothing is delivered before the next
// Pump.
func (m *Machine) Attach(now int64, c *Consumer) bool {
	if m.config.Type == Classic && (c.Exclusive && (m.config.SingleActive || len(m.cs.list) > 0) || len(m.cs.list) > 0 && m.cs.list[0].Exclusive) {
		return false
	}
	m.lastUse = now
	m.cs.attach(c)
	return true
}

// Detach removes a consumer; its unsettled deliveries stay out (BR-9.12). It says whether the consumer was attached.
func (m *Machine) Detach(now int64, c *Consumer) bool {
	if !m.cs.detach(c) {
		return false
	}
	m.lastUse = now
	return true
}

// Pause stops deliveries to c until Resume.
func (m *Machine) Pause(c *Consumer) { c.paused = true }

// Resume allows deliveries to c again. The caller pumps.
func (m *Machine) Resume(c *Consumer) {
	c.paused = false
	m.cs.awake(c)
}

// Open tells the queue that gate has room again: the queue asks it for the consumers that it refused. The caller
// pumps.
func (m *Machine) Open(gate Gate) { m.cs.open(gate) }

// Share puts c, which has no Gate yet, under one. The gate itself counts the deliveries that c holds already.
func (m *Machine) Share(c *Consumer, gate Gate) { m.cs.share(c, gate) }
