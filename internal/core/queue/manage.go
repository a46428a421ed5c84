package queue

import (
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"

	"bartleby.mq/internal/core/queue/index"
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
	m.set(s)
	m.refusing = false
}

// Purge is PurgeSome of all at once.
func (m *Machine) Purge(told func(first ID, n int)) int {
	purged, _ := m.PurgeSome(&index.Purging{}, math.MaxInt, told)
	return purged
}

// PurgeSome removes messages that are ready, and on quorum queues those that
// are delayed or held (DL-2.1), and returns their number. How it goes on and what it costs, index.Purge tells.
func (m *Machine) PurgeSome(to *index.Purging, limit int, told func(first ID, n int)) (purged int, more bool) {
	var of index.States = 1<<index.Ready | 1<<index.Returned
	if m.config.Type == Quorum {
		of |= 1<<index.Delayed | 1<<index.Held
	}
	before := m.Count.Ready + m.Count.Delayed + m.Count.Held
	more = m.Index.Purge(to, limit, of, told)
	return before - (m.Count.Ready + m.Count.Delayed + m.Count.Held), more
}

// Close empties the queue for its deletion and returns the consumers it had. It asks nothing of the disk.
func (m *Machine) Close() []*Consumer {
	m.Index.Close()
	m.dying, m.unread, m.watch = nil, nil, never
	return m.cs.clear()
}

// View is an entry as those see it who only look.
type View struct {
	ID        ID
	Content         // the references are the machine's
	Due       int64 // when its TTL is over, 0 = never
	NotBefore int64 // when its wait is over, 0 = it does not wait
	Out       bool
	Returned  bool              // it came back and goes before all others (BR-9.13)
	Offered   bool              // it waits for whether it is taken elsewhere
	Dead      bool              // dying or held
	Held      deadletter.Reason // 0 unless it is held
	DiedAt    int64
}

// Browse is index.Browse, of what is shown of an entry.
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

// View shows one entry.
func (m *Machine) View(id ID) (View, bool) {
	p := m.Find(id)
	if !p.There() {
		return View{}, false
	}
	return m.view(id, p), true
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
	p := m.Find(id)
	if !p.Ready() {
		return 0, 0, false, false
	}
	body, history, logged = m.Forget(id, p)
	return body, history, logged, true
}

// Due is the moment at which the entry's time here is over, 0 if it never is.
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

// NotBefore is the moment until which the entry waits, 0 if it does not.
func (m *Machine) NotBefore(id ID) int64 {
	if p := m.Find(id); p.In(index.Delayed) {
		return m.Moment(p)
	}
	return 0
}

// Size is the entry's bytes as length limits count them, 0 if it is not there.
func (m *Machine) Size(id ID) uint32 {
	if p := m.Find(id); p.There() {
		return p.Size()
	}
	return 0
}

// Discard removes an entry whose record is lost, whatever it waits for. out says that c
// has it, or nil by a get; one that is out at somebody else stays. It says whether the
// entry was there and went.
func (m *Machine) Discard(id ID, c *Consumer, out bool) bool {
	var p index.Place
	if out {
		p = m.taken(id, c)
	}
	if !p.There() {
		if p = m.Find(id); !p.There() || p.State() == index.Out {
			return false
		}
	}
	delete(m.unread, id)
	m.Remove(id, p)
	return true
}
