package partition

import (
	"hash/maphash"

	"bartleby.mq/internal/core/queue"
)

// A driver runs the operations on the queues of a partition. It decides when they are applied and what is logged:
//
//	local   at once; the hold's frame has the outcomes      classic queues
//	group   when the log has decided them as a command      quorum queues (replicated.go)
//
// What an operation does to a queue is the same with both (operations.go).
type driver interface {
	// create makes the queue live, at once or through the log.
	create(q *Queue, settings queue.Settings, dead DeadLetter)
	// do carries an operation out and waits. When it returns, the operation was applied and its result is in a; after
	// an error its fate is unknown.
	do(q *Queue, o operation, a *ask) error
	// counts returns the queue's counters after everything that this process has asked for was applied.
	counts(q *Queue) Counts
	// resume lets a consumer that was full have more messages.
	resume(q *Queue, c *queue.Consumer)
	// open makes the queue try its consumers with this gate again.
	open(q *Queue, gate queue.Gate)
	// configure puts other settings in force, or proposes them.
	configure(q *Queue, settings queue.Settings, dead DeadLetter)
	// accept deletes the queue unless check returns an error. A group only notes the deletion; finish does it.
	accept(q *Queue, check func(Counts) error) (Counts, error)
	// finish ends a queue whose deletion accept has accepted: see Node.Deleted.
	finish(q *Queue, before Counts) Counts
	// numbered and getting return the operations that attach a consumer and get a message; in a group they give the
	// consumer a number.
	numbered(c *queue.Consumer) attach
	getting(noAck bool) get
	// settle waits until everything that this process has asked for was applied.
	settle() error
}

// local is the driver of a partition of classic queues.
type local struct{ p *Partition }

// partitionOf returns the partition of a classic queue.
func (n *Node) partitionOf(q *Queue) *Partition {
	var h maphash.Hash
	h.SetSeed(n.seed)
	h.WriteString(string(q.VHost))
	h.WriteByte(0)
	h.WriteString(q.Name)
	return n.parts[h.Sum64()%uint64(len(n.parts))]
}

func (d local) create(q *Queue, settings queue.Settings, dead DeadLetter) {
	n, p := d.p.node, d.p
	q.dead = dead
	h := n.lock(p)
	q.m = queue.New(q.config, settings, &p.pages, q, h.now)
	if n.Index != nil {
		q.m.SetCold(shelf{q})
	}
	p.queues[q.Incarnation] = q
	h.touch(q)
	n.unlock(h)
}

func (d local) do(q *Queue, o operation, a *ask) error {
	n := d.p.node
	return n.with(q, func(h *hold) { o.apply(&execution{n: n, h: h, ask: a}, q) })
}

func (d local) counts(q *Queue) (c Counts) {
	_ = d.p.node.with(q, func(h *hold) {
		q.m.Expire(h.now) // DL-8.6
		c = q.counts(h.now)
	})
	return c
}

func (d local) resume(q *Queue, c *queue.Consumer) {
	_ = d.p.node.with(q, func(h *hold) {
		q.m.Resume(c)
		q.m.Pump(h.now, sliceLimit)
	})
}

func (d local) open(q *Queue, gate queue.Gate) {
	_ = d.p.node.with(q, func(h *hold) {
		q.m.Open(gate)
		q.m.Pump(h.now, sliceLimit)
	})
}

func (d local) configure(q *Queue, settings queue.Settings, dead DeadLetter) {
	var a ask
	if d.do(q, configure{settings, dead}, &a) != nil {
		return
	}
	switch {
	case a.again:
		q.dropHeldSlices()
	case a.retry: // deaths of this change itself were moved with it
		q.retryHeld()
	}
}

func (d local) accept(q *Queue, check func(Counts) error) (c Counts, err error) {
	n := d.p.node
	h := n.lock(d.p)
	if q.gone {
		n.unlock(h)
		return c, errGone
	}
	h.touch(q)
	c = q.counts(h.now)
	if check != nil {
		err = check(c)
	}
	if err == nil {
		var a ask
		remove{}.apply(&execution{n: n, h: h, ask: &a}, q)
		c = a.counts
	}
	n.leaveDead(n.finishHold(h))
	return c, err
}

func (d local) finish(q *Queue, before Counts) Counts {
	d.p.mu.Lock()
	left := q.left
	q.left = nil
	d.p.mu.Unlock()
	for _, c := range left {
		c.Target.(Subscriber).QueueGone(q, c)
	}
	return before
}

func (local) numbered(c *queue.Consumer) attach { return attachmentOf(c) }

func (local) getting(noAck bool) get { return get{noAck: noAck} }

func (local) settle() error { return nil }

// attachmentOf returns the operation that attaches a consumer, without credit.
func attachmentOf(c *queue.Consumer) attach {
	return attach{c.Number, c.NoAck, c.Exclusive, c.Credited, c.Priority, c.Prefetch, c.Timeout, 0, c.Tag}
}

var _, _ driver = local{}, (*group)(nil)
