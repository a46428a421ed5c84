package partition

import (
	"bartleby.mq/internal/core/queue"
)

// A death is a move in three steps:
//
//	pick       with the queue held: the dead entries are marked, and what the next step reads is pinned
//	plan       with nothing held: records are read from disk (deadmove_read.go), the new history is made
//	           (deadmove_plan.go), and the targets are found (deadmove_route.go)
//	carry out  with the queue and all targets in its log held: the entry leaves the one and enters the others, as one
//	           operation of one frame (deadmove_carry.go); or in a group as a command that its leader proposes
//	           (deadmove_propose.go)
//
// Until the last step the entry is in its queue, not deliverable, and counted. What becomes of it is decided in
// deadmove_outcome.go; what a target refuses, or has not answered for, waits as deadmove_held.go says.
//
// One goroutine at a time moves the dead of a queue (Queue.routing), so that they keep their order (DL-1.9).

// A deadmove moves a slice of the dead of one queue. It belongs to the goroutine that has Queue.routing.
type deadmove struct {
	pinned
	again    bool       // they are held, and were tried before
	dead     DeadLetter // of the queue, when they were picked
	settings queue.Settings

	plans  []*deathPlan // for each death; deaths with one plan are neighbours
	last   *deathPlan
	alike  []deathPlan // made by planAlike; never longer than it was made
	stored []byte      // their histories
	route  lastRoute
	parts  []*Partition
}

// inlineSlices is how many slices of deaths their causer moves itself. The
// partition's router moves the others.
const inlineSlices = 4

// moveDead moves the dead of the queues, and of those that become full by it.
func (n *Node) moveDead(work []*Queue) {
	for budget := inlineSlices; len(work) > 0; budget-- {
		q := work[0]
		if budget <= 0 {
			n.leaveDead(work)
			return
		}
		more, caused := n.moveSlice(q)
		if !more {
			work = work[1:]
		}
		work = append(work, caused...)
	}
}

// leaveDead hands queues whose dead are to be moved to the routers of their partitions (Partition.route).
func (n *Node) leaveDead(work []*Queue) {
	for _, q := range work {
		p := q.part
		p.leaving.Lock()
		p.later = append(p.later, q)
		p.leaving.Unlock()
		p.wakeRouter()
	}
}

// moveSlice moves up to a slice of the dead of q. REQUIRES: q.routing is
// set and the caller's. more is false when there are none left, and then
// q.routing is clear again. caused are other queues that have deaths now.
func (n *Node) moveSlice(q *Queue) (more bool, caused []*Queue) {
	m := q.next
	if m != nil {
		q.next = nil
	} else {
		h := n.lockInTurn(q.part, q.part)
		m = q.pick()
		if m == nil {
			q.routing, q.part.lateDeaths = false, 0
			q.calm()
			if !q.gone && (q.part.group == nil || q.part.group.leads) {
				q.part.remind(q)
			}
		}
		caused = n.finishHold(h)
		if m == nil {
			return false, caused
		}
	}
	return m.run(caused)
}

// pick pins a slice of the dead of q; nil if none waits. REQUIRES: q is held.
func (q *Queue) pick() *deadmove {
	if q.gone {
		return nil
	}
	m := q.part.node.deadmove(q)
	limit := sliceLimit / 2
	if q.m.Waiting() > sliceLimit {
		limit = sliceLimit
	}
	m.deaths = q.m.Deaths(limit, m.deaths)
	if len(m.deaths) == 0 {
		m.putBack()
		return nil
	}
	p := portion{store: m.n.bodies}
	for i := range m.deaths {
		if !p.takes(&m.deaths[i]) {
			clear(m.deaths[i:])
			m.deaths = m.deaths[:i]
			break
		}
		m.pin(&m.deaths[i])
	}
	return m
}

// deadmove returns an empty one. REQUIRES: q is held.
func (n *Node) deadmove(q *Queue) *deadmove {
	m, _ := n.deadmoves.Get().(*deadmove)
	if m == nil {
		m = new(deadmove)
	}
	m.n, m.q, m.dead, m.settings = n, q, q.dead, q.m.Settings()
	return m
}

// putBack empties the deadmove, for the next slice that needs one.
func (m *deadmove) putBack() {
	clear(m.plans)
	clear(m.deaths)
	clear(m.alike)
	n := m.n
	*m = deadmove{
		pinned: pinned{deaths: m.deaths[:0], unread: m.unread},
		plans:  m.plans[:0], alike: m.alike[:0], stored: m.stored[:0], parts: m.parts,
	}
	n.deadmoves.Put(m)
}

// run does what follows once a slice is picked, and says as moveSlice does whether there is more.
// No partition is locked.
func (m *deadmove) run(caused []*Queue) (more bool, _ []*Queue) {
	defer m.putBack()
	m.n.at(FailDeathMarked)
	if unread := m.leaveUnread(); !m.again {
		m.q.spoil(unread)
	}
	if len(m.deaths) == 0 {
		return true, caused
	}
	m.plan()
	m.n.at(FailDeathPlanned)
	if m.q.part.group != nil {
		m.propose()
		return false, caused // it goes on when that is applied
	}
	return m.carryOut(caused)
}

// leaveUnread reads the records, which routing needs, and so do the targets. A death whose record is lost is set
// aside. One that cannot be read for another reason stays in its queue, dead and counted, until the node starts again.
// Both are returned, and left out: in a group the first is still there for a moment.
func (m *deadmove) leaveUnread() (stay []queue.ID) {
	m.read()
	kept := m.deaths[:0]
	for i, d := range m.deaths {
		if err := m.unread[i]; err != nil {
			if !m.n.setAside(&spoilt{q: m.q, id: d.ID, body: d.Body, size: d.Size, err: err}) || m.q.part.group != nil {
				stay = append(stay, d.ID)
			}
			m.n.bodies.Release(d.Body)
			m.n.bodies.Release(d.History)
			continue
		}
		kept = append(kept, d)
	}
	clear(m.deaths[len(kept):])
	m.deaths = kept
	return stay
}

// spoil notes deaths that are not moved any more: they cannot be read.
func (q *Queue) spoil(ids []queue.ID) {
	if len(ids) == 0 {
		return
	}
	q.part.mu.Lock()
	defer q.part.mu.Unlock()
	for _, id := range ids {
		q.m.Spoil(id)
	}
}
