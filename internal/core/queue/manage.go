package queue

import (
	"math"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// Attach adds a consumer (BR-9.1) and says whether it may: an exclusive one must
// be alone on a classic queue, and cannot be on one with a single active consumer
// (BR-9.3). Nothing is delivered before the next Pump.
func (m *Machine) Attach(now int64, c *Consumer) bool {
	if m.config.Type == Classic && (c.Exclusive && (m.config.SingleActive || len(m.cs.list) > 0) || len(m.cs.list) > 0 && m.cs.list[0].Exclusive) {
		return false
	}
	m.lastUse = now
	m.cs.attach(c)
	return true
}

// Detach removes a consumer; what it has out stays out (BR-9.12). It says
// whether the consumer was attached.
func (m *Machine) Detach(now int64, c *Consumer) bool {
	if !m.cs.detach(c) {
		return false
	}
	m.lastUse = now
	return true
}

// Pause stops deliveries to c until Resume.
func (m *Machine) Pause(c *Consumer) { c.paused = true }

// Resume allows deliveries to c again; the caller pumps.
func (m *Machine) Resume(c *Consumer) {
	c.paused = false
	m.cs.awake(c)
}

// Open lets consumers be asked again whose gate has refused; the caller pumps.
func (m *Machine) Open(gate Gate) { m.cs.open(gate) }

// Share puts c, which has no Gate, under one. What it has out is the gate's to count.
func (m *Machine) Share(c *Consumer, gate Gate) { m.cs.share(c, gate) }

// Configure puts other settings in force. What exceeds new limits dies by Trim.
func (m *Machine) Configure(now int64, s Settings) {
	if s.Expires >= 0 && m.settings.Expires < 0 {
		m.lastUse = now
	}
	if s.ConsumerTimeout != m.settings.ConsumerTimeout {
		m.watch = 0 // looked at anew by the next Tick
	}
	m.settings = s
	m.refusing = false
}

// Purging is how far a purge has come; the zero value begins one.
type Purging struct {
	at   SaveCursor
	ends []uint64 // by level, the number that ends what is purged: what comes later stays
}

// Purge is PurgeSome of all at once.
func (m *Machine) Purge(told func(first ID, n int)) int {
	purged, _ := m.PurgeSome(&Purging{}, math.MaxInt, told)
	return purged
}

// The costs of a page to a purge, where an entry that goes by itself costs 1.
const (
	purgePassed = 1  // nothing of it goes
	purgeWhole  = 32 // all of it goes
)

// PurgeSome removes messages that are ready, and on quorum queues those that
// are delayed or held (DL-2.1), and returns their number. It goes on where it was, costs about limit at most, and
// says whether there is more: others may come in between. Their references pass
// to the sink by BuryRest, in slices. told, unless it is nil, is called for runs of logged entries that
// it removes.
//
// It costs what it removes, and of pages without any it looks at hardly more than whether they have some.
func (m *Machine) PurgeSome(to *Purging, limit int, told func(first ID, n int)) (purged int, more bool) {
	m.touchMeta()
	if to.ends == nil {
		to.ends = m.WhatIsThere().ends
	}
	before := m.n.Ready + m.n.Delayed + m.n.Held
	for ; to.at.level < len(m.lanes); to.at = (SaveCursor{level: to.at.level + 1}) {
		if l := m.lanes[to.at.level]; l != nil {
			if limit, more = m.purgeLane(to, l, limit, told); more {
				break
			}
		}
	}
	if !more {
		m.dropReturns()
	}
	return before - (m.n.Ready + m.n.Delayed + m.n.Held), more
}

// purgeLane is the part of PurgeSome for a level. It returns what is left of the limit.
func (m *Machine) purgeLane(to *Purging, l *lane, limit int, told func(first ID, n int)) (left int, more bool) {
	level, end := to.at.level, to.ends[to.at.level]
	onlyReady := m.n.Returned == 0 && (m.config.Type == Classic || m.n.Delayed+m.n.Held == 0)
	if onlyReady && l.ready == 0 {
		return limit, false
	}
	purged := func(state uint8) bool {
		return state == stateReady || state == stateReturned || m.config.Type == Quorum && (state == stateDelayed || state == stateHeld)
	}
	first := to.at.number
	if onlyReady {
		first = max(first, l.head/pageSize)
	}
	var mixed []*page // pages of which something stays, and the one being filled
	k, _ := l.search(first)
	kept := k
	for ; k < len(l.slots) && l.slots[k].number*pageSize < end; k++ {
		if more = limit <= 0; more {
			to.at.number = l.slots[k].number
			break
		}
		s := &l.slots[k]
		if onlyReady && !s.hasReady() && !s.isEmpty() {
			l.slots[kept] = *s
			kept++
			limit -= purgePassed
			continue
		}
		if s.used > 0 && !s.plain {
			m.resident(l, level, k)
			limit -= pageSize
		}
		if s.number < end/pageSize && (s.page == nil || m.all(s.page, purged)) {
			limit -= purgeWhole
			if told != nil {
				limit -= m.tellLogged(l, level, k, told)
			}
			m.detach(level, l, *s)
			continue
		}
		mixed = append(mixed, m.resident(l, level, k))
		limit -= pageSize
		l.slots[kept] = *s
		kept++
	}
	if kept == 0 { // mostly, and there may be very many behind
		clear(l.slots[:k])
		l.slots = l.slots[k:]
	} else {
		l.slots = slices.Delete(l.slots, kept, k)
	}
	for _, p := range mixed {
		for i := p.live.next(0); i < pageSize && p.number*pageSize+uint64(i) < end; i = p.live.next(i + 1) {
			if purged(p.state(i)) {
				id := makeID(level, p.number*pageSize+uint64(i))
				body, history, logged := m.forget(id, p, i)
				m.sink.Removed(id, body, history, false)
				if logged && told != nil {
					told(id, 1)
				}
			}
		}
	}
	m.dropSpent(l) // an empty page may have become the first
	return limit, more
}

// hasReady says whether some entry of the page is ready.
func (s *slot) hasReady() bool { return s.ready > 0 || s.page != nil && s.page.ready != bitmap{} }

// isEmpty says whether the page has no entry: none such may come to be the first.
func (s *slot) isEmpty() bool { return s.used == 0 && (s.page == nil || s.page.used == 0) }

// tellLogged calls told for the logged entries of the page at k, and returns what that costs a purge.
func (m *Machine) tellLogged(l *lane, level, k int, told func(first ID, n int)) (cost int) {
	s := &l.slots[k]
	first := makeID(level, s.number*pageSize)
	switch {
	case s.page == nil && s.logged == 0:
		return 0
	case s.page == nil && s.logged == pageSize: // no need to read them
		told(first, pageSize)
		return 0
	case s.used > 0:
		cost = pageSize
	}
	p := m.look(l, level, k)
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if p.logged(i) {
			told(first+ID(i), 1)
		}
	}
	m.unlook(l, k, p)
	return cost
}

