package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// entrance says which of a queue's limits an arriving message must respect.
type entrance uint8

const (
	enqueued entrance = iota // a full queue may refuse it (queue.Machine.Enqueue)
	forced                   // a refusal would lose it (queue.Machine.Force)
	imposed                  // its room was promised before (queue.Machine.Impose)
)

// An arrival is a message that enters queues of one log: a publish, a death, a move, a message from another log, or a
// stranded one. Its references stay the caller's; each queue that takes the message gets its own.
type arrival struct {
	entry queue.Entry
	rec   message.Record // nil in a group: the record may be on disk, entry has its size, and every entry is logged
	how   entrance
	stays bool // its record is on disk and was read into memory only for the move
}

// newEntry is an entry just made, before anything followed from it.
type newEntry struct {
	q       *Queue
	id      queue.ID // 0 if a consumer without acknowledgements has it
	logged  bool
	refused bool // the queue refused it and it died of that (DL-10.9)
}

// enter lets a message into a queue and notes it in h.entered unless it was refused. Apart from recovery, this is the
// only way into a queue. The frame must record the entry before flow does what follows from it. REQUIRES: t is held
// and not gone.
func (n *Node) enter(h *hold, t *Queue, a *arrival) (result queue.Result) {
	h.touch(t)
	e, body := &a.entry, a.entry.Body // not copied: there may be very many targets
	if a.rec != nil {
		e.Size, e.Logged = t.size(a.rec), t.logs(a.rec.Persistent())
	}
	ttl, delay := e.TTL, e.Delay
	if t.config.Delays {
		e.TTL, e.Delay = delayOf(a.rec), 0
	}
	n.bodies.Retain(body, 1)
	if e.History != 0 {
		n.bodies.Retain(e.History, 1)
	}
	if a.stays && t.m.Consumers() == 0 {
		e.Body, _ = n.bodies.Cool(e.Body) // no consumer waits for it: it stays on disk only
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
	e.TTL, e.Delay = ttl, delay
	if e.Body = body; result == queue.Refused {
		n.bodies.Release(taken)
		n.bodies.Release(e.History)
		return result
	}
	t.stats.Published++
	if e.History != 0 {
		t.came(id, e.History, e.Logged)
	}
	if n.arrivals.on.Load() && result == queue.Stored {
		t.noteArrival(a)
	}
	h.entered = append(h.entered, newEntry{t, id, e.Logged && id != 0, result == queue.RefusedDead})
	return result
}

// admit lets a published message into a queue and says whether its publisher may count it as taken. After the last
// queue, admitted ends the publish. REQUIRES: q is held and not gone.
func (n *Node) admit(h *hold, q *Queue, in *arrival) bool {
	result := n.enter(h, q, in)
	if result != queue.Refused {
		q.stats.Active = h.now
	}
	return tookIn(result)
}

// admitted writes into the frame what admit has let in, then does what follows. It takes over the reference to the
// body.
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
				if in.logged && !in.refused && !in.q.config.Delays {
					h.frame.delay(in.q.Incarnation, in.id, in.q.m.NotBefore(in.id))
				}
			}
		}
	}
	n.bodies.Release(body)
	h.flow()
}

// flow does what follows from the new entries: deliveries and deaths.
func (h *hold) flow() {
	for _, in := range h.entered {
		in.q.m.Flow(h.now, in.id)
	}
}

// loggedOnes is how many of the new entries the journal records.
func (h *hold) loggedOnes() (n int) {
	for _, in := range h.entered {
		if in.logged {
			n++
		}
	}
	return n
}

// told says whether the frame must record the entry. With keep that is any: the source keeps what it moved until all
// targets have answered, and this one has, whether the message went straight to a consumer and is in no queue, or is
// one that does not outlive the process in this queue.
func (e *newEntry) told(keep bool) bool { return e.logged || keep }

// logRefused writes into the frame which of the entries just logged are dead.
func (h *hold) logRefused() {
	for _, in := range h.entered {
		h.tellRefused(&in)
	}
}

// tellRefused writes into the frame that an entry just logged was refused and is dead. Otherwise it would be ready
// after a crash, although its publisher knows that it was refused.
func (h *hold) tellRefused(in *newEntry) {
	if in.refused && in.logged {
		h.frame.hold(in.q.Incarnation, in.id, uint8(deadletter.MaxLen), h.now)
	}
}

// tookIn says that the message was not refused: its publisher may count it as taken.
func tookIn(result queue.Result) bool { return result != queue.Refused && result != queue.RefusedDead }
