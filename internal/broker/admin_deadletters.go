package broker

import (
	"time"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
	"bartleby.mq/internal/topology"
)

// DeadLetterTargets are the queues that dead letters of another are routed to, as
// far as that is known without a message: through the default exchange by the key,
// through others all that are bound to them.
func (b *Broker) DeadLetterTargets() map[*topology.Queue]bool {
	b.topo.RLock()
	defer b.topo.RUnlock()
	targets := map[*topology.Queue]bool{}
	for _, v := range b.state.VHosts() {
		for _, q := range v.Queues() {
			e := q.Effective
			if e.DeadLetterExchange == nil {
				continue
			}
			name := message.ExchangeName(*e.DeadLetterExchange)
			if name == "" {
				if e.DeadLetterRoutingKey != nil {
					if to, ok := v.Queue(message.QueueName(*e.DeadLetterRoutingKey)); ok && to != q {
						targets[to] = true
					}
				}
				continue
			}
			x, ok := v.Exchange(name)
			if !ok {
				continue
			}
			for _, binding := range x.BindingsFrom() {
				if d := binding.Destination(); d.Kind == topology.QueueResource {
					if to, ok := v.Queue(message.QueueName(d.Name)); ok && to != q {
						targets[to] = true
					}
				}
			}
		}
	}
	return targets
}

// Oldest is since when the first message that is ready has been in the queue: since
// its last death if it has died, else since it was published; ok is false if none is
// ready at the front.
func (b *Broker) Oldest(q QueueInfo) (since time.Time, ok bool) {
	_, _, _ = b.node.Browse(q.runtime, queue.Cursor{}, queueFront, func(v queue.View, r message.Record, history []byte) bool {
		if v.Out || v.Dead || v.NotBefore != 0 {
			return true
		}
		since, ok = time.UnixMilli(r.Serial().UnixMilli()), true
		if h, err := deadletter.Parse(history); err == nil && len(h.Deaths) > 0 {
			since = time.UnixMilli(h.Deaths[0].Last)
		}
		return false
	})
	return since, ok
}

// queueFront is how many entries are looked at to find the first that is ready:
// deliveries that are out may hide it.
const queueFront = 16

// HeadTimestamp is the timestamp property of the first message that is ready, in
// seconds since 1970; nil if there is none at the front.
func (b *Broker) HeadTimestamp(q QueueInfo) (seconds any) {
	_, _, _ = b.node.Browse(q.runtime, queue.Cursor{}, queueFront, func(v queue.View, r message.Record, _ []byte) bool {
		if v.Out || v.Dead || v.NotBefore != 0 {
			return true
		}
		if p, err := amqp091.ParseProps(r.Properties()); err == nil && p.Has(amqp091.FlagTimestamp) {
			seconds = p.Timestamp
		}
		return false
	})
	return seconds
}