// all says whether the state of every entry of the page is one of those meant.
func (m *Machine) all(p *page, meant func(state uint8) bool) bool {
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if !meant(p.state(i)) {
			return false
		}
	}
	return true
}

// detach takes a page with all its entries out of the counts and puts it into
// the graveyard; the caller takes it out of the lane.
func (m *Machine) detach(level int, l *lane, s slot) {
	if s.used > 0 && (!s.plain || m.pages.Hash != nil) {
		if s.page == nil {
			s.page = m.load(&s, level)
		} else {
			m.join(s.page)
		}
		m.forgetRest(&s)
	}
	if p := s.page; p != nil {
		for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
			m.tally(p.state(i), -1, -int64(p.size(i)))
			if p.logged(i) {
				if m.pages.Hash != nil {
					m.mixIn(minus, makeID(level, p.number*pageSize+uint64(i)), p.size(i), p.history(i))
				}
				m.n.Persistent--
			}
		}
		l.ready -= p.ready.count()
	}
	m.tally(stateReady, -int(s.used), -s.bytes)
	m.n.Persistent -= int(s.logged)
	l.ready -= int(s.ready)
	if l.ready == 0 {
		m.filled[level>>6] &^= 1 << (level & 63)
	}
	m.inter(level, s, false)
}

// inter puts a page into the graveyard; closed says whether with its queue.
func (m *Machine) inter(level int, s slot, closed bool) {
	owed := m.pages.saving && s.page != nil && s.page.dirty != 0 && s.page.dirty < m.pages.version
	m.graveyard = append(m.graveyard, grave{level, s, m.pages.version, owed, closed})
}

