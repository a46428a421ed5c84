package queue

import (
	"fmt"
	"slices"
)

// Check recounts the machine from nothing and returns the first invariant that
// does not hold, nil if all do. It is slow and meant for tests.
func (m *Machine) Check() error {
	var n Totals
	outs := map[uint32]int{}
	rows := map[uint32]bool{}
	listed := map[ID]int{}
	for _, id := range m.returns {
		listed[id]++
	}
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		if err := m.checkLane(level, l); err != nil {
			return err
		}
	}
	var err error
	fail := func(id ID, format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("entry %d of level %d: %s", id.Seq(), id.Lane(), fmt.Sprintf(format, args...))
		}
	}
	m.each(false, func(id ID, p *page, i uint) {
		was := m.n
		m.n = n
		m.tally(p.state(i), 1, int64(p.size(i)))
		n, m.n = m.n, was
		if p.logged(i) {
			n.Persistent++
		}
		l := m.lanes[id.Lane()]
		k, _ := l.search(p.number)
		looked := l.slots[k].page != p || p.rest != nil && p.rest.has(i) // it is in memory for us only
		if !looked && p.rows != nil && p.rows[p.at(i)] != 0 {
			row := p.rows[p.at(i)]
			if rows[row] || row > m.sides.made {
				fail(id, "side row %d of %d is not its own", row, m.sides.made)
			}
			rows[row] = true
		}
		switch p.state(i) {
		case stateOut:
			outs[p.owner(i)]++
			if slot := p.owner(i); slot != 0 && (int(slot) >= len(m.cs.slots) || m.cs.slots[slot] == nil) {
				fail(id, "out at slot %d, where no consumer is", slot)
			}
		case stateReturned:
			if listed[id] != 1 {
				fail(id, "stands %d times in the returns list", listed[id])
			}
		}
	})
	if err != nil {
		return err
	}
	for _, p := range m.late {
		if err := m.checkBefore(p); err != nil || p.used != 0 || p.rest != nil || len(p.before) == 0 {
			return fmt.Errorf("a page that has gone has %d entries and %d before-images: %w", p.used, len(p.before), err)
		}
	}
	if n != m.n {
		return fmt.Errorf("totals are %+v, a recount gives %+v", m.n, n)
	}
	if listed := len(m.returns) - len(m.strays); listed != n.Returned && !m.ghosts {
		return fmt.Errorf("the returns list has %d entries, and %d of them strays: want %d", len(m.returns), len(m.strays), n.Returned)
	}
	if err := m.checkRows(rows); err != nil {
		return err
	}
	return m.checkConsumers(outs)
}

// checkBefore checks what before.go says of before-images.
func (m *Machine) checkBefore(p *page) error {
	if p == nil || len(p.before) == 0 {
		return nil
	}
	if !m.pages.saving || p.dirty == 0 || p.dirty == m.pages.version {
		return fmt.Errorf("it has %d before-images, and version %d does not wait to be saved", len(p.before), p.dirty)
	}
	var of bitmap
	for _, b := range p.before {
		if of.has(uint(b.slot)) {
			return fmt.Errorf("entry %d has two before-images", b.slot)
		}
		of.set(uint(b.slot))
	}
	return nil
}

// checkSame compares a page that says so with its copy.
func (m *Machine) checkSame(p *page) error {
	if p == nil || !p.lessened() {
		return nil
	}
	d, err := m.pages.parse(m.cold.Read(p.id(p.saved)))
	if err != nil {
		return err
	}
	copied := d.plain
	now := m.flatten(p)
	for i := now.live.next(0); i < pageSize; i = now.live.next(i + 1) {
		if !copied.live.has(i) || copied.marks[i] != now.marks[i] || copied.at[i] != now.at[i] || copied.sizes[i] != now.sizes[i] || copied.dues[i] != now.dues[i] {
			return fmt.Errorf("entry %d is %x, due at %d, at %x; its copy, version %d, is %x, due at %d, at %x",
				i, now.marks[i], now.dues[i], now.at[i], p.saved, copied.marks[i], copied.dues[i], copied.at[i])
		}
	}
	return nil
}

