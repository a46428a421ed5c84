package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue/index"
)

// Views of entries: these functions change nothing.

// View is an entry as browsing and the management API show it.
type View struct {
	ID        ID
	Content         // the references are the machine's
	Due       int64 // when its TTL ends, 0 = never
	NotBefore int64 // when its wait ends, 0 = it does not wait
	Out       bool
	Returned  bool              // it came back and is delivered before all others (BR-9.13)
	Offered   bool              // it waits for other queues to take it (offer.go)
	Dead      bool              // dying or held
	Held      deadletter.Reason // 0 unless it is held
	DiedAt    int64
}

// Browse is index.Browse with Views.
func (m *Machine) Browse(after Cursor, limit int, f func(View) bool) (next Cursor, done bool) {
	return m.Index.Browse(after, limit, func(id ID, p index.Place) bool { return f(m.view(id, p)) })
}

func (m *Machine) view(id ID, p index.Place) View {
	v := View{ID: id, Due: m.Moment(p)}
	p.Read(&v.Content)
	switch p.State() {
	case index.Out:
		v.Out = true
	case index.Returned:
		v.Returned = true
	case index.Delayed:
		v.NotBefore, v.Due = v.Due, m.TTL(p)
	case index.Dying:
		v.Dead = true
	case index.Offered:
		v.Offered = true
	case index.Held:
		v.Dead = true
		v.Held, v.DiedAt, _ = m.DiedOf(p)
	}
	return v
}

// View returns one entry.
func (m *Machine) View(id ID) (View, bool) {
	p := m.Find(id)
	if !p.There() {
		return View{}, false
	}
	return m.view(id, p), true
}

// Restored is the entry in the form that Restore takes, without its references.
func (v *View) Restored() Restored {
	r := Restored{NotBefore: v.NotBefore, Out: v.Out, Returned: v.Returned, Offered: v.Offered, Held: v.Held, DiedAt: v.DiedAt}
	r.Counts, r.Redelivered, r.Due = v.Counts, v.Redelivered, v.Due
	return r
}

// Due is when the entry's time in this queue ends, 0 = never.
func (m *Machine) Due(id ID) int64 {
	p := m.Find(id)
	switch {
	case !p.There():
		return 0
	case p.State() == index.Delayed:
		return m.TTL(p)
	}
	return m.Moment(p)
}

// NotBefore is when the entry's wait ends, 0 if it does not wait.
func (m *Machine) NotBefore(id ID) int64 {
	if p := m.Find(id); p.In(index.Delayed) {
		return m.Moment(p)
	}
	return 0
}

// Size is the entry's size as length limits count it, 0 if it is not there.
func (m *Machine) Size(id ID) uint32 {
	if p := m.Find(id); p.There() {
		return p.Size()
	}
	return 0
}
