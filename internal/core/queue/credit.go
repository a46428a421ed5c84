package queue

// Credit allows a metered consumer n more deliveries; a negative n takes back. The caller pumps.
func (m *Machine) Credit(c *Consumer, n int) {
	m.cs.touch(c)
	c.credit += n
	m.cs.awake(c)
}

// Drain ends the credit of a metered consumer and returns how much there was (AMQP 1.0, 2.6.7). REQUIRES: no message is
// there for it, so the caller has pumped.
func (m *Machine) Drain(c *Consumer) (left int) {
	if left = max(c.credit, 0); left > 0 {
		m.cs.touch(c)
		c.credit = 0
	}
	return left
}

// Left is how many more deliveries a metered consumer may get.
func (c *Consumer) Left() int { return c.credit }

// Idle says whether c is neither attached nor holds a delivery, so that it can be forgotten.
func (c *Consumer) Idle() bool { return c.gone && c.out == 0 }

// RangeSeated calls f for each consumer that is attached or holds a delivery, in no order.
func (m *Machine) RangeSeated(f func(c *Consumer)) {
	for _, c := range m.cs.slots {
		if c != nil {
			f(c)
		}
	}
}

// Holding is a delivery that a consumer has not settled.
type Holding struct {
	ID ID
	By *Consumer
}

// HeldBy returns the unsettled deliveries of the given consumers, higher levels first and in order. It takes all
// consumers that end together, because one walk through the queue serves them all. Deliveries are mostly near the
// heads of the lanes; the walk stops when it has found them all.
func (m *Machine) HeldBy(consumers ...*Consumer) (held []Holding) {
	out, slots := 0, m.cs.slots
	for _, c := range consumers {
		if c.out > 0 && !c.meant && int(c.slot) < len(slots) && slots[c.slot] == c {
			c.meant = true
			out += c.out
		}
	}
	held = make([]Holding, 0, out)
	if out > 0 {
		m.RangeOut(func(id ID, owner uint32) bool {
			if o := int(owner); o < len(slots) && slots[o] != nil && slots[o].meant {
				held = append(held, Holding{id, slots[o]})
			}
			return len(held) < out
		})
	}
	for _, c := range consumers {
		c.meant = false
	}
	return held
}

// Hush stops deliveries to consumers until Speak. It is used while deliveries come back in several steps and count as
// one return.
func (m *Machine) Hush() { m.cs.hushed++ }

// Speak ends one Hush. The caller calls Flow.
func (m *Machine) Speak() { m.cs.hushed-- }

// DeathOf returns the dead entry with this ID, whether it waits to be routed or is held.
func (m *Machine) DeathOf(id ID) (Death, bool) {
	p := m.Find(id)
	if !p.Dead() {
		return Death{}, false
	}
	return m.death(id, p), true
}
