package partition

import (
	"bartleby.mq/internal/core/message"
)

// propose proposes to the group what its leader has planned for the slice, in as many commands as histories and
// targets fill, and releases what was pinned. When the last command is applied, routing continues or ends. Deaths
// beyond sliceSteps are left to that, so that other commands come in between. A retry waits instead while too much is
// pending.
func (m *deadmove) propose() {
	n, q, atLeastOnce, last := m.n, m.q, m.settings.AtLeastOnce, !m.again
	g := q.part.group
	w := n.writer()
	steps := 0 // of the present command
	pass := func(p *proposal) error {
		if p.steps = steps; !last {
			g.waitForRoom()
		}
		_, err := g.propose(w, p, false)
		return err
	}
	var err error
	for i := 0; i < len(m.deaths); {
		many := steps > 0 && steps+m.plans[i].steps() > sliceSteps
		if many && last {
			break
		}
		if many || w.full() {
			if err = pass(&proposal{}); err != nil {
				break
			}
			w.begin(n.Origin, n.Now())
			if !last {
				steps = 0
			}
		}
		p, j := m.plans[i], i
		for j < len(m.deaths) && m.plans[j] == p && (j == i || steps+p.steps() <= sliceSteps) {
			j++
			steps += p.steps()
		}
		w.dead(q.Incarnation, &p.plan, atLeastOnce, p.stored, m.deaths[i:j])
		if p.outcome.Dropped() && !atLeastOnce {
			for k := i; k < j; k++ {
				n.Router.Dropped(q, p.reason, p.outcome, message.Record(n.bodies.Bytes(m.deaths[k].Body)), p.story())
			}
		}
		i = j
	}
	m.eachPlan(func(p *deathPlan) { n.bodies.Release(p.history) })
	m.release()
	p := &proposal{}
	if last {
		p.routing = q
	}
	if err == nil {
		err = pass(p)
	}
	n.writers.Put(w)
	if err != nil && last {
		h := n.lock(q.part)
		q.routing = false // the next leader continues
		q.calm()
		q.part.proposeAgain(h.now, q)
		n.finishHold(h)
	}
}

// plan reads what planTargets wrote. It leaves out queues and logs that are gone.
func (a *application) plan(history []byte) *plan {
	p := &plan{history: storeHistory(a.g.node.bodies, history), stored: history}
	for _, t := range a.r.list() {
		if t.log != 0 {
			if !a.g.p.outboxes.Closed(t.log) {
				p.remote = append(p.remote, t)
			}
		} else if q := a.g.p.queues[t.queue]; q != nil {
			p.targets = append(p.targets, q)
		}
	}
	return p
}

// dead moves dead entries to where the leader has sent them. An entry that is gone or not dead was settled by an
// earlier command.
func (a *application) dead(q *Queue) {
	atLeastOnce, outcome, history := a.r.dead()
	if a.r.bad {
		return
	}
	n := a.g.node
	p := a.plan(history)
	p.outcome = outcome
	for range a.r.count(1) {
		id := a.r.id()
		if q == nil || a.r.bad {
			continue
		}
		d, ok := q.m.DeathOf(id)
		if !ok {
			continue
		}
		a.h.entries += p.steps()
		n.bodies.Retain(d.Body, 1)
		n.bodies.Retain(d.History, 1)
		c := carry{n: n, h: a.h, q: q, d: &d, plan: p}
		c.death(atLeastOnce)
		a.h.drop(d.Body, d.History)
	}
	a.h.drop(p.history, 0)
}