func (m *Machine) checkLane(level int, l *lane) error {
	ready, empty := 0, 0
	for k := range l.slots {
		number := l.slots[k].number
		if k > 0 && l.slots[k-1].number >= number {
			return fmt.Errorf("level %d: page %d stands behind page %d", level, number, l.slots[k-1].number)
		}
		s := &l.slots[k]
		var near bitmap
		if s.page != nil {
			near = s.page.live
			if err := s.page.checkForm(); err != nil {
				return fmt.Errorf("level %d: page %d: %w", level, number, err)
			}
		}
		p := m.look(l, level, k)
		rest := p.live.less(near)
		sum := m.pages.summary()
		if rest != (bitmap{}) {
			sum = m.pages.summarize(m.flatten(p), rest)
		}
		if err := m.checkSame(s.page); err != nil {
			return fmt.Errorf("level %d: page %d: %w", level, number, err)
		}
		if err := m.checkComing(s.page); err != nil {
			return fmt.Errorf("level %d: page %d: %w", level, number, err)
		}
		if err := m.checkBefore(s.page); err != nil {
			return fmt.Errorf("level %d: page %d: %w", level, number, err)
		}
		if sum.used() != uint64(s.used) || sum.logged != int(s.logged) || sum.size() != uint64(s.bytes) || sum.n[stateReady] != uint64(s.ready) || s.used > 0 && s.plain != (s.used == s.ready) {
			return fmt.Errorf("level %d: of page %d %+v is remembered, a recount gives %+v", level, number, *s, sum)
		}
		if s.page != nil && s.page.rest != nil && *s.page.rest != rest {
			return fmt.Errorf("level %d: of page %d %x is in the copy only, %x should be", level, number, rest, *s.page.rest)
		}
		if err := l.checkAlarms(s); err != nil {
			return fmt.Errorf("level %d: %w", level, err)
		}
		if p.number != number || int(p.level) != level {
			return fmt.Errorf("level %d: page %d says it is %d of level %d", level, number, p.number, p.level)
		}
		used := 0
		for i := range uint(pageSize) {
			seq := number*pageSize + uint64(i)
			if p.ready.has(i) && !p.live.has(i) {
				return fmt.Errorf("level %d: entry %d is ready and not live", level, seq)
			}
			if !p.live.has(i) {
				continue
			}
			used++
			state := p.state(i)
			if state > stateOffered || p.ready.has(i) != (state == stateReady) {
				return fmt.Errorf("level %d: entry %d is in state %d, its ready bit is %v", level, seq, state, p.ready.has(i))
			}
			if p.ready.has(i) {
				ready++
				if seq < l.head {
					return fmt.Errorf("level %d: entry %d is ready below the head %d", level, seq, l.head)
				}
			}
			if seq >= l.next {
				return fmt.Errorf("level %d: entry %d is live, the next is %d", level, seq, l.next)
			}
			watched := m.watches(state)
			bound, at := p.min, m.due(p, i)
			if rest.has(i) {
				bound = s.wake
			}
			if watched && at != 0 && at < bound {
				return fmt.Errorf("level %d: entry %d is due at %d, its page at %d", level, seq, at, bound)
			}
			if real := m.due(p, i); real != 0 && real < p.dueAt(i) {
				return fmt.Errorf("level %d: entry %d is due at %d, its column says %d", level, seq, real, p.dueAt(i))
			}
		}
		if used != int(p.used) {
			return fmt.Errorf("level %d: page %d counts %d entries and has %d", level, number, p.used, used)
		}
		if l.spent(s) {
			empty++
			if k == 0 {
				return fmt.Errorf("level %d: page %d is empty and the first", level, number)
			}
		} else if used == 0 && number != l.next/pageSize {
			return fmt.Errorf("level %d: page %d is empty and kept", level, number)
		}
		m.unlook(l, k, p)
	}
	if empty > l.empty {
		return fmt.Errorf("level %d has %d empty pages and counts %d", level, empty, l.empty)
	}
	if l.dues.first() < m.nextDue || l.wakes.first() < m.nextWake {
		return fmt.Errorf("level %d is due at %d and wakes at %d, the queue at %d and %d", level, l.dues.first(), l.wakes.first(), m.nextDue, m.nextWake)
	}
	if filled := m.filled[level>>6]&(1<<(level&63)) != 0; ready != l.ready || filled != (ready > 0) {
		return fmt.Errorf("level %d has %d ready, counts %d, filled is %v", level, ready, l.ready, filled)
	}
	return nil
}

// checkComing finds all that is due before the last slot of coming, and was not due before
// the page is, among the others.
func (m *Machine) checkComing(p *page) error {
	if p == nil || p.comes == 0 {
		return nil
	}
	var coming bitmap
	last := int64(0)
	for _, slot := range p.coming[:p.comes] {
		i := uint(slot)
		coming.set(i)
		if !p.live.has(i) || p.dueAt(i) == 0 {
			continue
		}
		if p.dueAt(i) < last {
			return fmt.Errorf("entry %d comes too late", i)
		}
		last = p.dueAt(i)
	}
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if at := p.dueAt(i); at >= p.min && at < last && !coming.has(i) {
			return fmt.Errorf("entry %d is due at %d and not among those that come until %d", i, at, last)
		}
	}
	return nil
}

