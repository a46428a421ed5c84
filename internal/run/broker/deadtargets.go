package broker

import (
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// DeadLetterTargets are the queues that dead letters of another are routed to, as
// far as that is known without a message: through the default exchange by the key,
// through others all that are bound to them. The declarations are let go between any
// two exchanges, each of which is looked at once, however many queues share it.
func (b *Broker) DeadLetterTargets() map[*topology.Queue]bool {
	targets := map[*topology.Queue]bool{}
	for x, from := range b.deadLetterExchanges(targets) {
		b.topo.RLock()
		x.EachBindingFrom(func(binding *topology.Binding) {
			if to := binding.Queue; to != nil && (from.others || from.first != to) {
				targets[to] = true
			}
		})
		b.topo.RUnlock()
	}
	return targets
}

// deadSources are the queues whose dead letters an exchange gets.
type deadSources struct {
	first  *topology.Queue
	others bool
}

// deadLetterExchanges are those that queues have, but for the default one: where that leads
// is added to targets.
func (b *Broker) deadLetterExchanges(targets map[*topology.Queue]bool) map[*topology.Exchange]deadSources {
	found := map[*topology.Exchange]deadSources{}
	b.topo.RLock()
	defer b.topo.RUnlock()
	for _, v := range b.state.VHosts() {
		v.EachQueue(func(q *topology.Queue) {
			e := q.Effective
			if e.DeadLetterExchange == nil {
				return
			}
			name := message.ExchangeName(*e.DeadLetterExchange)
			if name == "" {
				if e.DeadLetterRoutingKey != nil {
					if to, ok := v.Queue(message.QueueName(*e.DeadLetterRoutingKey)); ok && to != q {
						targets[to] = true
					}
				}
				return
			}
			x, ok := v.Exchange(name)
			if !ok {
				return
			}
			if from := found[x]; from.first == nil {
				found[x] = deadSources{first: q}
			} else if !from.others {
				found[x] = deadSources{from.first, true}
			}
		})
	}
	return found
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
// seconds since 1970; ok is false if there is none at the front.
func (b *Broker) HeadTimestamp(q QueueInfo) (seconds uint64, ok bool) {
	_, _, _ = b.node.Browse(q.runtime, queue.Cursor{}, queueFront, func(v queue.View, r message.Record, _ []byte) bool {
		if v.Out || v.Dead || v.NotBefore != 0 {
			return true
		}
		if p, err := amqp091.ParseProps(r.Properties()); err == nil && p.Has(amqp091.FlagTimestamp) {
			seconds, ok = p.Timestamp, true
		}
		return false
	})
	return seconds, ok
}
