package queue

// Credit allows a metered consumer n more deliveries; the caller pumps.
func (m *Machine) Credit(c *Consumer, n int) { c.credit += n }

// Left is how many more deliveries a metered consumer is allowed.
func (c *Consumer) Left() int { return c.credit }

// Idle says whether c is neither attached nor holds a delivery: it is nobody any more.
func (c *Consumer) Idle() bool { return c.gone && c.out == 0 }

// Abandon takes back what c has not settled, in order, as if its channel had
// closed (DL-11.3): for one that is gone without a word. It returns how much that was.
func (m *Machine) Abandon(now int64, c *Consumer) int {
	if c.out == 0 {
		return 0
	}
	var held []ID
	m.each(true, func(id ID, p *page, i uint) {
		if p.state(i) == stateOut && p.owner(i) == c.slot {
			held = append(held, id)
		}
	})
	for _, id := range held {
		m.Return(now, id, c, ReturnClosed)
	}
	return len(held)
}

// DeathOf returns the dead entry of id, waiting to be routed or held.
func (m *Machine) DeathOf(id ID) (Death, bool) {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateDying && p.state(i) != stateHeld {
		return Death{}, false
	}
	return m.death(id, p, i), true
}