// checkAlarms finds the slot's moments among the lane's.
func (l *lane) checkAlarms(s *slot) error {
	if s.page != nil && s.page.min != never && !slices.Contains(l.dues, alarm{s.page.min, s.number}) {
		return fmt.Errorf("page %d is due at %d and has no alarm", s.number, s.page.min)
	}
	if s.wake != never && !slices.Contains(l.wakes, alarm{s.wake, s.number}) {
		return fmt.Errorf("page %d wakes at %d and has no alarm", s.number, s.wake)
	}
	return nil
}

// checkForm compares the page's columns with its form and its entries.
func (p *page) checkForm() error {
	room := p.room()
	if len(p.refs) != room || len(p.sizes) != room || len(p.marks) != room || !p.ranked && !p.live.fits(p.class()) {
		return fmt.Errorf("%d slots are live in %d positions, ranked %v", p.used, room, p.ranked)
	}
	for _, column := range [...][]uint32{p.dues, p.owners, p.rows} {
		if column != nil && len(column) != room {
			return fmt.Errorf("a column has %d positions, the page %d", len(column), room)
		}
	}
	for i, off := range p.dues {
		if off != 0 && room == pageSize && !p.ranked && !p.live.has(uint(i)) {
			return fmt.Errorf("slot %d has a moment and is not live", i)
		}
	}
	return nil
}

// checkRows finds every side row either in use, in the graveyard, or free.
func (m *Machine) checkRows(rows map[uint32]bool) error {
	for _, g := range m.graveyard {
		p := g.slot.page
		if p == nil {
			continue
		}
		for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
			if p.rows != nil && p.rows[p.at(i)] != 0 {
				rows[p.rows[p.at(i)]] = true
			}
		}
	}
	for row := m.sides.free; row != 0; row = m.sides.at(row).nextFree {
		if rows[row] {
			return fmt.Errorf("side row %d is free and in use", row)
		}
		rows[row] = true
	}
	if made := int(m.sides.made); len(rows) != made {
		return fmt.Errorf("%d of %d side rows are lost", made-len(rows), made)
	}
	return nil
}

// checkConsumers compares what consumers count with outs, the entries out by slot.
func (m *Machine) checkConsumers(outs map[uint32]int) error {
	plain := 0
	for i, c := range m.cs.list {
		if c.place != i+1 {
			return fmt.Errorf("consumer %q does not know its place", c.Tag)
		}
		if c.spot == 0 && m.cs.belongs(c) {
			return fmt.Errorf("consumer %q stands in no line", c.Tag)
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
			return fmt.Errorf("slot %d of consumers is lost", slot)
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

// checkLine checks that a heap of consumers is one.
func (m *Machine) checkLine(line []*Consumer, waits bool) error {
	for i, c := range line {
		if c.spot != i+1 || c.place == 0 || c.waits != waits || i > 0 && m.cs.before(c, line[(i-1)/2]) {
			return fmt.Errorf("consumer %q stands at the wrong place of the line", c.Tag)
		}
	}
	return nil
}

// checkParties checks what consumer.go says of consumers that share a gate.
func (m *Machine) checkParties() error {
	sizes := map[*party]int{}
	for _, c := range m.cs.list {
		asked := c.Gate != nil && !c.NoAck && !m.cs.single
		if asked != (c.party != nil) || asked && m.cs.parties[c.Gate] != c.party {
			return fmt.Errorf("consumer %q is not among those that share its gate", c.Tag)
		}
		if asked {
			sizes[c.party]++
		}
		if asked && c.spot != 0 && !c.waits && c.party.first != c {
			return fmt.Errorf("consumer %q stands in line, and is not the first of those that share its gate", c.Tag)
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
			return fmt.Errorf("consumer %q stands in line for others that share its gate, and should not", f.Tag)
		}
		if f == nil && len(p.waiting) > 0 && !p.shut {
			return fmt.Errorf("consumer %q waits for a gate that is open, and none like it stands in line", p.waiting[0].Tag)
		}
		if p.shut && len(p.waiting) > 0 {
			shut++
		}
		if (p.at != 0) != (p.shut && len(p.waiting) > 0) || p.at != 0 && m.cs.shut[p.at-1] != p {
			return fmt.Errorf("a shut gate stands at place %d of those that are", p.at)
		}
	}
	if len(sizes) != len(m.cs.parties) || shut != len(m.cs.shut) {
		return fmt.Errorf("%d gates are shared and %d of them shut, %d and %d are noted", len(sizes), shut, len(m.cs.parties), len(m.cs.shut))
	}
	return nil
}

// checkActive looks whether a single active consumer is the right one.
func (m *Machine) checkActive() error {
	able := slices.ContainsFunc(m.cs.list, m.cs.belongs)
	switch a := m.cs.active; {
	case a == nil && able:
		return fmt.Errorf("no consumer is the active one")
	case a != nil && !slices.Contains(m.cs.list, a):
		return fmt.Errorf("consumer %q is the active one and not attached", a.Tag)
	}
	return nil
}
