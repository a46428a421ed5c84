package queue

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// Death is an entry that waits to be routed.
type Death struct {
	ID      ID
	Content // the references are the machine's
	Reason  deadletter.Reason
	At      int64     // when it died, in milliseconds since 1970
	By      *Consumer // who rejected or returned it last, nil if nobody did
	Stays   bool      // the body was on disk only until it was read for the routing, and is there for good
}

// die ends an entry's life in this queue. With a dead-letter exchange in force
// it waits to be routed; without, it is gone (DL-1.8).
func (m *Machine) die(now int64, id ID, p index.Place, reason deadletter.Reason, by *Consumer) {
	m.sink.Died(reason, m.settings.DeadLetter)
	if !m.settings.DeadLetter {
		m.Remove(id, p)
		return
	}
	m.SetState(id, p, index.Dying)
	// What expires needs no side row until it is held, where copies of pages need not tell all:
	// in a long queue, in all of whose pages something dies, those rows would be a column more.
	if reason != deadletter.Expired || by != nil || m.pages.Exact || m.Side(p) != nil {
		s := m.SideOf(p)
		s.Reason, s.DiedAt, s.By = reason, now, by
	}
	m.dying = append(m.dying, dying{id, now})
	m.died++
}

// dieOf is die of an attempt, which was counted as failed if so it is said.
func (m *Machine) dieOf(now int64, id ID, p index.Place, reason deadletter.Reason, by *Consumer, failed bool) {
	m.die(now, id, p, reason, by)
	if failed && m.settings.DeadLetter { // else the entry is gone
		m.SideOf(p).Failed = true
	}
}

// dying is an entry in index.Dying. Its side row, if it has one with a reason, tells when it
// died as well; one that has none has expired.
type dying struct {
	id ID
	at int64 // when it died; 0: the row tells
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
		if k%index.Glances == 0 {
			var ids [index.Glances]ID
			n := min(len(m.dying)-k, len(ids))
			for j := range n {
				ids[j] = m.dying[k+j].id
			}
			m.GlanceAt(ids[:n])
		}
		if p := m.waits(x.id); p.There() {
			out = append(out, m.deathAt(x.id, p, x.at))
			limit--
		}
	}
	return out
}

// RangeDeaths calls f for each entry that died and is not held, those given to Spoil first.
func (m *Machine) RangeDeaths(f func(d Death)) {
	m.skipBuried()
	for id, u := range m.unread {
		if p := m.Find(id); p.There() {
			f(m.deathAt(id, p, u.at))
		}
	}
	for _, x := range m.dying {
		if p := m.waits(x.id); p.There() {
			f(m.deathAt(x.id, p, x.at))
		}
	}
}

// waits finds an entry that waits to be routed; the page is nil if it does not.
func (m *Machine) waits(id ID) index.Place {
	if p := m.Find(id); p.In(index.Dying) {
		if _, spoilt := m.unread[id]; !spoilt {
			return p
		}
	}
	return index.Place{}
}

// Waiting is how many deaths wait to be routed, some of which may be gone.
func (m *Machine) Waiting() int { return len(m.dying) }

// Spoil leaves a death out of Deaths from now on: its record cannot be read. The entry stays in the queue,
// dead and counted. So what died after it is not kept behind it in dying, where nobody would take it out.
func (m *Machine) Spoil(id ID) {
	if p := m.waits(id); !p.There() {
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
		if p := m.waits(x.id); p.There() {
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
func (m *Machine) deathAt(id ID, p index.Place, at int64) Death {
	d := m.death(id, p)
	if d.At == 0 {
		d.At = at
	}
	return d
}

func (m *Machine) death(id ID, p index.Place) Death {
	reason, at, by := m.DiedOf(p)
	d := Death{ID: id, Reason: reason, At: at}
	d.By, _ = by.(*Consumer)
	p.Read(&d.Content)
	return d
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
	return m.Find(id).Dead()
}

// Bury removes a dead entry that was routed, or whose routing failed for good.
// The references are the caller's. ok is false if the entry is not there any
// more or does not wait for routing.
func (m *Machine) Bury(id ID) (body, history message.Ref, ok bool) {
	p := m.Find(id)
	if !p.Dead() {
		return 0, 0, false
	}
	delete(m.unread, id)
	body, history, _ = m.Forget(id, p)
	return body, history, true
}

// Hold keeps a dead entry until its targets take it (DL-13.3). It says whether
// the entry was there and not held before.
func (m *Machine) Hold(id ID) bool {
	p := m.Find(id)
	if !p.In(index.Dying) {
		return false
	}
	m.SetState(id, p, index.Held)
	if s := m.Side(p); s == nil || s.Reason == 0 {
		s = m.SideOf(p)
		s.Reason = deadletter.Expired
		if u := m.unread[id]; u.order != 0 {
			s.DiedAt = u.at
		} else if k := slices.IndexFunc(m.dying, func(x dying) bool { return x.id == id }); k >= 0 { // mostly among the first
			s.DiedAt = m.dying[k].at
		}
	}
	delete(m.unread, id)
	return true
}

// Tell notes that the journal tells of a death that waits to be routed: it is held in what is saved of the queue, as it is
// to be held after a crash. It says what is to be told, if there is anything: what has expired is found again.
func (m *Machine) Tell(id ID) (d Death, ok bool) {
	p := m.Find(id)
	if !p.In(index.Dying) || !p.Logged() {
		return Death{}, false
	}
	s := m.Side(p)
	if s == nil || s.Reason == 0 {
		return Death{}, false
	}
	if !s.Told { // it is saved in another state from now on
		m.SetTold(p)
	}
	return m.death(id, p), true
}

// Held returns the held entry of id.
func (m *Machine) Held(id ID) (Death, bool) {
	p := m.Find(id)
	if !p.In(index.Held) {
		return Death{}, false
	}
	return m.death(id, p), true
}

// HeldFrom appends the held entries from the cursor on to out, by level and number, as
// RangeHeld shows them. It looks at no more than about limit entries, a page on disk without any held
// ones counting as one, and says whether that was all.
func (m *Machine) HeldFrom(from index.SaveCursor, limit int, out []Death) (held []Death, next index.SaveCursor, done bool) {
	next, done = m.RangeFrom(from, limit, func(id ID, p index.Place) {
		if p.State() == index.Held {
			out = append(out, m.death(id, p))
		}
	})
	return out, next, done
}

// RangeHeld calls f for each held entry, oldest first within its level, until f
// returns false. f may give the entry to Bury.
func (m *Machine) RangeHeld(f func(d Death) bool) {
	if m.Count.Held == 0 {
		return
	}
	var held []Death
	m.Each(true, func(id ID, p index.Place) {
		if p.State() == index.Held {
			held = append(held, m.death(id, p))
		}
	})
	for _, d := range held {
		if !f(d) {
			return
		}
	}
}

// Glance is to be called before many deaths are given to Bury or Hold, with the next of
// them, of which it takes as many as are worth it at a time.
func (m *Machine) Glance(deaths []Death) (looked int) {
	var ids [index.Glances]ID
	looked = min(len(deaths), len(ids))
	for k := range looked {
		ids[k] = deaths[k].ID
	}
	m.GlanceAt(ids[:looked])
	return looked
}