// Close empties the queue for its deletion and returns the consumers it had. It asks
// nothing of the disk: the references pass to the sink, and what the checkpoint being
// written has of the queue is saved, by BuryRest.
func (m *Machine) Close() []*Consumer {
	m.oweMeta()
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		for _, s := range l.slots {
			m.inter(level, s, true) // as it is: what was put away, or is in parts, BuryRest reads
		}
		m.lanes[level] = nil
	}
	m.n = Totals{}
	m.warm(cold)
	m.dropReturns()
	m.dying, m.unread, m.filled = nil, nil, [4]uint64{}
	m.nextDue, m.nextWake, m.watch = never, never, math.MaxInt64
	if len(m.graveyard)+len(m.late) == 0 {
		m.sides.trim(0)
	}
	return m.cs.clear()
}

// BuryRest gives up what Purge and Close took out, at most about limit entries,
// and says whether there is more. What the checkpoint being written has of it, and of
// other pages that have gone, is saved before.
func (m *Machine) BuryRest(limit int) (more bool) {
	m.payMeta()
	if len(m.graveyard)+len(m.late) == 0 {
		return false
	}
	for len(m.late) > 0 && limit > 0 {
		last := len(m.late) - 1
		p := m.late[last]
		m.late[last] = nil
		m.late = m.late[:last]
		m.save(p)
		m.discard(p, m.pages.version)
		m.pages.put(p)
		limit -= pageSize
	}
	for len(m.graveyard) > 0 && limit > 0 {
		last := len(m.graveyard) - 1
		g := m.graveyard[last]
		m.graveyard[last] = grave{}
		m.graveyard = m.graveyard[:last]
		p := g.slot.page
		if g.owed && m.pages.saving {
			m.save(p) // not by detach: that would be all of a long queue at once
		}
		if p == nil {
			p = m.load(&g.slot, g.level)
		} else if p.rest != nil {
			m.join(p)
			p.rest = nil
		}
		m.discard(p, g.version)
		for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
			if state := p.state(i); g.closed && (state == stateDying || state == stateHeld) {
				reason, _, _ := m.diedOf(p, i)
				m.sink.Ended(makeID(g.level, p.number*pageSize+uint64(i)), reason, state == stateHeld)
			}
			m.sink.Removed(0, p.ref(i), p.history(i), false)
			m.dropSide(p, i)
			limit--
		}
		m.pages.put(p)
	}
	if len(m.graveyard)+len(m.late) > 0 {
		return true
	}
	m.sides.trim(0)
	return false
}

// View is an entry as those see it who only look.
type View struct {
	ID          ID
	Body        message.Ref // the machine's references
	History     message.Ref
	Counts      Counts
	Due         int64 // when its TTL is over, 0 = never
	NotBefore   int64 // when its wait is over, 0 = it does not wait
	Out         bool
	Returned    bool              // it came back and goes before all others (BR-9.13)
	Offered     bool              // it waits for whether it is taken elsewhere
	Dead        bool              // dying or held
	Held        deadletter.Reason // 0 unless it is held
	DiedAt      int64
	Redelivered bool
	Logged      bool
	Size        uint32
}

// Browse calls f for the entries after the cursor, in the order of levels,
// highest first, and numbers, until f returns false or limit entries were
// shown; it returns the cursor to go on from, and done at the end, which is
// that of the cursor if it has one. It changes nothing.
func (m *Machine) Browse(after Cursor, limit int, f func(View) bool) (next Cursor, done bool) {
	level, seq := len(m.lanes)-1, uint64(0)
	if after.begun {
		level, seq = after.id.Lane(), after.id.Seq()+1
	}
	for ; level >= 0; level, seq = level-1, 0 {
		l := m.lanes[level]
		if l == nil {
			continue
		}
		end := after.end(level)
		k, _ := l.search(seq / pageSize)
		for ; k < len(l.slots) && l.slots[k].number*pageSize < end; k++ {
			if limit == 0 {
				return after, false
			}
			p, from := m.look(l, level, k), uint(0)
			if p.number == seq/pageSize {
				from = uint(seq % pageSize)
			}
			stopped := false
			for i := p.live.next(from); i < pageSize && p.number*pageSize+uint64(i) < end && !stopped; i = p.live.next(i + 1) {
				if stopped = limit == 0; !stopped {
					limit--
					after = after.Behind(makeID(level, p.number*pageSize+uint64(i)))
					stopped = !f(m.view(after.id, p, i))
				}
			}
			m.unlook(l, k, p)
			if stopped {
				return after, false
			}
		}
	}
	return after, true
}

