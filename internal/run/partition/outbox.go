package partition

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// The local partitions are one log, each group is another. What one log has for others is in its outboxes, by the rules
// of package outbox. Here they get what they need in a process:
//
//	outbox.go           who guards them, and how an entry is put in
//	outbox_answer.go    what the destination's answer does to the queue that an entry came from
//	outbox_sender.go    the sender, which carries entries to their destinations and acknowledgements back
//	outbox_receive.go   how what arrives enters its queue
//	outbox_stranded.go  what has no place: it is routed anew, relocated, or given up
//	outbox_codec.go     the bytes of all this in frames, checkpoints and snapshots, and recovery from them
//
// Those of a group change when a command is applied, those of the local partitions in a hold, which writes a frame.

// outboxes are the outboxes and inboxes of one log.
type outboxes struct {
	n     *Node
	g     *group        // nil: of the local partitions
	log   uint64        // the number of the log: a group's id, or localLog and the node's
	mu    *held.Mutex   // guards what follows. A group's is its partition's, the other is taken after partitions
	wakec chan struct{} // for the sender

	outbox.Boxes
	// Held deaths whose queue was deleted, and that no target has taken yet. Counters need them; they are
	// this process's own.
	late map[heldDeath]*lateDeath
	// Queues that were deleted and are not buried yet, if some of their held deaths were sent to other logs: by incarnation.
	ended map[uint64]*Queue

	// This process's own.
	pos    journal.Pos      // local: the newest frame that may tell of an entry
	unread map[uint64]int64 // since when something for a destination cannot be read
}

// heldDeath names a death that is held in its queue.
type heldDeath struct {
	source uint64
	id     queue.ID
}

// lateDeath is what becomes of it.
type lateDeath struct {
	asked  int // targets that have not answered
	reason deadletter.Reason
}

// localLog is a bit in the numbers of logs that are not groups'.
const localLog = 1 << 32

func newOutboxes(n *Node, g *group) *outboxes {
	o := &outboxes{n: n, g: g, wakec: make(chan struct{}, 1), unread: map[uint64]int64{}}
	if g != nil {
		o.log, o.mu = g.id, &g.p.mu
	} else {
		o.log, o.mu = localLog|n.NodeID, new(held.Mutex)
		held.Name(o.mu, "the outboxes")
	}
	return o
}

// forget lets go of everything.
func (o *outboxes) forget(h *hold) {
	for _, b := range o.Outboxes() {
		for _, e := range slices.Concat(b.Waiting(), b.Stranded()) {
			h.drop(e.Body, e.History)
		}
	}
	o.Boxes, o.late, o.ended = outbox.Boxes{}, nil, nil
	clear(o.unread)
}

// heldBy has them locked until the hold ends. Those of the local partitions are unlocked when the hold has written its
// frame, so that numbers and frames are in one order. REQUIRES: a partition of the log is held by h.
func (o *outboxes) heldBy(h *hold) *outboxes {
	if o.g == nil && h.outboxes == nil {
		o.mu.Lock()
		h.outboxes = o
	}
	return o
}

// hold locks the local partitions and their outboxes. REQUIRES: they are the local ones.
func (o *outboxes) hold() *hold {
	h := o.n.lock(o.n.parts...)
	o.heldBy(h)
	return h
}

// queue finds a queue of the log, nil if it is gone. REQUIRES: the log's partitions are held.
func (o *outboxes) queue(incarnation uint64) *Queue {
	if o.g != nil {
		return o.g.p.queues[incarnation]
	}
	for _, p := range o.n.parts {
		if q := p.queues[incarnation]; q != nil {
			return q
		}
	}
	return nil
}

// tally likewise finds what the queue knows of its messages in the outboxes.
func (o *outboxes) tally(incarnation uint64) *outbox.Tally { return o.queue(incarnation).tally() }

func (q *Queue) tally() *outbox.Tally {
	if q == nil {
		return nil
	}
	return &q.away
}

// queueType is the type of the log's queues.
func (o *outboxes) queueType() queue.Type {
	if o.g == nil {
		return queue.Classic
	}
	return queue.Quorum
}

// send puts a dead entry, or one that is moved, into the outbox for another log. d holds the references, of which the
// outbox takes its own. If held is set the entry stays in q until it is acknowledged.
func (o *outboxes) send(h *hold, q *Queue, d *queue.Death, p *plan, t target, failed uint32, flags outbox.Flags, held bool) {
	e := outbox.Entry{
		Target: t.queue, Source: q.Incarnation, Flags: flags, Reason: d.Reason, VHost: q.VHost, Failed: failed,
		Body: d.Body, History: p.history,
	}
	if held {
		e.ID = d.ID
	}
	o.n.bodies.Retain(e.Body, 1)
	o.n.bodies.Retain(e.History, 1)
	if d.Stays && d.Logged {
		e.Body, _ = o.n.bodies.Cool(e.Body) // its turn may come late: it goes on being on disk only
	}
	o.put(h, t.log, &e, q, d)
}

// put puts an entry into the outbox for a log, and writes so. d is where its record is in the journal already.
func (o *outboxes) put(h *hold, to uint64, e *outbox.Entry, q *Queue, d *queue.Death) {
	e = o.heldBy(h).Put(to, *e, q.tally())
	if o.g == nil {
		at := d.ID
		if !d.Logged {
			at = 0
		}
		h.frame.mailOut(to, e, o.n.historyBytes, at)
		if at == 0 {
			o.n.bodies.Retain(e.Body, 1)
			h.frame.record(e.Body, o.n.bodies.Bytes(e.Body))
		}
	}
	h.sends = true
}

// Outbox is what one log has for another, as it is shown.
type Outbox struct {
	From, To LogName
	Waiting  int  // on their way
	Stranded int  // waiting for another target
	Closed   bool // the other log is gone for good
}

// LogName says which log: a group's number, or 0 and the node whose classic queues it
// is of.
type LogName struct{ Group, Node uint64 }

func logName(id uint64) LogName {
	if id >= localLog {
		return LogName{Node: id &^ localLog}
	}
	return LogName{Group: id}
}

// allOutboxes are those of the groups, and then of the local partitions.
func (n *Node) allOutboxes() (list []*outboxes) {
	for _, p := range n.groups {
		list = append(list, p.outboxes)
	}
	return append(list, n.outboxes)
}

// Outboxes are those of this node's logs that hold anything or are closed, in order.
func (n *Node) Outboxes() (list []Outbox) {
	for _, o := range n.allOutboxes() {
		o.mu.Lock()
		for _, b := range o.Outboxes() {
			if waiting, stranded := len(b.Waiting()), len(b.Stranded()); waiting+stranded > 0 || b.Closed() {
				list = append(list, Outbox{logName(o.log), logName(b.To()), waiting, stranded, b.Closed()})
			}
		}
		o.mu.Unlock()
	}
	return list
}
