package queue

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// Death is an entry that waits to be routed.
type Death struct {
	ID      ID
	Body    message.Ref // the machine's reference
	History message.Ref // likewise
	Counts  Counts
	Reason  deadletter.Reason
	At      int64     // when it died, in milliseconds since 1970
	By      *Consumer // who rejected or returned it last, nil if nobody did
	Logged  bool
	Size    uint32
	Stays   bool // the body was on disk only until it was read for the routing, and is there for good
}

// die ends an entry's life in this queue. With a dead-letter exchange in force
// it waits to be routed; without, it is gone (DL-1.8).
func (m *Machine) die(now int64, id ID, p *page, i uint, reason deadletter.Reason, by *Consumer) {
	m.sink.Died(reason, m.settings.DeadLetter)
	if !m.settings.DeadLetter {
		m.remove(id, p, i)
		return
	}
	m.setState(id, p, i, stateDying)
	// What expires needs no side row until it is held, where copies of pages need not tell all:
	// in a long queue, in all of whose pages something dies, those rows would be a column more.
	if reason != deadletter.Expired || by != nil || m.pages.Exact || m.peekSide(p, i) != nil {
		s := m.sideOf(p, i)
		s.reason, s.diedAt, s.by = reason, now, by
	}
	m.dying = append(m.dying, dying{id, now})
	m.died++
}

// dieOf is die of an attempt, which was counted as failed if so it is said.
func (m *Machine) dieOf(now int64, id ID, p *page, i uint, reason deadletter.Reason, by *Consumer, failed bool) {
	m.die(now, id, p, i, reason, by)
	if failed && m.settings.DeadLetter { // else the entry is gone
		m.sideOf(p, i).failed = true
	}
}

// dying is an entry in stateDying. Its side row, if it has one with a reason, tells when it
// died as well; one that has none has expired.
type dying struct {
	id ID
	at int64 // when it died; 0: the row tells
}

// diedOf is why an entry died that is dying or held, and by whom, and when if its side row
// tells; else 0. A row may have come later, for a moment that its column cannot tell.
func (m *Machine) diedOf(p *page, i uint) (reason deadletter.Reason, at int64, by *Consumer) {
	if s := m.peekSide(p, i); s != nil && s.reason != 0 {
		return s.reason, s.diedAt, s.by
	}
	return deadletter.Expired, 0, nil
}

// unread is a death that cannot be routed for now: its record cannot be read (Spoil).
type unread struct {
	at    int64  // as dying.at
	order uint64 // as which of all deaths (Machine.died) it has left dying; 0: it is still there
}

// Deaths appends up to limit of the deaths that wait to be routed to out, in
// order (DL-1.9). They wait until they are given to Bury, Hold or Spoil.
func (m *Machine) Deaths(limit int, out []Death) []Death {
	m.skipBuried()
	for k, x := range m.dying {
		if limit == 0 {
			break
		}
		if k%glances == 0 {
			var ids [glances]ID
			n := min(len(m.dying)-k, glances)
			for j := range n {
				ids[j] = m.dying[k+j].id
			}
			m.glanceAt(ids[:n])
		}
		if p, i := m.waits(x.id); p != nil {
			out = append(out, m.deathAt(x.id, p, i, x.at))
			limit--
		}
	}
	return out
}

// RangeDeaths calls f for each entry that died and is not held, those given to Spoil first.
func (m *Machine) RangeDeaths(f func(d Death)) {
	m.skipBuried()
	for id, u := range m.unread {
		if p, i := m.find(id); p != nil {
			f(m.deathAt(id, p, i, u.at))
		}
	}
	for _, x := range m.dying {
		if p, i := m.waits(x.id); p != nil {
			f(m.deathAt(x.id, p, i, x.at))
		}
	}
}

// waits finds an entry that waits to be routed; the page is nil if it does not.
func (m *Machine) waits(id ID) (*page, uint) {
	if p, i := m.find(id); p != nil && p.state(i) == stateDying {
		if _, spoilt := m.unread[id]; !spoilt {
			return p, i
		}
	}
	return nil, 0
}

// Waiting is how many deaths wait to be routed, some of which may be gone.
func (m *Machine) Waiting() int { return len(m.dying) }

// Spoil leaves a death out of Deaths from now on: its record cannot be read. The entry stays in the queue,
// dead and counted. So what died after it is not kept behind it in dying, where nobody would take it out.
func (m *Machine) Spoil(id ID) {
	if p, _ := m.waits(id); p == nil {
		return
	}
	if m.unread == nil {
		m.unread = map[ID]unread{}
	}
	m.unread[id] = unread{}
}

// skipBuried drops what does not wait any more from the front of dying.
func (m *Machine) skipBuried() {
	for len(m.dying) > 0 {
		x := m.dying[0]
		if p, _ := m.waits(x.id); p != nil {
			return
		}
		if _, spoilt := m.unread[x.id]; spoilt {
			m.unread[x.id] = unread{x.at, m.died - uint64(len(m.dying)) + 1}
		}
		m.dying = m.dying[1:]
	}
	m.dying = nil
}

// dyingIDs are the entries that died and are not held, in the order of their deaths, and some that are gone.
func (m *Machine) dyingIDs() []ID {
	ids := make([]ID, 0, len(m.unread)+len(m.dying))
	for id, u := range m.unread {
		if u.order != 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int { return cmp.Compare(m.unread[a].order, m.unread[b].order) })
	for _, x := range m.dying { // all of them later
		ids = append(ids, x.id)
	}
	return ids
}

