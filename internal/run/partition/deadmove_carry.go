package partition

import (
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
)

// carryOut carries the plans out and releases what was pinned. If more deaths wait, it picks the next slice in the
// same hold and returns true: that saves a hold. Otherwise routing ends here. After a retry the caller goes on by
// itself.
func (m *deadmove) carryOut(caused []*Queue) (more bool, _ []*Queue) {
	n, q := m.n, m.q
	m.parts = append(m.parts[:0], q.part)
	m.eachPlan(func(p *deathPlan) {
		for _, t := range p.targets {
			m.parts = append(m.parts, t.part)
		}
	})
	begin := func() *hold {
		h := n.lockInTurn(q.part, m.parts...)
		h.step = steps{FailDeathBeforeAppend, FailDeathAppended, FailDeathUnlocked}
		h.touch(q)
		return h
	}
	h := begin()
	if !m.again {
		q.part.lateDeaths = max(0, h.now-m.deaths[0].At)
	}
	glanced := 0
	for i := range m.deaths {
		d, p := &m.deaths[i], m.plans[i]
		if h.entries > 0 && h.entries+p.steps() > sliceSteps {
			caused = append(caused, n.finishHold(h)...)
			h = begin()
		}
		if q.gone {
			break
		}
		h.entries += p.steps()
		if i == glanced {
			glanced += q.m.Glance(m.deaths[i:])
		}
		c := carry{n: n, h: h, q: q, d: d, plan: &p.plan}
		if c.death(m.settings.AtLeastOnce) {
			n.Router.Dropped(q, d.Reason, p.outcome, message.Record(n.bodies.Bytes(d.Body)), p.story())
		}
		n.split(h)
	}
	more = true
	switch {
	case m.again:
	case q.gone || !q.m.HasDeaths():
		q.routing, more, q.part.lateDeaths = false, false, 0
	default:
		q.next = q.pick()
	}
	m.eachPlan(func(p *deathPlan) { h.dropped = append(h.dropped, p.history) })
	for i := range m.deaths {
		h.drop(m.deaths[i].Body, m.deaths[i].History)
	}
	return more, append(caused, n.finishHold(h)...)
}

// eachPlan calls f once for each plan. Deaths with the same plan are neighbours.
func (m *deadmove) eachPlan(f func(*deathPlan)) {
	var last *deathPlan
	for _, p := range m.plans {
		if p != last {
			f(p)
			last = p
		}
	}
}

// A carry takes one entry to its targets: a dead one (death), or one that an operator moves (move). It works in the
// local log, where a frame records what it did, and in groups, where a command has caused it. REQUIRES: its queue and
// the targets in the same log are held.
type carry struct {
	n    *Node
	h    *hold
	q    *Queue
	d    *queue.Death // in a group its record may be on disk
	plan *plan
	// The counters it has at its targets.
	counts queue.Counts
}

// death moves a dead entry into its targets. It says whether it was dropped because there are none.
func (c *carry) death(atLeastOnce bool) (dropped bool) {
	q, d, p := c.q, c.d, c.plan
	if !q.m.Dead(d.ID) {
		delete(q.refused, d.ID)
		return false // purged while its targets were found
	}
	if !atLeastOnce && c.awaited() {
		return false
	}
	if q.part.group == nil && slices.ContainsFunc(p.targets, func(t *Queue) bool { return t.gone }) {
		// A target was deleted meanwhile, and the store may not have the deletion yet: after a crash the queue would
		// be back without the message. So the death is routed again, and that waits for the store. In a group a
		// deletion is stored before it is applied.
		return false
	}
	if !c.n.DeadLettering.ResetCounts && !q.m.Rules().ResetCounts {
		c.counts.Deliveries = d.Counts.Deliveries
	}
	how := forced
	if atLeastOnce {
		how = enqueued
	}
	refused := c.enter(how)
	sent := c.send(atLeastOnce)
	if refused > 0 && len(c.h.entered) == 0 && sent == 0 && !atLeastOnce && c.seeksRefuge() {
		return false
	}
	dropped = c.end(atLeastOnce, refused, sent)
	c.h.flow()
	return dropped
}

// seeksRefuge says whether a death that every target refuses is routed again, to the lost and found. In a group that does
// not happen: its own queues refuse no dead letter.
func (c *carry) seeksRefuge() bool {
	q, id := c.q, c.d.ID
	if q.part.group != nil || c.n.Refuge == nil || !q.m.Settings().LostAndFound || q.refused[id] || len(q.waiting.taken[id]) > 0 {
		return false
	}
	if q.refused == nil {
		q.refused = map[queue.ID]bool{}
	}
	q.refused[id] = true
	return true
}

