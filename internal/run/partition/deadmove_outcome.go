package partition

import "bartleby.mq/internal/core/deadletter"

// The outcome of a death is decided when it is carried out: a target has it; a target has refused it; there is none;
// or it is held until all have taken it. Two outcomes come later. A death that was only sent to other logs and is not
// held is counted when one of them answers (outboxes.count). A death that goes with its queue is counted when that is
// buried (Queue.Ended).

// end ends the death in its queue, after it has entered its targets and was sent to those in other logs. `refused`
// targets did not take it; `sent` ones have not answered. end writes the operation into the frame and counts. It says
// whether the entry was dropped because there was nowhere to go.
func (c *carry) end(atLeastOnce bool, refused, sent int) (dropped bool) {
	h, q, d := c.h, c.q, c.d
	taken := len(q.waiting.taken[d.ID]) > 0 // by targets of an earlier try
	if atLeastOnce && (refused > 0 || sent > 0 || len(h.entered) == 0 && !taken && !c.nowhere()) {
		c.hold()
		q.waiting.note(d.ID, refused > 0)
		if q.config.Delays {
			c.n.late.add(q)
		}
		return false
	}
	body, history, ok := q.m.Bury(d.ID)
	if !ok {
		return false
	}
	h.drop(body, history)
	if q.Released != nil {
		q.Released(len(q.waiting.taken[d.ID]) + len(h.entered))
	}
	q.waiting.forget(d.ID)
	delete(q.refused, d.ID)
	c.log(false)
	outcome := c.outcome(taken, refused, sent)
	q.leftDead(history, d.Logged, d.Reason, outcome)
	if sent == 0 || len(h.entered) > 0 || taken {
		q.count(d.Reason, outcome, body, c.plan.history) // otherwise the answer decides
	}
	if atLeastOnce && !q.config.Delays {
		c.n.deaths.confirmed.Add(1)
	}
	return outcome.Dropped()
}

// outcome is the outcome of a death that has ended.
func (c *carry) outcome(taken bool, refused, sent int) deadletter.Outcome {
	lost := c.plan.outcome == deadletter.LostAndFound
	switch {
	case taken || (len(c.h.entered) > 0 || sent > 0) && !lost:
		return deadletter.Routed
	case lost && len(c.h.entered)+sent == 0:
		return c.plan.story().Lost
	case refused > 0:
		return deadletter.TargetRefused
	case c.plan.outcome == deadletter.Routed: // its targets are gone
		return deadletter.NoRoute
	}
	return c.plan.outcome
}

// hold keeps an at-least-once death in its queue until every target has taken it. Targets that have it are not asked
// again (DL-13.5).
func (c *carry) hold() {
	h, q, d := c.h, c.q, c.d
	if q.m.Hold(d.ID) && d.Logged {
		h.frame.hold(q.Incarnation, d.ID, uint8(d.Reason), d.At)
	}
	if len(h.entered) == 0 {
		return
	}
	took := make([]uint64, len(h.entered))
	for i, in := range h.entered {
		took[i] = in.q.Incarnation
	}
	q.waiting.take(d.ID, took...)
	c.log(true)
}
