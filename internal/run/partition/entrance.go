package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// entrance is how a message comes into a queue: what of the queue's limits it has to heed.
type entrance uint8

const (
	enqueued entrance = iota // a full queue may refuse it (queue.Machine.Enqueue)
	forced                   // nobody could keep it if it were refused (queue.Machine.Force)
	imposed                  // it has its room already (queue.Machine.Impose)
)

// An arrival is a message that enters queues of one log: a publish, a death, a move, what another log has
// sent, or what was stranded. Its references stay the caller's; each queue that takes it gets its own.
type arrival struct {
	entry queue.Entry
	rec   message.Record // nil in a group, where it may be on disk: then entry has its size, and it is logged
	how   entrance
	stays bool // its record was read into memory for the way only
}

// newEntry is an entry just made, before anything followed from it.
type newEntry struct {
	q       *Queue
	id      queue.ID // 0 if a consumer has it that does not acknowledge
	logged  bool
	refused bool // it died of it at once (DL-10.9)
}

// enter lets a message into a queue, and notes it among h.entered unless it was refused. This is the only way
// by which something comes into a queue but for recovery. What follows from it is for flow, once the frame tells of
// it. REQUIRES: t is held, and not gone.
func (n *Node) enter(h *hold, t *Queue, a *arrival) (result queue.Result) {
	h.touch(t)
	e, body := &a.entry, a.entry.Body // not copied for each of very many
	if a.rec != nil {
		e.Size, e.Logged = t.size(a.rec), t.logs(a.rec.Persistent())
	}
	n.bodies.Retain(body, 1)
	if e.History != 0 {
		n.bodies.Retain(e.History, 1)
	}
	if a.stays && t.m.Consumers() == 0 {
		e.Body, _ = n.bodies.Cool(e.Body) // nobody waits for it: it goes on being on disk only
	}
	var id queue.ID
	switch a.how {
	case enqueued:
		id, result = t.m.Enqueue(h.now, e)
	case forced:
		id, result = t.m.Force(h.now, e)
	case imposed:
		id, result = t.m.Impose(h.now, e)
	}
	taken := e.Body
	if e.Body = body; result == queue.Refused {
		n.bodies.Release(taken)
		n.bodies.Release(e.History)
		return result
	}
	t.stats.Published++
	h.entered = append(h.entered, newEntry{t, id, e.Logged && id != 0, result == queue.RefusedDead})
	return result
}

// admit lets a published message into a queue, and says whether its publisher may take it as entered.
// When it was let into all, admitted ends the publish. REQUIRES: q is held, and not gone.
func (n *Node) admit(h *hold, q *Queue, in *arrival) bool {
	result := n.enter(h, q, in)
	if result != queue.Refused {
		q.stats.Active = h.now
	}
	return tookIn(result)
}

// admitted tells the frame of what has just been let in, and does what follows. The reference to the body passes to it.
func (n *Node) admitted(h *hold, in *arrival) {
	body := in.entry.Body
	if logged := h.loggedOnes(); logged > 0 && h.frame != nil {
		h.owed = true
		n.bodies.Retain(body, 1)
		h.frame.publish(body, in.rec, logged)
		for _, in := range h.entered {
			if in.logged {
				h.frame.target(in.q.Incarnation, in.id, in.q.m.Due(in.id))
			}
		}
		h.logRefused()
		if in.entry.Delay > 0 {
			for _, in := range h.entered {
				if in.logged && !in.refused {
					h.frame.delay(in.q.Incarnation, in.id, in.q.m.NotBefore(in.id))
				}
			}
		}
	}
	n.bodies.Release(body)
	h.flow()
}

// flow does what follows from what has entered.
func (h *hold) flow() {
	for _, in := range h.entered {
		in.q.m.Flow(h.now, in.id)
	}
}

// loggedOnes is how many of what has entered the journal tells of.
func (h *hold) loggedOnes() (n int) {
	for _, in := range h.entered {
		if in.logged {
			n++
		}
	}
	return n
}

// told says whether a frame has to tell of the entry: of one that a consumer has that does not acknowledge, so that it
// is in no queue, if what was moved stays where it was until all targets have answered, as this one has.
func (e *newEntry) told(keep bool) bool { return e.logged || keep && e.id == 0 }

// logRefused tells which of the entries just logged are dead.
func (h *hold) logRefused() {
	for _, in := range h.entered {
		h.tellRefused(&in)
	}
}

// tellRefused tells of an entry just logged if it was refused, and is dead: else it would be ready after a crash, though
// its publisher knows that it is not there.
func (h *hold) tellRefused(in *newEntry) {
	if in.refused && in.logged {
		h.frame.hold(in.q.Incarnation, in.id, uint8(deadletter.MaxLen), h.now)
	}
}

// tookIn says that a message was not refused: its publisher may take it as entered.
func tookIn(result queue.Result) bool { return result != queue.Refused && result != queue.RefusedDead }