// awaited says whether targets in other logs were asked to take the entry while it was held, before at-least-once was
// switched off. Their answers come first: an entry that a target takes must not be sent to it again, and one that it
// refuses would be lost. If the plan has targets that were not asked, the last answer does not bury the entry, and it
// is retried.
func (c *carry) awaited() bool {
	w, id := &c.q.waiting, c.d.ID
	asked := w.asked[id]
	if len(asked) == 0 {
		return false
	}
	known := func(target uint64) bool { return asked.has(target) || w.taken[id].has(target) }
	w.note(id, slices.ContainsFunc(c.plan.remote, func(t target) bool { return !known(t.queue) }) ||
		slices.ContainsFunc(c.plan.targets, func(t *Queue) bool { return !known(t.Incarnation) }))
	return true
}

// enter lets the entry into the targets in this log that do not have it. It returns how many have refused it.
func (c *carry) enter(how entrance) (refused int) {
	c.h.entered = c.h.entered[:0]
	rec, priority := c.record()
	in := arrival{
		entry: queue.Entry{Priority: priority, TTL: c.plan.ttl(rec), Content: queue.Content{
			Body: c.d.Body, History: c.plan.history, Counts: c.counts, Size: c.d.Size, Logged: true, Redelivered: c.counts.Deliveries > 0,
		}},
		rec: rec, how: how, stays: c.d.Stays,
	}
	var taken targetSet // for a death
	if how != imposed {
		taken = c.q.waiting.taken[c.d.ID]
	}
	for _, t := range c.plan.targets {
		if t.gone || taken.has(t.Incarnation) { // a queue that is gone: only in a group
			continue
		}
		in.entry.Rests = how != imposed && c.plan.rests(t)
		if c.n.enter(c.h, t, &in) == queue.Refused {
			refused++
		}
	}
	return refused
}

// record returns the record of the entry and its priority. In a group the record may be on disk and is not read: all
// queues there count sizes alike, and the level is the priority.
func (c *carry) record() (rec message.Record, priority int) {
	if c.q.part.group != nil {
		return nil, c.d.ID.Lane()
	}
	rec = message.Record(c.n.bodies.Bytes(c.d.Body))
	return rec, priorityOf(rec)
}

// priorityOf is the message's priority, -1 if it has none.
func priorityOf(rec message.Record) int {
	if v, ok := rec.Priority(); ok {
		return int(v)
	}
	return -1
}

// send puts a dead entry into the outboxes for its targets in other logs. It returns how many answers it now waits
// for.
func (c *carry) send(atLeastOnce bool) (sent int) {
	w, id := &c.q.waiting, c.d.ID
	taken := w.taken[id]
	flags := outbox.Flags(0)
	if !atLeastOnce {
		flags = outbox.Force
		if len(c.h.entered) == 0 && len(taken) == 0 {
			flags |= outbox.Counts // the first target counts: nothing else tells the outcome
		}
		if len(c.h.entered)+len(taken)+len(c.plan.remote) > 1 {
			flags |= outbox.Shared
		}
	}
	var asked []uint64
	for _, t := range c.plan.remote {
		if taken.has(t.queue) {
			continue
		}
		sent++
		switch {
		case !atLeastOnce:
			c.q.part.outboxes.send(c.h, c.q, c.d, c.plan, t, c.counts.Deliveries, flags, false)
			flags &^= outbox.Counts
		case !w.asked[id].has(t.queue):
			asked = append(asked, t.queue)
			c.q.part.outboxes.send(c.h, c.q, c.d, c.plan, t, c.counts.Deliveries, flags, true)
		}
	}
	w.tell(id, asked, nil)
	return sent
}

// log writes the operation into the frame, if there is a frame: the entry leaves its queue unless keep is set, and
// enters the logged ones of h.entered.
func (c *carry) log(keep bool) {
	h, q, d, p := c.h, c.q, c.d, c.plan
	told := 0
	for _, in := range h.entered {
		if in.told(keep) {
			told++
		}
	}
	switch {
	case h.frame == nil:
		return // the command has it
	case told == 0:
		if d.Logged && !keep {
			h.frame.settle(q.Incarnation, d.ID)
		}
		return
	case d.Logged:
		history := carried{ref: p.history, bytes: p.stored}
		history.common, history.own = deathstore.Parts(c.n.bodies, p.history)
		h.frame.move(q.Incarnation, d.ID, &history, keep, told)
		for _, in := range h.entered {
			switch {
			case in.logged:
				h.frame.moveTarget(in.q.Incarnation, in.id, in.q.m.Due(in.id), c.counts.Deliveries, in.q.m.Size(in.id))
			case in.told(keep):
				h.frame.moveTarget(in.q.Incarnation, 0, 0, c.counts.Deliveries, 0)
			}
		}
		h.logRefused()
		return
	}
	// The journal does not have the entry yet.
	for _, in := range h.entered {
		if !in.logged {
			continue
		}
		e := entered{queue: in.q.Incarnation, id: in.id, history: p.stored, historyRef: p.history}
		e.record, e.recordRef = c.n.bodies.Bytes(d.Body), d.Body
		c.n.bodies.Retain(d.Body, 1)
		e.r.Due = in.q.m.Due(in.id)
		e.r.Counts = c.counts
		e.r.Redelivered = c.counts.Deliveries > 0
		h.frame.enter(&e)
	}
	h.logRefused()
}
