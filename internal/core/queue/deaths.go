package queue

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// Death is a dead entry, which waits to be routed or is held.
type Death struct {
	ID      ID
	Content // the references are the machine's
	Reason  deadletter.Reason
	At      int64     // when it died, in milliseconds since 1970
	By      *Consumer // who rejected or returned it last, nil if no consumer did
	Noted   bool      // if its history has a note, it is of this death
	Stays   bool      // the body was only on disk until it was read for routing, and its place on disk lasts (no scratch file)
}

// die ends the life of an entry in this queue. If a dead-letter exchange is in force, or the lost and found takes it, the
// entry waits to be routed; if not, it is removed (DL-1.8).
func (m *Machine) die(now int64, id ID, p index.Place, reason deadletter.Reason, by *Consumer) {
	routes := m.Routes(reason)
	m.sink.Died(reason, routes)
	if !routes {
		m.Remove(id, p)
		return
	}
	m.SetState(id, p, index.Dying)
	// An expired entry gets a side row only when it is held, unless copies of pages have it as dying. In a long queue
	// something dies in every page, and a row for each death would cost as much memory as another column.
	if reason != deadletter.Expired || by != nil || m.pages.Log.SavesDying() || m.Side(p) != nil {
		s := m.SideOf(p)
		s.Reason, s.DiedAt, s.By = reason, now, by
	}
	m.dying = append(m.dying, dying{id, now})
	m.died++
}

// Routes says whether what dies for this reason waits to be routed.
func (m *Machine) Routes(reason deadletter.Reason) bool {
	return m.settings.DeadLetter || m.settings.LostAndFound && reason == deadletter.DeliveryLimit
}

// dieOf is die for a delivery attempt that ended; failed says whether the attempt was counted as failed.
func (m *Machine) dieOf(now int64, id ID, p index.Place, reason deadletter.Reason, by *Consumer, failed bool) {
	m.die(now, id, p, reason, by)
	if failed && m.Routes(reason) { // else the entry is gone
		m.SideOf(p).Failed = true
	}
}

// dying names an entry in index.Dying. If the entry has a side row with a reason, the row also has the moment of its
// death. An entry without such a row has expired.
type dying struct {
	id ID
	at int64 // when it died; 0: the row has the moment
}

// unread is a death that cannot be routed for now, because its record cannot be read (Spoil).
type unread struct {
	at    int64  // when it died, as in type dying
	order uint64 // its number among all deaths (Machine.died), once it has left Machine.dying; 0 before
}

// Deaths appends the deaths that wait to be routed to out, at most limit of them, in order (DL-1.9). Each waits until
// it is given to Bury, Hold or Spoil.
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

// RangeDeaths calls f for each entry that died and is not held, beginning with those given to Spoil.
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

// waits returns an entry that waits to be routed; for any other ID the place is not There.
func (m *Machine) waits(id ID) index.Place {
	if p := m.Find(id); p.In(index.Dying) {
		if _, spoilt := m.unread[id]; !spoilt {
			return p
		}
	}
	return index.Place{}
}

// Waiting is the number of deaths that wait to be routed. Some of them may be gone.
func (m *Machine) Waiting() int { return len(m.dying) }

// Spoil takes a death out of Deaths because its record cannot be read. The entry stays in the queue, dead and
// counted. It leaves Machine.dying when it reaches the front, so that later deaths do not pile up behind an entry
// that is never routed.
func (m *Machine) Spoil(id ID) {
	if p := m.waits(id); !p.There() {
		return
	}
	if m.unread == nil {
		m.unread = map[ID]unread{}
	}
	m.unread[id] = unread{}
}

// skipBuried drops entries that no longer wait from the front of dying. It notes the place of spoilt ones in the
// order of deaths.
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

// dyingIDs returns the entries that died and are not held, in the order of their deaths. Some of them may be gone.
func (m *Machine) dyingIDs() []ID {
	ids := make([]ID, 0, len(m.unread)+len(m.dying))
	for id, u := range m.unread {
		if u.order != 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int { return cmp.Compare(m.unread[a].order, m.unread[b].order) })
	for _, x := range m.dying { // all later than the unread ones
		ids = append(ids, x.id)
	}
	return ids
}

