package partition

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// The local partitions share one log, and each group has another. Messages from one log to another go through
// outboxes, by the rules of package outbox. These files give them locks, frames and commands:
//
//	outbox.go           who guards them, and how an entry is put in
//	outbox_answer.go    what a destination's answer does to the queue that the entry came from
//	outbox_sender.go    the sender, which carries entries to their destinations and acknowledgements back
//	outbox_receive.go   how an arriving entry enters its queue
//	outbox_stranded.go  entries without a place: they are routed again, relocated, or given up
//	outbox_codec.go     the bytes of all this in frames, checkpoints and snapshots, and recovery from them
//
// The outboxes of a group change when a command is applied; the outboxes of the local partitions change in a hold,
// which writes a frame.
//
// Invariant: the frame or command that takes an entry out of its queue puts it into the outbox, under the next
// number. The destination takes number n+1 only after n. So every message is in one place after a crash, and arrives
// once.

// outboxes are the outboxes and inboxes of one log.
type outboxes struct {
	n     *Node
	g     *group        // nil: the local partitions
	log   uint64        // the log's number: a group's id, or localLog and the node's id
	mu    *held.Mutex   // guards what follows. A group uses its partition's mutex; the other is taken after partitions
	wakec chan struct{} // wakes the sender

	outbox.Boxes
	// Held deaths whose queue was deleted and that no target has taken yet, for counters. Only of this process.
	late map[heldDeath]*lateDeath
	// Deleted queues that are not buried yet because some of their held deaths were sent to other logs: by incarnation.
	ended map[uint64]*Queue

	// Only of this process.
	pos    journal.Pos      // local: the newest frame that may have an entry
	unread map[uint64]int64 // by destination: since when something for it cannot be read
}

// heldDeath names a held death.
type heldDeath struct {
	source uint64
	id     queue.ID
}

// lateDeath is a held death whose queue was deleted.
type lateDeath struct {
	asked  int // targets that have not answered
	reason deadletter.Reason
}

// localLog is a bit in the numbers of nodes' local logs. The numbers of groups do not have it.
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

// forget drops everything.
func (o *outboxes) forget(h *hold) {
	for _, b := range o.Outboxes() {
		for _, e := range slices.Concat(b.Waiting(), b.Stranded()) {
			h.drop(e.Body, e.History)
		}
	}
	o.Boxes, o.late, o.ended = outbox.Boxes{}, nil, nil
	clear(o.unread)
}

// heldBy locks the outboxes until the hold ends. The outboxes of the local partitions are unlocked when the hold has
// written its frame, so that numbers and frames have the same order. REQUIRES: h holds a partition of the log.
func (o *outboxes) heldBy(h *hold) *outboxes {
	if o.g == nil && h.outboxes == nil {
		o.mu.Lock()
		h.outboxes = o
	}
	return o
}

// hold locks the local partitions and their outboxes. REQUIRES: o is the local partitions'.
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

// tally finds the counters of a queue's messages in outboxes, nil if the queue is gone. REQUIRES: as for queue.
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

// send puts a dead or moved entry into the outbox for another log. d has references; the outbox takes its own. With
// held, the entry stays in q until it is acknowledged.
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
		e.Body, _ = o.n.bodies.Cool(e.Body) // it may wait long: it stays on disk only
	}
	o.put(h, t.log, &e, q, d)
}

// put puts an entry into the outbox for a log, and writes that into the frame. If d.Logged, the journal has the
// record already, as that of the entry d.ID.
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

// Outbox shows what one log has for another.
type Outbox struct {
	From, To LogName
	Waiting  int  // on their way
	Stranded int  // waiting for another target
	Closed   bool // the other log is gone for good
}

// LogName names a log: a group by its number, or with Group 0 a node's classic queues.
type LogName struct{ Group, Node uint64 }

func logName(id uint64) LogName {
	if id >= localLog {
		return LogName{Node: id &^ localLog}
	}
	return LogName{Group: id}
}

// allOutboxes returns those of the groups, then those of the local partitions.
func (n *Node) allOutboxes() (list []*outboxes) {
	for _, p := range n.groups {
		list = append(list, p.outboxes)
	}
	return append(list, n.outboxes)
}

// Outboxes returns the outboxes of this node's logs that hold anything or are closed, in order.
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
