package partition

import (
	"bytes"
	"strconv"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/wire/amqp091"
)

// plan says where an entry goes, and with what history.
type plan struct {
	history message.Ref        // the new history; the plan has a reference
	stored  []byte             // its bytes
	said    deadletter.History // parsed, if read is set: see story
	read    bool
	targets []*Queue // in the same log
	remote  []target // in other logs
	outcome deadletter.Outcome
}

// steps is what the plan costs a hold (see sliceSteps).
func (p *plan) steps() int { return 1 + len(p.targets) + len(p.remote) }

// rests says whether the message no longer has a TTL in the target (DL-22.8). REQUIRES: the target is held.
func (p *plan) rests(t *Queue) bool {
	rules := t.m.Rules()
	if rules.Profile != deadletter.ApsaraMQ {
		return false
	}
	return rules.Rests(p.story(), t.Name)
}

// story returns the new history, parsed.
func (p *plan) story() *deadletter.History {
	if !p.read {
		// The bytes are our own. If they cannot be parsed, the history is empty.
		p.said, _ = deadletter.Parse(p.stored)
		p.read = true
	}
	return &p.said
}

// split keeps the targets in the log of the given partition and makes the others remote.
func (p *plan) split(from *Partition) {
	log := from.outboxes.log
	kept := p.targets[:0:0]
	for _, t := range p.targets {
		if to := t.part.outboxes.log; to == log {
			kept = append(kept, t)
		} else {
			p.remote = append(p.remote, target{to, t.Incarnation})
		}
	}
	if len(p.remote) > 0 {
		p.targets = kept
	}
}

// deathPlan is the plan for a dead entry, with what it was made from. Entries that agree in that share it.
type deathPlan struct {
	plan
	prev       message.Ref
	reason     deadletter.Reason
	at         int64
	by         *queue.Consumer
	deliveries uint32
	exchange   []byte
	key        []byte
	expiration int64
	shareable  bool
}

// plan decides what happens to each death, by the queue's settings when the deaths were picked: the dead-letter
// exchange may have been removed since they died. It leaves out deaths that wait for a queue that is being made, and all
// that follow. waits says that nothing is left of the slice: when the queue is there, routing goes on by itself.
// REQUIRES: no partition is locked.
func (m *deadmove) plan() (waits bool) {
	for i := range m.deaths {
		d := &m.deaths[i]
		rec := message.Record(m.n.bodies.Bytes(d.Body))
		expiration := int64(-1)
		if rec.HasExpiration() && (d.History == 0 || deathstore.KeepsTTL(m.n.bodies, d.History)) {
			expiration = expirationOf(rec)
		}
		var p *deathPlan
		if last := m.last; last != nil && !m.refused[d.ID] && last.agrees(d, rec, m.n.DeadLettering.TrustHistories) {
			if m.q.config.Delays || last.at == d.At && last.expiration == expiration {
				m.plans = append(m.plans, last)
				continue
			}
			p = m.planAlike(d, expiration)
		}
		switch {
		case p != nil:
		case m.q.config.Delays:
			p = m.planRelease(d, rec)
		default:
			p = m.planDeath(d, rec, expiration)
		}
		if p == nil {
			m.cut(i)
			return i == 0
		}
		m.plans, m.last = append(m.plans, p), p
	}
	return false
}

// cut leaves out the deaths from the given one on. They stay in their queue as they are.
func (m *deadmove) cut(from int) {
	for i := range m.deaths[from:] {
		d := &m.deaths[from+i]
		m.n.bodies.Release(d.Body)
		m.n.bodies.Release(d.History)
	}
	clear(m.deaths[from:])
	m.deaths = m.deaths[:from]
}

// refuge finds a place for a death that leads nowhere, and puts it into the plan. It says whether the death waits for a
// queue that is being made.
func (m *deadmove) refuge(p *deathPlan, h *deadletter.History) (waits bool) {
	n, q, s := m.n, m.q, &m.settings // m is used for other queues when ready is called
	lost := s.LostAndFound && !s.AtLeastOnce && (p.outcome != deadletter.NoExchange || p.reason == deadletter.DeliveryLimit)
	if n.Refuge == nil || !lost && !s.DeadLetter {
		return false
	}
	var ready func()
	switch {
	case m.again:
		ready = func() { n.retryHeldSoon(q) }
	case len(m.plans) == 0: // else the deaths before go first, and then this one is asked for again
		ready = func() { n.leaveDead([]*Queue{q}) }
	}
	t, waits := n.Refuge.Find(q, p.outcome, lost, h, ready)
	if t != nil && !waits {
		h.Lose(p.outcome, t.Name)
		p.targets, p.outcome = append(p.targets[:0], t), deadletter.LostAndFound
	}
	return waits
}

// agrees says whether the plan also suits another death, apart from the moment of death and the message's own TTL.
// trust says that histories from clients count.
func (p *deathPlan) agrees(d *queue.Death, rec message.Record, trust bool) bool {
	if !p.shareable || p.prev != d.History || p.reason != d.Reason || p.by != d.By || p.deliveries != d.Counts.Deliveries || rec.HasCC() || len(rec.BCC()) > 0 {
		return false
	}
	if d.History != 0 { // the history says where it was sent
		return true
	}
	return !(trust && rec.HasHeaders()) && bytes.Equal(p.exchange, rec.Exchange()) && bytes.Equal(p.key, rec.Key())
}

