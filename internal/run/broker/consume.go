package broker

import (
	"iter"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// Got is a message that basic.get took. Its references are the caller's.
type Got struct {
	Queue *partition.Queue
	queue.Delivery
	Left int // number of ready messages left
}

// Get takes one message from a queue (BR-9.10). ok is false if there is none.
func (c *Connection) Get(name message.QueueName, noAck bool) (g Got, ok bool, err error) {
	q, err := c.find(name, c.readable)
	if err != nil {
		return Got{}, false, err
	}
	g.Queue = runtimeOf(q)
	if config := g.Queue.Config(); config.Type == queue.Quorum && config.SingleActive {
		return Got{}, false, topology.Refuse(topology.ResourceLocked,
			`cannot obtain access to locked %s. basic.get operations are not supported by <<"quorum">> queues with single active consumer`, q.Resource())
	}
	g.Delivery, g.Left, ok, err = c.b.node.Get(g.Queue, noAck)
	return g, ok, missing(err, q)
}

// Consume attaches a consumer to a queue (BR-9.1). attached is called before the first delivery, with the queue
// locked.
func (c *Connection) Consume(name message.QueueName, consumer *queue.Consumer, attached func(*partition.Queue)) (*partition.Queue, error) {
	q, err := c.find(name, c.readable)
	if err != nil {
		return nil, err
	}
	rt := runtimeOf(q)
	ok, err := c.b.node.Attach(rt, consumer, func() { attached(rt) })
	if err != nil {
		return nil, missing(err, q)
	}
	if !ok {
		return nil, topology.Refuse(topology.AccessRefused, "%s in exclusive use", q.Resource())
	}
	c.notifyConsumer(rt, consumer)
	return rt, nil
}

// missing turns a partition's error about the queue into the client's error.
func missing(err error, q *topology.Queue) error {
	switch {
	case partition.Gone(err):
		return topology.NoQueue(q.VHost, q.Name)
	case partition.Lost(err):
		return topology.Refuse(topology.Internal, "%s has no leader", q.Resource())
	}
	return err
}

// Cancel detaches a consumer; its deliveries stay unsettled. detached is called with the queue locked, and no
// delivery follows. An auto-delete queue is deleted with its last consumer (BR-7.6).
func (c *Connection) Cancel(q *partition.Queue, consumer *queue.Consumer, detached func()) {
	left, was := c.b.node.Detach(q, consumer, detached)
	if was && left == 0 {
		c.b.unconsumed(q)
	}
}

// Quit detaches consumers, and gives back everything they hold and other deliveries: see partition.Node.Quit.
// Auto-delete queues are deleted with their last consumers.
func (c *Connection) Quit(seats []partition.Seat, returns iter.Seq[partition.Delivered]) (applied func()) {
	applied = c.b.node.Quit(seats, returns)
	left := map[*partition.Queue]bool{}
	for _, s := range seats { // each queue once: it is a change of declarations, even if others still consume
		if !left[s.Queue] {
			left[s.Queue] = true
			c.b.unconsumed(s.Queue)
		}
	}
	return applied
}

// unconsumed deletes an auto-delete queue that has lost its last consumer.
func (b *Broker) unconsumed(q *partition.Queue) {
	decl := q.Info.(*topology.Queue)
	if !decl.AutoDelete {
		return
	}
	_, _ = b.remove(decl, internalUser, func(n partition.Counts) error {
		if n.Consumers > 0 {
			return topology.Refuse(topology.PreconditionFailed, "%s in use", decl.Resource())
		}
		return nil
	})
}

// Resume lets a consumer have deliveries again.
func (c *Connection) Resume(q *partition.Queue, consumer *queue.Consumer) {
	c.b.node.Resume(q, consumer)
}

// Grant changes the credit of a consumer that was attached with Credited: see partition.Node.Grant.
func (c *Connection) Grant(q *partition.Queue, consumer *queue.Consumer, more int, drain bool) (drained, ready int, err error) {
	drained, ready, err = c.b.node.Grant(q, consumer, more, drain)
	return drained, ready, missing(err, q.Info.(*topology.Queue))
}

// Open makes the queue try its consumers with this gate again.
func (c *Connection) Open(q *partition.Queue, gate queue.Gate) { c.b.node.Open(q, gate) }

// Share puts consumers of the queue under a gate: see partition.Node.Share.
func (c *Connection) Share(q *partition.Queue, list []*queue.Consumer, gate queue.Gate) {
	c.b.node.Share(q, list, gate)
}

// HasQueue says whether the virtual host has the queue, whoever may use it.
func (c *Connection) HasQueue(name message.QueueName) (has bool) {
	c.b.glance(func() {
		if v, ok := c.b.state.VHost(c.VHost); ok {
			_, has = v.Queue(name)
		}
	})
	return has
}
