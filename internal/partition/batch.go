package partition

import (
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// OpKind is what an Op does.
type OpKind uint8

// The kinds.
const (
	Publish OpKind = iota
	Ack
	Reject // the message dies
	Return // the message goes back to its queue
)

// Op is one thing a client asked of queues. A session collects those of one
// read and runs them together.
type Op struct {
	Kind OpKind

	// Publish: the targets are distinct. The reference in Body passes to Run.
	Targets  []*Queue
	Body     message.Ref
	TTL      int64 // milliseconds, -1 = none
	Priority int   // -1 = none

	// The others.
	Queue    *Queue
	ID       queue.ID
	Consumer *queue.Consumer // nil for basic.get
	How      queue.ReturnKind
	Failed   bool // Reject: counts as a failed delivery (DL-11.3)

	// Results of a Publish.
	Refused bool        // a target did not take it
	Pos     journal.Pos // what the journal must have committed before a confirm; 0 = nothing
}

// Run carries out ops in order. It locks what several of them need once, but
// never handles more than a slice under one hold.
func (n *Node) Run(ops []Op) {
	for len(ops) > 0 {
		slice := ops[:min(len(ops), sliceLimit)]
		n.run(slice, false)
		ops = ops[len(slice):]
	}
}

// RunWhole carries out ops in one hold and one frame of the journal: a
// transaction. It may hold its partitions for longer than a slice. REQUIRES: the
// costs of ops come to MaxWhole at most.
func (n *Node) RunWhole(ops []Op) {
	if len(ops) > 0 {
		n.run(ops, true)
	}
}

// MaxWhole is what RunWhole takes, in bytes of a frame. The journal takes frames
// of 1 GiB.
const MaxWhole = 768 << 20

// Cost is at most how many bytes the operation takes of a frame, where size is
// that of the published record.
func (op *Op) Cost(size int) int {
	const operands = 64 // of an operation or one of its targets: opcode, queue, entry, moment
	return operands*(1+len(op.Targets)) + size
}

func (n *Node) run(ops []Op, whole bool) {
	var few [8]*Partition
	parts := few[:0]
	add := func(p *Partition) {
		for _, have := range parts {
			if have == p {
				return
			}
		}
		parts = append(parts, p)
	}
	for i := range ops {
		if ops[i].Kind != Publish {
			add(ops[i].Queue.part)
		}
		for _, q := range ops[i].Targets {
			add(q.part)
		}
	}
	if len(parts) == 0 {
		for i := range ops {
			n.bodies.Release(ops[i].Body)
		}
		return
	}
	h := n.lock(parts...)
	h.entries, h.step.appended = len(ops), FailSettleAppended
	for i := range ops {
		op := &ops[i]
		if op.Kind == Publish {
			h.step.appended = FailPublishAppended
			n.publish(h, op)
		} else {
			n.settle(h, op)
		}
		if !whole {
			n.split(h)
		}
	}
	pos := n.unlock(h)
	n.relieve()
	for i := range ops {
		if ops[i].Kind == Publish && ops[i].Pos != 0 {
			ops[i].Pos = pos
		}
	}
}

// settle carries out an operation on an entry. REQUIRES: its partition is held.
func (n *Node) settle(h *hold, op *Op) {
	q := op.Queue
	if q.gone {
		return
	}
	h.touch(q)
	switch op.Kind {
	case Ack:
		if q.m.Ack(op.ID, op.Consumer) {
			q.stats.Acked++
		}
	case Reject:
		q.m.Reject(h.now, op.ID, op.Consumer, op.Failed)
	case Return:
		if q.m.Return(h.now, op.ID, op.Consumer, op.How) {
			q.stats.Returned++
		}
	}
	q.m.Flow(h.now, 0)
}

// publish lets one message into its targets. REQUIRES: their partitions are held.
func (n *Node) publish(h *hold, op *Op) {
	r := message.Record(n.bodies.Bytes(op.Body))
	n.bodies.Retain(op.Body, len(op.Targets))
	e := queue.Entry{Body: op.Body, Priority: op.Priority, TTL: op.TTL}
	persistent, logged := r.Persistent(), 0
	h.entered = h.entered[:0]
	for _, q := range op.Targets {
		if q.gone {
			n.bodies.Release(op.Body)
			continue
		}
		h.touch(q)
		e.Size, e.Logged = q.size(r), q.logs(persistent)
		id, result := q.m.Enqueue(h.now, &e)
		if result == queue.Refused || result == queue.RefusedDead {
			op.Refused = true
		}
		if result == queue.Refused {
			n.bodies.Release(op.Body)
			continue
		}
		q.stats.Published++
		h.entered = append(h.entered, newEntry{q, id, e.Logged && id != 0})
		if e.Logged && id != 0 {
			logged++
		}
	}
	if logged > 0 {
		op.Pos = 1 // the real one is known when the hold ends
		h.frame.publish(op.Body, r, logged)
		for _, in := range h.entered {
			if in.logged {
				h.frame.target(in.q.Incarnation, in.id, in.q.m.Due(in.id))
			}
		}
	}
	n.bodies.Release(op.Body)
	for _, in := range h.entered {
		in.q.m.Flow(h.now, in.id)
	}
}

// newEntry is an entry just made, before anything followed from it.
type newEntry struct {
	q      *Queue
	id     queue.ID
	logged bool
}
