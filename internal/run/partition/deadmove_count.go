package partition

import (
	"sync/atomic"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
)

// Strategy is the dead-lettering strategy under which a death is counted (DL-18.3).
type Strategy uint8

// The strategies.
const (
	Disabled   Strategy = iota // there was no dead-letter exchange
	AtMostOnce                 //
	AtLeastOnce
)

// String returns the strategy as metrics name it (DL-18.1).
func (s Strategy) String() string {
	return [...]string{"disabled", "at_most_once", "at_least_once"}[s]
}

// deathCounts counts deaths since the node started.
type deathCounts struct {
	died      [2][3][5]atomic.Uint64                   // by type of queue, strategy and reason
	late      [2][5][deadletter.Outcomes]atomic.Uint64 // the outcomes that Node.Late counts, by type, reason and outcome
	confirmed atomic.Uint64                            // at-least-once deaths that all targets have taken
}

// Deaths is how many messages have died since the node started, by type of queue, strategy and reason (DL-18.1).
func (n *Node) Deaths(t queue.Type, s Strategy, r deadletter.Reason) uint64 {
	return n.deaths.died[deathKind(t)][s][r].Load()
}

// count counts a death for the node's totals (DL-18.1, DL-18.3).
func (c *deathCounts) count(t queue.Type, s Strategy, r deadletter.Reason) {
	c.died[deathKind(t)][s][r].Add(1)
}

// forget resets the counters for a type of queues.
func (c *deathCounts) forget(t queue.Type) {
	k := deathKind(t) // one by one: deaths in groups are counted meanwhile
	for s := range c.died[k] {
		for r := range c.died[k][s] {
			c.died[k][s][r].Store(0)
		}
	}
	for r := range c.late[k] {
		for o := range c.late[k][r] {
			c.late[k][r][o].Store(0)
		}
	}
}

// deathKind is the index of a queue type in deathCounts.
func deathKind(t queue.Type) int {
	if t == queue.Quorum {
		return 1
	}
	return 0
}

// DeathsConfirmed is how many at-least-once deaths all targets have taken.
func (n *Node) DeathsConfirmed() uint64 { return n.deaths.confirmed.Load() }

// Late counts the deaths whose outcome came after their queue was deleted: they went with the queue, or were on their
// way. Earlier deaths are in the queue's Stats.
func (n *Node) Late(t queue.Type) (s Stats) {
	for reason := range s.Dead {
		for outcome := range s.Dead[reason] {
			s.Dead[reason][outcome] = n.deaths.late[deathKind(t)][reason][outcome].Load()
		}
	}
	return s
}

// countLate counts a late death. An at-least-once death has already counted for the node when it died.
func (c *deathCounts) countLate(t queue.Type, s Strategy, r deadletter.Reason, o deadletter.Outcome) {
	r = r.Counted()
	c.late[deathKind(t)][r][o].Add(1)
	if s == AtMostOnce {
		c.count(t, s, r)
	}
}

// endDeaths makes the deaths that go with their queue count when they are buried. There may be very many, and the
// declarations are locked while a queue is deleted. REQUIRES: q is held, and will be closed.
func (n *Node) endDeaths(h *hold, q *Queue) {
	q.endOffers()
	q.ended = true
	if len(q.waiting.asked) > 0 {
		o := q.part.outboxes.heldBy(h)
		if o.ended == nil {
			o.ended = map[uint64]*Queue{}
		}
		o.ended[q.Incarnation] = q
	}
}

// Ended implements queue.Sink: it counts a death that goes with its queue. A held death that was sent to other logs
// is counted by their answers instead.
func (q *Queue) Ended(id queue.ID, reason deadletter.Reason, held bool) {
	if !q.ended {
		return // the queue is not deleted: its state is replaced, or it is not declared
	}
	n, outcome := q.part.node, deadletter.Deleted
	if held {
		asked := len(q.waiting.asked[id])
		outcome = q.waiting.outcome(id)
		delete(q.waiting.asked, id)
		delete(q.waiting.taken, id)
		if outcome == deadletter.Deleted && asked > 0 && !q.config.Delays {
			o := q.part.outboxes.heldBy(q.part.hold)
			if o.late == nil {
				o.late = map[heldDeath]*lateDeath{}
			}
			o.late[heldDeath{q.Incarnation, id}] = &lateDeath{asked, reason}
			return
		}
	}
	if q.config.Delays {
		return
	}
	strategy := AtMostOnce
	if s := q.m.Settings(); s.DeadLetter && s.AtLeastOnce {
		strategy = AtLeastOnce
	}
	n.deaths.countLate(q.config.Type, strategy, reason, outcome)
}

// isBuried is called when all that was purged from a queue, or deleted with it, is buried. REQUIRES: q is held.
func (n *Node) isBuried(h *hold, q *Queue) {
	if q.ended && q.waiting.asked != nil {
		delete(q.part.outboxes.heldBy(h).ended, q.Incarnation)
		q.waiting.asked, q.waiting.taken = nil, nil
	}
}
