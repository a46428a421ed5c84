package partition

import (
	"errors"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
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

// Op is one operation that a client asks of queues. A session collects the operations of one read and runs them
// together.
type Op struct {
	Kind OpKind

	// Publish: there is at least one target, and the targets are distinct. There is a Body; Run takes over the
	// reference.
	Targets  []*Queue
	Body     message.Ref
	TTL      int64 // milliseconds, -1 = none
	Priority int   // -1 = none
	Delay    int64 // milliseconds before it may be delivered (DL-22.12)

	// The other kinds.
	Queue    *Queue
	ID       queue.ID
	Consumer *queue.Consumer // nil for basic.get
	How      queue.ReturnKind
	Failed   bool // Reject: counts as a failed delivery (DL-11.3)
	// Note is what the consumer says of the delivery, for the history if the message dies now; nil: nothing.
	Note *deadletter.Note
	Wait int64 // Return: milliseconds before its next delivery; 0: as the queue says

	// Publish to replicated queues: Owner gets the answers, under the number Token.
	Owner Owner
	Token uint64

	// Results of a Publish: see Pending.
	Refused bool // a local target refused it; after Enter and RunWhole, any target
	// RefusedBy is the first local target that did, of those that ran in one hold.
	RefusedBy *Queue
	Waits     int32 // how many answers its Owner gets, or has got already
}

// Run carries out ops in order. It locks partitions that several of them need once, but handles at most a slice in
// one hold. Operations on replicated queues are only proposed when Run returns; their Owners get the answers. A
// caller that answers for the ops calls Await first.
func (n *Node) Run(ops []Op) (r Receipt) {
	for len(ops) > 0 {
		slice := sliceOf(ops)
		if n.groups != nil {
			r.Add(n.propose(slice, nil))
		}
		r.Add(n.run(slice, false))
		ops = ops[len(slice):]
	}
	return r
}

// Enter carries out publishes and waits. When it returns, Op.Refused says of each whether any target has refused it,
// in any log, and what was taken is durable. After an error the fate of some is unknown.
func (n *Node) Enter(ops []Op) (err error) {
	for len(ops) > 0 {
		slice := n.someOf(ops)
		err = errors.Join(err, n.runAndWait(slice, false))
		ops = ops[len(slice):]
	}
	return err
}

// sliceOf returns the first of ops, as many as one hold handles.
func sliceOf(ops []Op) []Op {
	steps := 0
	for i := range ops {
		if steps += ops[i].Steps(); i == sliceLimit || i > 0 && steps > sliceSteps {
			return ops[:i]
		}
	}
	return ops
}

// someOf is sliceOf for publishes whose bytes were not limited yet: they may become one command of a group, and a
// command must fit into a frame of the journal.
func (n *Node) someOf(ops []Op) []Op {
	size := 0
	for i := range ops {
		if size >= frameBytes {
			ops = ops[:i]
			break
		}
		size += n.bodies.Size(ops[i].Body)
	}
	return sliceOf(ops)
}

// RunWhole carries out a transaction: publishes, then settlements. Within one log it is atomic: one hold and one
// frame of the local partitions, or one command of a group. Across several logs each part is atomic, and all
// publishes are durable before anything is settled. So after a crash between the two a message may be in both places,
// never in none. When RunWhole returns, everything is applied and durable. It may hold its partitions longer than a
// slice. REQUIRES: if there are several ops, their costs sum up to at most MaxWhole and their steps to at most
// MaxSteps.
func (n *Node) RunWhole(ops []Op) error {
	if n.groups == nil || oneLog(ops) {
		return n.runAndWait(ops, true)
	}
	settles := slices.IndexFunc(ops, func(op Op) bool { return op.Kind != Publish })
	if settles < 0 {
		settles = len(ops)
	}
	if err := n.runAndWait(ops[:settles], true); err != nil {
		return err
	}
	return n.runAndWait(ops[settles:], true)
}

// runAndWait carries out ops in one hold of the local partitions and one command of each group. When it returns,
// everything is applied and durable.
func (n *Node) runAndWait(ops []Op, whole bool) (err error) {
	if len(ops) == 0 {
		return nil
	}
	if n.groups != nil {
		err = n.proposeWhole(ops)
	}
	return errors.Join(err, n.Await(n.run(ops, whole)))
}

// oneLog says whether all queues of ops are in one log.
func oneLog(ops []Op) bool {
	var log uint64
	same := func(q *Queue) bool {
		id := q.part.outboxes.log
		if log == 0 {
			log = id
		}
		return log == id
	}
	for i := range ops {
		if ops[i].Kind != Publish && !same(ops[i].Queue) || slices.ContainsFunc(ops[i].Targets, func(q *Queue) bool { return !same(q) }) {
			return false
		}
	}
	return true
}

// The limits of RunWhole. All of it happens in one hold, or one command of a group, and everybody who wants one of
// the partitions waits meanwhile. A step takes a microsecond or two, a MiB four milliseconds with the disk's time.
const (
	MaxWhole = 32 << 20 // bytes of a frame
	MaxSteps = 64 << 10
)

// Steps is how many entries the operation makes or settles.
func (op *Op) Steps() int { return max(1, len(op.Targets)) }

// Cost is the most bytes that the operation takes of a frame. size is that of the published record.
func (op *Op) Cost(size int) int {
	const operands = 64 // of an operation or one of its targets: opcode, queue, entry, moment
	if op.Note != nil {
		size += op.Note.Size()
	}
	return operands*(1+len(op.Targets)) + size
}

// run carries out the part of ops that concerns local queues. The receipt covers the publishes, or with whole
// everything; then there is only one frame.
func (n *Node) run(ops []Op, whole bool) (r Receipt) {
	if !whole && len(ops) == 1 && len(ops[0].Targets) > sliceSteps {
		return n.runWide(&ops[0])
	}
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
		if ops[i].Kind != Publish && ops[i].Queue.part.group == nil {
			add(ops[i].Queue.part)
		}
		for _, q := range ops[i].Targets {
			if q.part.group == nil {
				add(q.part)
			}
		}
	}
	if len(parts) == 0 {
		for i := range ops {
			n.bodies.Release(ops[i].Body)
		}
		n.memory.relieve()
		return r
	}
	h := n.lock(parts...)
	h.step.appended = FailSettleAppended
	for i := range ops {
		op := &ops[i]
		h.entries += op.Steps()
		if op.Kind == Publish {
			h.step.appended = FailPublishAppended
			n.publish(h, op)
		} else {
			n.settle(h, op)
			if whole {
				h.tellDeath(op)
			}
		}
		if !whole {
			n.split(h)
		}
	}
	owed := whole || h.owed
	if pos := n.unlock(h); owed {
		r.journal = pos
	}
	n.relieve()
	return r
}