// planAlike makes the plan for a first death that differs from the last one only by its moment and its message's own
// TTL. It returns nil if it cannot. REQUIRES: m.last is shareable and agrees with d.
func (m *deadmove) planAlike(d *queue.Death, expiration int64) *deathPlan {
	last := m.last
	if d.History != 0 {
		return nil
	}
	if m.alike == nil {
		m.alike = make([]deathPlan, 0, sliceLimit)
	}
	if len(m.alike) == cap(m.alike) {
		return nil // growing would move the plans that others point to
	}
	begin := len(m.stored)
	var own int
	var ok bool
	if m.stored, own, ok = deadletter.DiedAlike(m.stored, last.stored, d.At, expiration); !ok {
		return nil
	}
	m.alike = append(m.alike, *last)
	p := &m.alike[len(m.alike)-1]
	p.at, p.expiration, p.said, p.read = d.At, expiration, deadletter.History{}, false
	p.stored = m.stored[begin:len(m.stored):len(m.stored)]
	p.history = deathstore.KeepLike(m.n.bodies, last.history, p.stored, own)
	return p
}

// planDeath returns nil if the death waits for a queue that is being made.
func (m *deadmove) planDeath(d *queue.Death, rec message.Record, expiration int64) *deathPlan {
	n, dead, settings := m.n, m.dead, &m.settings
	trusts := n.DeadLettering.TrustHistories && rec.HasHeaders()
	p := &deathPlan{
		prev: d.History, reason: d.Reason, at: d.At, by: d.By, deliveries: d.Counts.Deliveries,
		exchange: rec.Exchange(), key: rec.Key(), expiration: expiration,
	}
	var h deadletter.History
	if d.History != 0 {
		// The bytes are our own. If they cannot be parsed, the history begins anew; that is better than losing the
		// message.
		h, _ = deadletter.Parse(deathstore.Brief(n.bodies, d.History)) // the last cause goes, whatever its detail
		if h.Note != nil {
			h, _ = deadletter.Parse(n.historyBytes(d.History))
		}
	}
	note := h.Note
	if note != nil && (!d.Noted || d.Reason.Counted() == deadletter.Expired) {
		note = nil // of an attempt that a restart has undone
	}
	first := d.History == 0 || h.Fresh() && (h.Note != nil || h.Imported || h.Annotations != "")
	if trusts && first {
		if props, err := amqp091.ParseProps(rec.Properties()); err == nil {
			before := h
			h, h.Imported = deadletter.Carried(props.Headers) // DL-7.10
			h.Imported, h.Annotations = h.Imported || before.Imported, before.Annotations
		}
	}
	if note != nil && note.HasKey {
		dead.Key, dead.HasKey = note.Key, true
	}
	e := deadletter.Event{
		Queue: m.q.Name, Reason: d.Reason, Time: d.At, Expiration: expiration,
		NextExchange: dead.Exchange, KeysReplaced: h.KeysReplaced || dead.HasKey, Rules: &settings.Rules,
	}
	if first || len(h.Keys) == 0 {
		e.Exchange, e.Keys = string(rec.Exchange()), keysOf(rec)
	} else {
		e.Exchange, e.Keys = h.Exchange, h.Keys // where the last death or replay sent it
	}
	e.NextKeys = e.Keys
	if dead.HasKey {
		e.NextKeys = []string{dead.Key}
	}
	if note != nil {
		e.Cause = note.Cause
	} else if d.By != nil {
		if c, ok := d.By.Target.(Culprit); ok {
			e.Cause = c.Cause()
		}
	}
	e.Cause.DeliveryCount = d.Counts.Deliveries
	h.Record(&e)
	h.StripCC = h.StripCC || n.DeadLettering.StripCC && dead.HasKey
	routes := e.NextKeys
	if !e.KeysReplaced {
		routes = appendShortStrings(routes[:len(routes):len(routes)], rec.BCC())
	}
	var exists, byKeys bool
	refused := m.refused[d.ID]
	if settings.DeadLetter && !refused {
		p.targets, exists, byKeys = m.route.find(m, dead.Exchange, routes, rec, &h)
	}
	switch {
	case refused:
		p.outcome = deadletter.TargetRefused
	case !settings.DeadLetter:
		p.outcome = deadletter.NoExchange
	case !exists:
		p.outcome = deadletter.MissingExchange
	case len(p.targets) == 0:
		p.outcome = deadletter.NoRoute
	case d.Reason.Counted() != deadletter.Rejected && settings.Rules.CutCycles():
		kept := p.targets[:0]
		for _, t := range p.targets {
			if t.config.Delays || !h.ClosesCycle(t.Name) {
				kept = append(kept, t)
			}
		}
		if p.targets = kept; len(kept) == 0 {
			p.outcome = deadletter.Cycle
		}
	}
	if p.outcome != deadletter.Routed && m.refuge(p, &h) {
		return nil
	}
	stored := h.Append(nil)
	p.history, p.stored, p.said, p.read = deathstore.Keep(n.bodies, stored), stored, h, true
	p.split(m.q.part)
	p.shareable = byKeys && !rec.HasCC() && len(rec.BCC()) == 0 && !trusts && note == nil && !(first && d.History != 0) // such a history does not say where it was sent
	return p
}

// Culprit is a subscriber that can name its client, for the history of what it rejects. A note says all of it itself.
type Culprit interface {
	Cause() deadletter.Cause
}

// expirationOf is the message's own TTL in milliseconds, -1 if it has none. Its properties were checked when it was
// published.
func expirationOf(rec message.Record) int64 {
	p, err := amqp091.ParseProps(rec.Properties())
	if err != nil || len(p.Expiration) == 0 {
		return -1
	}
	v, err := strconv.ParseInt(string(p.Expiration), 10, 64)
	if err != nil {
		return -1
	}
	return min(max(v, -1), moment.Last)
}