// deathAt is death for an entry that died at the given moment, which counts if its side row has none.
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
	// After a restart nobody knows who rejected it, and a note is of this death: no other delivery has ended since.
	d.Noted = d.By == nil || m.Side(p).Noted
	p.Read(&d.Content)
	return d
}

// Notable returns an entry that a consumer has just let die, by a rejection or too many failures, and that waits to be routed.
func (m *Machine) Notable(id ID) (d Death, ok bool) {
	p := m.Find(id)
	if !p.In(index.Dying) {
		return Death{}, false
	}
	d = m.death(id, p)
	return d, d.Reason.Counted() != deadletter.Expired
}

// PutNote gives a notable entry another history, which has a note of its death. The reference to the one before becomes the
// caller's.
func (m *Machine) PutNote(id ID, history message.Ref) (before message.Ref) {
	p := m.Find(id)
	m.SideOf(p).Noted = true
	return m.SetHistory(id, p, history)
}

// HasDeaths says whether Deaths would find any.
func (m *Machine) HasDeaths() bool {
	if len(m.dying) == 0 {
		return false
	}
	m.skipBuried()
	return len(m.dying) > 0
}

// DeathCount is how many entries have begun to wait for routing since the machine was loaded. A caller that remembers
// it can later ask Awaits for the deaths before; a moment would not serve, because a clock may be set back.
func (m *Machine) DeathCount() uint64 { return m.died }

// Awaits says whether one of the first died entries (see DeathCount) still waits to be routed.
func (m *Machine) Awaits(died uint64) bool {
	m.skipBuried()
	return len(m.dying) > 0 && m.died-uint64(len(m.dying)) < died
}

// Dead says whether the entry is there and dead.
func (m *Machine) Dead(id ID) bool {
	return m.Find(id).Dead()
}

// Bury removes a dead entry that was routed, or whose routing has failed for good. The references are the caller's.
// ok is false if there is no such dead entry.
func (m *Machine) Bury(id ID) (body, history message.Ref, ok bool) {
	p := m.Find(id)
	if !p.Dead() {
		return 0, 0, false
	}
	delete(m.unread, id)
	body, history, _ = m.Forget(id, p)
	return body, history, true
}

// Hold keeps a dead entry until its targets have taken it (DL-13.3). It says whether the entry was there and not held
// before.
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
		} else if k := slices.IndexFunc(m.dying, func(x dying) bool { return x.id == id }); k >= 0 { // it is mostly among the first
			s.DiedAt = m.dying[k].at
		}
	}
	delete(m.unread, id)
	return true
}

// Tell notes that the journal records the death of an entry that waits to be routed. From now on the saved queue
// shows the entry as held, which is how recovery finds it after a crash. ok is false if the journal need not record
// it: an expired entry is found expired again.
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

// HeldFrom appends held entries to out, beginning at the cursor, by level and number as RangeHeld does. It looks at
// about limit entries; a page on disk without held entries counts as one. done says that it has reached the end.
func (m *Machine) HeldFrom(from index.SaveCursor, limit int, out []Death) (held []Death, next index.SaveCursor, done bool) {
	next, done = m.RangeFrom(from, limit, func(id ID, p index.Place) {
		if p.State() == index.Held {
			out = append(out, m.death(id, p))
		}
	})
	return out, next, done
}

// RangeHeld calls f for each held entry, oldest first within its level, until f returns false. f may give the entry
// to Bury.
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

// Glance prefetches the next deaths of a list that will be given to Bury or Hold (see index.Glances). It returns how
// many it has looked at; the caller calls it again after these.
func (m *Machine) Glance(deaths []Death) (looked int) {
	var ids [index.Glances]ID
	looked = min(len(deaths), len(ids))
	for k := range looked {
		ids[k] = deaths[k].ID
	}
	m.GlanceAt(ids[:looked])
	return looked
}