// runWide publishes one message to more queues than one hold should handle: in several holds, each with its own
// frame. As with several logs, a crash before the confirm may leave the message in only some of the queues.
func (n *Node) runWide(op *Op) (r Receipt) {
	for targets := range slices.Chunk(op.Targets, sliceSteps) {
		some := [1]Op{*op}
		some[0].Targets = targets
		n.bodies.Retain(op.Body, 1)
		r.Add(n.run(some[:], false))
		op.Refused = op.Refused || some[0].Refused
		if op.RefusedBy == nil {
			op.RefusedBy = some[0].RefusedBy
		}
	}
	n.bodies.Release(op.Body)
	return r
}

// tellDeath records in the frame that the settled entry has died, if it has. The death is moved later; without the
// record the entry would be back in its queue after a crash, although its transaction was committed.
func (h *hold) tellDeath(op *Op) {
	q := op.Queue
	if q.part.group != nil || q.gone {
		return
	}
	if d, ok := q.m.Tell(op.ID); ok {
		h.frame.comeBack(q.Incarnation, d.ID, d.Counts, 0) // including the attempt that it died of
		h.frame.hold(q.Incarnation, d.ID, uint8(d.Reason), d.At)
	}
}

// settle carries out an operation on an entry of a local queue. REQUIRES: its partition is held.
func (n *Node) settle(h *hold, op *Op) {
	q := op.Queue
	if q.part.group != nil || q.gone {
		return
	}
	h.touch(q)
	s := settlement{kind: op.Kind, first: op.ID, count: 1, failed: op.Failed, how: op.How, note: op.Note, wait: op.Wait}
	s.apply(h, q, op.Consumer)
}

// publish lets one message into its local targets. REQUIRES: their partitions are held.
func (n *Node) publish(h *hold, op *Op) {
	in := arrival{
		entry: queue.Entry{Content: queue.Content{Body: op.Body}, Priority: op.Priority, TTL: op.TTL, Delay: op.Delay},
		rec:   message.Record(n.bodies.Bytes(op.Body)),
	}
	h.entered = h.entered[:0]
	for _, q := range op.Targets {
		if q.part.group == nil && !q.gone && !n.admit(h, q, &in) {
			op.Refused = true
			if op.RefusedBy == nil {
				op.RefusedBy = q
			}
		}
	}
	n.admitted(h, &in)
}
