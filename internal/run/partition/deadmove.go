package partition

import (
	"maps"

	"bartleby.mq/internal/core/queue"
)

// A death is a move in three steps:
//
//	pick       the queue is held: dead entries are marked, and what the next step reads is pinned
//	plan       nothing is held: records are read from disk (deadmove_read.go), the new history is made
//	           (deadmove_plan.go), the targets are found (deadmove_route.go)
//	carry out  the queue and its targets in the same log are held: the entry leaves the one and enters the others in one
//	           operation of one frame (deadmove_carry.go); in a group, a command that the leader proposes does it
//	           (deadmove_propose.go)
//
// Invariant: until the last step the entry is in its queue, not deliverable, and counted. The outcome of a death is
// decided in deadmove_outcome.go. An at-least-once death that a target refuses, or has not answered for, is held:
// deadmove_held.go.
//
// Only one goroutine at a time moves the dead of a queue (Queue.routing), so they keep their order (DL-1.9).

// A deadmove moves a slice of the dead of one queue. It belongs to the goroutine that has set Queue.routing.
type deadmove struct {
	pinned
	again    bool       // the deaths were held: this is a retry
	dead     DeadLetter // the queue's, when they were picked
	settings queue.Settings
	refused  map[queue.ID]bool // deaths that every target refuses; nil: none

	plans  []*deathPlan // the plan of each death; deaths with the same plan are neighbours
	last   *deathPlan
	alike  []deathPlan // plans from planAlike; never grows, because plans points into it
	stored []byte      // the histories of alike
	route  lastRoute
	parts  []*Partition
}

// inlineSlices is how many slices of deaths the goroutine that caused them moves itself. The partition's router moves
// the others.
const inlineSlices = 4

// moveDead moves the dead of the queues, and of other queues that become full by that.
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

// leaveDead leaves queues with deaths to the routers of their partitions (Partition.route).
func (n *Node) leaveDead(work []*Queue) {
	for _, q := range work {
		p := q.part
		p.leaving.Lock()
		p.later = append(p.later, q)
		p.leaving.Unlock()
		p.wakeRouter()
	}
}

// moveSlice moves at most a slice of the dead of q. REQUIRES: the caller has set q.routing. more is false when no
// deaths are left; q.routing is clear then. caused are other queues that have deaths now.
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

// pick pins a slice of the dead of q, and returns nil if there are none. REQUIRES: q is held.
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
	m.refused = maps.Clone(q.refused)
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

// deadmove returns an empty deadmove. REQUIRES: q is held.
func (n *Node) deadmove(q *Queue) *deadmove {
	m, _ := n.deadmoves.Get().(*deadmove)
	if m == nil {
		m = new(deadmove)
	}
	m.n, m.q, m.dead, m.settings = n, q, q.dead, q.m.Settings()
	return m
}

// putBack empties the deadmove and returns it to the pool.
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

// run does the steps after pick. Its results are those of moveSlice. REQUIRES: no partition is locked.
func (m *deadmove) run(caused []*Queue) (more bool, _ []*Queue) {
	defer m.putBack()
	m.n.at(FailDeathMarked)
	if unread := m.leaveUnread(); !m.again {
		m.q.spoil(unread)
	}
	if len(m.deaths) == 0 {
		return true, caused
	}
	if m.plan() {
		return false, caused // Queue.routing stays set, and whoever makes the queue goes on (refuge)
	}
	m.n.at(FailDeathPlanned)
	if m.q.part.group != nil {
		m.propose()
		return false, caused // the applied command continues it
	}
	return m.carryOut(caused)
}

// leaveUnread reads the records, which routing and the targets need. A death whose record is lost is set aside. If
// the record cannot be read for another reason, the death stays in its queue, dead and counted, until the next start.
// leaveUnread drops both from m.deaths. It returns those that are still in the queue; in a group a death that is set
// aside is there for a moment longer.
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

// spoil notes deaths that cannot be read, so that they are not picked again.
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
