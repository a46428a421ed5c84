package queue

// Credit allows a metered consumer n more deliveries; the caller pumps.
func (m *Machine) Credit(c *Consumer, n int) {
	m.cs.touch(c)
	c.credit += n
	m.cs.awake(c)
}

// Left is how many more deliveries a metered consumer is allowed.
func (c *Consumer) Left() int { return c.credit }

// Idle says whether c is neither attached nor holds a delivery: it is nobody any more.
func (c *Consumer) Idle() bool { return c.gone && c.out == 0 }

// RangeSeated calls f for the consumers that are attached or hold a delivery, in no order.
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

// HeldBy is what consumers have not settled, higher levels first and in order: of all that
// end together, since it looks through the queue once for all of them. What is out is mostly
// near the heads of the lanes, and it looks no further.
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

// Hush keeps the queue from handing anything to its consumers until Speak: while what
// belongs together comes back in several steps.
func (m *Machine) Hush() { m.cs.hushed++ }

// Speak ends one Hush; the caller calls Flow.
func (m *Machine) Speak() { m.cs.hushed-- }

// DeathOf returns the dead entry of id, waiting to be routed or held.
func (m *Machine) DeathOf(id ID) (Death, bool) {
	p := m.Find(id)
	if !p.Dead() {
		return Death{}, false
	}
	return m.death(id, p), true
}
