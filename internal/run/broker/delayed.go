package broker

import (
	"cmp"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// Exchanges of the type x-delayed-message: what waits in them, and its end. How it gets there is topology's
// (Router.Route), how it leaves partition's (delayed.go).

// released returns what counts the messages that an exchange has delayed, when they go on. REQUIRES: topo is held, or
// nobody else is there yet.
func (b *Broker) released(x *topology.Exchange) func(copies int) {
	s, t := b.statsOf(x), &b.Totals.Traffic[LoginAMQP091]
	return func(copies int) {
		if copies == 0 {
			s.Dropped.Add(1)
			b.unroutable(t, 1)
			return
		}
		s.Out.Add(uint64(copies))
		t.Routed.Add(uint64(copies))
	}
}

// endDelayed ends the queues of exchanges that were just deleted: what waits in them is dropped. REQUIRES: called within
// mutating.
func (b *Broker) endDelayed() (ended []endedQueue) {
	for _, q := range b.state.TakeEnded() {
		if q.Durable {
			b.removing()
		}
		if n, err := b.node.Delete(runtimeOf(q), nil); err == nil {
			ended = append(ended, endedQueue{q, n})
		}
	}
	return ended
}

// dropDelayed tells of what was dropped with exchanges, once the store has their deletion.
func (b *Broker) dropDelayed(ended []endedQueue) {
	for _, e := range ended {
		n := b.node.Deleted(runtimeOf(e.q), e.held)
		b.countDropped(e.q, n.Messages(), "Delayed messages are dropped: their exchange was deleted")
	}
}

// countDropped counts delayed messages that will go nowhere, and logs them.
func (b *Broker) countDropped(q *topology.Queue, messages int, why string) {
	if messages == 0 {
		return
	}
	b.Totals.DelayedDropped.Add(uint64(messages))
	b.Logger.Warn(why, "vhost", string(q.VHost), "exchange", string(q.Delays.Name), "messages", messages)
}

// Delayed is how many messages wait in the exchange; ok is false if it is none that delays messages.
func (b *Broker) Delayed(x ExchangeInfo) (messages int, ok bool) {
	if x.waiting == nil {
		return 0, false
	}
	n := b.node.Counts(x.waiting)
	return n.Messages(), true
}

// PurgeExchange drops the messages that wait in an exchange, and returns how many that were. What is due is on its way,
// and is none of them.
func (c *Connection) PurgeExchange(name message.ExchangeName) (messages int, err error) {
	var q *topology.Queue
	err = c.decided(func() error {
		var err error
		failed := c.b.look(func() { q, err = c.seeWaiting(name) })
		return cmp.Or(failed, err)
	})
	if err != nil {
		return 0, err
	}
	messages, err = c.b.node.Purge(runtimeOf(q))
	if partition.Gone(err) {
		return 0, topology.NoExchange(c.VHost, name)
	}
	c.b.countDropped(q, messages, "Delayed messages are dropped: their exchange was purged")
	return messages, err
}

// seeWaiting finds the queue of an exchange that the client may purge. Whoever may delete the exchange may. REQUIRES: topo
// is held.
func (c *Connection) seeWaiting(name message.ExchangeName) (*topology.Queue, error) {
	name = topology.CleanName(name)
	x, err := c.b.state.PassiveExchange(c.VHost, name)
	if denied := c.permit(topology.Configure, topology.Resource{VHost: c.VHost, Kind: topology.ExchangeResource, Name: string(name)}); denied != nil && name != "" {
		return nil, denied
	}
	if err != nil {
		return nil, err
	}
	if x.Waiting == nil {
		return nil, topology.Refuse(topology.PreconditionFailed, "%s delays no messages: its type is '%s', and not 'x-delayed-message'", x.Resource(), x.Type)
	}
	return x.Waiting, nil
}