// Cursor is a place in a queue between two entries; the zero value is before
// the first. It stays good whatever happens to the entries.
type Cursor struct {
	begun bool
	id    ID
	ends  []uint64 // by level, the number that ends what is shown; nil: all is shown. It is never changed
}

// Behind is the place right behind the entry, with the end that c has.
func (c Cursor) Behind(id ID) Cursor { return Cursor{true, id, c.ends} }

func (c *Cursor) end(level int) uint64 {
	if c.ends == nil {
		return math.MaxUint64
	}
	return c.ends[level]
}

// WhatIsThere is a cursor before the first entry which ends with what is in the queue now: entries that
// come later have higher numbers.
func (m *Machine) WhatIsThere() Cursor {
	c := Cursor{ends: make([]uint64, len(m.lanes))}
	for level, l := range m.lanes {
		if l != nil {
			c.ends[level] = l.next
		}
	}
	return c
}

func (m *Machine) view(id ID, p *page, i uint) View {
	v := View{
		ID: id, Body: p.ref(i), History: p.history(i), Counts: p.countsOf(i), Due: m.due(p, i), Size: p.size(i),
		Redelivered: p.redelivered(i), Logged: p.logged(i),
	}
	switch p.state(i) {
	case stateOut:
		v.Out = true
	case stateReturned:
		v.Returned = true
	case stateDelayed:
		v.NotBefore, v.Due = v.Due, m.rowOf(p, i).ttl
	case stateDying:
		v.Dead = true
	case stateOffered:
		v.Offered = true
	case stateHeld:
		s := m.rowOf(p, i)
		v.Dead, v.Held, v.DiedAt = true, s.reason, s.diedAt
	}
	return v
}

// View shows one entry.
func (m *Machine) View(id ID) (View, bool) {
	p, i := m.find(id)
	if p == nil {
		return View{}, false
	}
	return m.view(id, p, i), true
}

// Restored is the entry as Restore takes it, without its references.
func (v *View) Restored() Restored {
	r := Restored{NotBefore: v.NotBefore, Out: v.Out, Returned: v.Returned, Offered: v.Offered, Held: v.Held, DiedAt: v.DiedAt}
	r.Counts, r.Redelivered, r.Due = v.Counts, v.Redelivered, v.Due
	return r
}

// Take removes a ready entry for a move that somebody asked for, such as a
// replay. The references are the caller's.
func (m *Machine) Take(id ID) (body, history message.Ref, logged, ok bool) {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateReady && p.state(i) != stateReturned {
		return 0, 0, false, false
	}
	body, history, logged = m.forget(id, p, i)
	return body, history, logged, true
}

// Due is the moment at which the entry's time here is over, 0 if it never is.
func (m *Machine) Due(id ID) int64 {
	p, i := m.find(id)
	switch {
	case p == nil:
		return 0
	case p.state(i) == stateDelayed:
		return m.rowOf(p, i).ttl
	}
	return m.due(p, i)
}

// NotBefore is the moment until which the entry waits, 0 if it does not.
func (m *Machine) NotBefore(id ID) int64 {
	if p, i := m.find(id); p != nil && p.state(i) == stateDelayed {
		return m.due(p, i)
	}
	return 0
}

// Size is the entry's bytes as length limits count them, 0 if it is not there.
func (m *Machine) Size(id ID) uint32 {
	if p, i := m.find(id); p != nil {
		return p.size(i)
	}
	return 0
}

// Long says whether the queue has pages that PutAway may take.
func (m *Machine) Long() bool {
	for _, l := range m.lanes {
		if l != nil && len(l.slots) > 2*m.pages.Hot+1 {
			return true
		}
	}
	return false
}

// Discard removes an entry whose record is lost, whatever it waits for. out says that c
// has it, or nil by a get; one that is out at somebody else stays. It says whether the
// entry was there and went.
func (m *Machine) Discard(id ID, c *Consumer, out bool) bool {
	var p *page
	var i uint
	if out {
		p, i = m.taken(id, c)
	}
	if p == nil {
		if p, i = m.find(id); p == nil || p.state(i) == stateOut {
			return false
		}
	}
	m.remove(id, p, i)
	return true
}