// deathAt is death, of an entry of which is known when it died if its row does not tell.
func (m *Machine) deathAt(id ID, p *page, i uint, at int64) Death {
	d := m.death(id, p, i)
	if d.At == 0 {
		d.At = at
	}
	return d
}

func (m *Machine) death(id ID, p *page, i uint) Death {
	reason, at, by := m.diedOf(p, i)
	return Death{
		ID: id, Body: p.ref(i), History: p.history(i), Counts: p.countsOf(i),
		Reason: reason, At: at, By: by, Logged: p.logged(i), Size: p.size(i),
	}
}

// HasDeaths says whether Deaths would find any.
func (m *Machine) HasDeaths() bool {
	if len(m.dying) == 0 {
		return false
	}
	m.skipBuried()
	return len(m.dying) > 0
}

// DeathCount is how many entries have come to wait to be routed while the machine is in memory. It
// names those before a moment, which a clock would not: it may be set back.
func (m *Machine) DeathCount() uint64 { return m.died }

// Awaits says whether one of the first so many entries (see DeathCount) still waits to be routed.
func (m *Machine) Awaits(died uint64) bool {
	m.skipBuried()
	return len(m.dying) > 0 && m.died-uint64(len(m.dying)) < died
}

// Dead says whether the entry is there and dead.
func (m *Machine) Dead(id ID) bool {
	p, i := m.find(id)
	return p != nil && (p.state(i) == stateDying || p.state(i) == stateHeld)
}

// Bury removes a dead entry that was routed, or whose routing failed for good.
// The references are the caller's. ok is false if the entry is not there any
// more or does not wait for routing.
func (m *Machine) Bury(id ID) (body, history message.Ref, ok bool) {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateDying && p.state(i) != stateHeld {
		return 0, 0, false
	}
	body, history, _ = m.forget(id, p, i)
	return body, history, true
}

// Hold keeps a dead entry until its targets take it (DL-13.3). It says whether
// the entry was there and not held before.
func (m *Machine) Hold(id ID) bool {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateDying {
		return false
	}
	m.setState(id, p, i, stateHeld)
	if s := m.peekSide(p, i); s == nil || s.reason == 0 {
		s = m.sideOf(p, i)
		s.reason = deadletter.Expired
		if u := m.unread[id]; u.order != 0 {
			s.diedAt = u.at
		} else if k := slices.IndexFunc(m.dying, func(x dying) bool { return x.id == id }); k >= 0 { // mostly among the first
			s.diedAt = m.dying[k].at
		}
	}
	delete(m.unread, id)
	return true
}

// Tell notes that the journal tells of a death that waits to be routed: it is held in what is saved of the queue, as it is
// to be held after a crash. It says what is to be told, if there is anything: what has expired is found again.
func (m *Machine) Tell(id ID) (d Death, ok bool) {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateDying || !p.logged(i) {
		return Death{}, false
	}
	s := m.peekSide(p, i)
	if s == nil || s.reason == 0 {
		return Death{}, false
	}
	if !s.told { // it is saved in another state from now on
		m.touchEntry(p, i)
		p.altered()
		m.sideOf(p, i).told = true
	}
	return m.death(id, p, i), true
}

// Held returns the held entry of id.
func (m *Machine) Held(id ID) (Death, bool) {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateHeld {
		return Death{}, false
	}
	return m.death(id, p, i), true
}

// HeldFrom appends the held entries from the cursor on to out, by level and number, as
// RangeHeld shows them. It looks at no more than about limit entries, a page on disk without any held
// ones counting as one, and says whether that was all.
func (m *Machine) HeldFrom(from SaveCursor, limit int, out []Death) (held []Death, next SaveCursor, done bool) {
	for ; from.level < len(m.lanes); from.level, from.number = from.level+1, 0 {
		l := m.lanes[from.level]
		if l == nil {
			continue
		}
		k, _ := l.search(from.number)
		for ; k < len(l.slots); k++ {
			if limit <= 0 {
				from.number = l.slots[k].number
				return out, from, false
			}
			limit--
			p, whole := l.slots[k].page, !l.slots[k].plain
			if whole {
				p = m.look(l, from.level, k)
			}
			if p == nil {
				continue
			}
			limit -= pageSize
			for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
				if p.state(i) == stateHeld {
					out = append(out, m.death(makeID(from.level, p.number*pageSize+uint64(i)), p, i))
				}
			}
			if whole {
				m.unlook(l, k, p)
			}
		}
	}
	return out, from, true
}

// RangeHeld calls f for each held entry, oldest first within its level, until f
// returns false. f may give the entry to Bury.
func (m *Machine) RangeHeld(f func(d Death) bool) {
	if m.n.Held == 0 {
		return
	}
	var held []Death
	m.each(true, func(id ID, p *page, i uint) {
		if p.state(i) == stateHeld {
			held = append(held, m.death(id, p, i))
		}
	})
	for _, d := range held {
		if !f(d) {
			return
		}
	}
}

// each calls f for every live entry, by level and number; with special, those
// are left out that are in the copy of a page only and with others in stateReady
// there. f must not change the queue, and p is valid during the call only.
func (m *Machine) each(special bool, f func(id ID, p *page, i uint)) {
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		for k := range l.slots {
			p := l.slots[k].page
			whole := !special || !l.slots[k].plain
			if whole {
				p = m.look(l, level, k)
			}
			if p == nil {
				continue
			}
			for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
				f(makeID(level, p.number*pageSize+uint64(i)), p, i)
			}
			if whole {
				m.unlook(l, k, p)
			}
		}
	}
}
