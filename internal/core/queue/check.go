package queue

import (
	"fmt"
	"slices"

	"bartleby.mq/internal/core/queue/index"
)

// Check counts everything in the machine anew and returns the first invariant that does not hold, nil if all do. It
// is slow and meant for tests.
func (m *Machine) Check() error {
	if err := m.Index.Check(); err != nil {
		return err
	}
	outs := map[uint32]int{}
	var err error
	m.Each(false, func(id ID, p index.Place) {
		if p.State() != index.Out {
			return
		}
		outs[p.Owner()]++
		if slot := p.Owner(); slot != 0 && (int(slot) >= len(m.cs.slots) || m.cs.slots[slot] == nil) {
			err = fmt.Errorf("entry %d of level %d is out at slot %d, which no consumer has", id.Seq(), id.Lane(), slot)
		}
	})
	if err != nil {
		return err
	}
	if err := m.checkBreaker(); err != nil {
		return err
	}
	return m.checkConsumers(outs)
}

// checkBreaker checks the invariants of the breaker.
func (m *Machine) checkBreaker() error {
	b := m.breaker
	if b == nil {
		return nil
	}
	died, ended := int64(0), int64(0)
	for _, t := range b.ring {
		died += int64(t.died)
		ended += int64(t.ended)
		if t.died > t.ended {
			return fmt.Errorf("the breaker counts %d deaths among %d deliveries that ended", t.died, t.ended)
		}
	}
	switch {
	case died != b.died || ended != b.ended:
		return fmt.Errorf("the breaker counts %d of %d deliveries as dead, its steps %d of %d", b.died, b.ended, died, ended)
	case b.state != BreakerClosed && ended != 0:
		return fmt.Errorf("the breaker counts %d deliveries while it is %v", ended, b.state)
	case b.trial != 0 && b.state != BreakerTrying:
		return fmt.Errorf("a breaker that is %v tries entry %d", b.state, b.trial.Seq())
	case b.trial != 0 && !m.Find(b.trial).In(index.Out):
		return fmt.Errorf("the breaker tries entry %d of level %d, which is not out", b.trial.Seq(), b.trial.Lane())
	}
	return nil
}

// checkConsumers compares the counters of the consumers with outs, the number of entries that are out, by slot.
func (m *Machine) checkConsumers(outs map[uint32]int) error {
	plain := 0
	for i, c := range m.cs.list {
		if c.place != i+1 {
			return fmt.Errorf("consumer %q is not at its place of the list", c.Tag)
		}
		if c.spot == 0 && m.cs.belongs(c) {
			return fmt.Errorf("consumer %q belongs into line and is not in it", c.Tag)
		}
		if c.slot == 0 || m.cs.slots[c.slot] != c {
			return fmt.Errorf("consumer %q is attached and has no slot", c.Tag)
		}
		if c.NoAck {
			plain++
		}
	}
	if plain != m.cs.plain {
		return fmt.Errorf("%d consumers do not acknowledge, %d are counted", plain, m.cs.plain)
	}
	if err := m.checkLine(m.cs.line, false); err != nil {
		return err
	}
	if err := m.checkParties(); err != nil {
		return err
	}
	for slot, c := range m.cs.slots {
		if c == nil && slot > 0 && !slices.Contains(m.cs.free, uint32(slot)) {
			return fmt.Errorf("consumer slot %d is empty and not free", slot)
		}
		if c != nil && c.out != outs[uint32(slot)] {
			return fmt.Errorf("consumer %q counts %d deliveries, %d entries are out at it", c.Tag, c.out, outs[uint32(slot)])
		}
	}
	if m.cs.single {
		return m.checkActive()
	}
	return nil
}

// checkLine checks that line is a heap and that its consumers know their places in it.
func (m *Machine) checkLine(line []*Consumer, waits bool) error {
	for i, c := range line {
		if c.spot != i+1 || c.place == 0 || c.waits != waits || i > 0 && m.cs.before(c, line[(i-1)/2]) {
			return fmt.Errorf("consumer %q is at the wrong place of its heap", c.Tag)
		}
	}
	return nil
}

// checkParties checks the invariants of consumers that share a gate (type party).
func (m *Machine) checkParties() error {
	sizes := map[*party]int{}
	for _, c := range m.cs.list {
		asked := c.Gate != nil && !c.NoAck && !m.cs.single
		if asked != (c.party != nil) || asked && m.cs.parties[c.Gate] != c.party {
			return fmt.Errorf("consumer %q is not in the party of its gate", c.Tag)
		}
		if asked {
			sizes[c.party]++
		}
		if asked && c.spot != 0 && !c.waits && c.party.first != c {
			return fmt.Errorf("consumer %q is in line and not the first of its party", c.Tag)
		}
	}
	shut := 0
	for gate, p := range m.cs.parties {
		if p.gate != gate || p.size == 0 || p.size != sizes[p] {
			return fmt.Errorf("%d consumers share a gate, %d are counted", sizes[p], p.size)
		}
		if err := m.checkLine(p.waiting, true); err != nil {
			return err
		}
		f := p.first
		if f != nil && (f.party != p || f.spot == 0 || f.waits || p.shut || len(p.waiting) > 0 && m.cs.before(p.waiting[0], f)) {
			return fmt.Errorf("consumer %q is first of its party and should not be", f.Tag)
		}
		if f == nil && len(p.waiting) > 0 && !p.shut {
			return fmt.Errorf("consumer %q waits for an open gate, and its party has nobody in line", p.waiting[0].Tag)
		}
		if p.shut && len(p.waiting) > 0 {
			shut++
		}
		if (p.at != 0) != (p.shut && len(p.waiting) > 0) || p.at != 0 && m.cs.shut[p.at-1] != p {
			return fmt.Errorf("a party is at place %d of the shut ones and should not be", p.at)
		}
	}
	if len(sizes) != len(m.cs.parties) || shut != len(m.cs.shut) {
		return fmt.Errorf("%d gates are shared and %d of them shut, counted are %d and %d", len(sizes), shut, len(m.cs.parties), len(m.cs.shut))
	}
	return nil
}

// checkActive checks the choice of the single active consumer.
func (m *Machine) checkActive() error {
	able := slices.ContainsFunc(m.cs.list, m.cs.belongs)
	switch a := m.cs.active; {
	case a == nil && able:
		return fmt.Errorf("no consumer is active")
	case a != nil && !slices.Contains(m.cs.list, a):
		return fmt.Errorf("consumer %q is active and not attached", a.Tag)
	}
	return nil
}
