package broker

import (
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// DeadLetterTargets returns the queues that get dead letters of others, as far as that is known without a message:
// from the default exchange the queue that the key names, from other exchanges all queues bound to them. It unlocks
// the declarations after each exchange, and looks at each exchange once, even if many queues share it.
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

// deadLetterExchanges returns the dead-letter exchanges of queues. For the default exchange it adds the target to
// targets.
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

// Oldest is since when the first ready message has been in the queue: since its last death, or since it was published
// if it has not died. ok is false if no message at the front is ready.
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

// queueFront is how many entries are looked at to find the first ready one. Deliveries that are out come before it.
const queueFront = 16

// HeadTimestamp is the timestamp property of the first ready message, in seconds since 1970. ok is false if there is
// none at the front.
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
