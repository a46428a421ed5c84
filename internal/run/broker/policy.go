package broker

import (
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// takeover applies the present policies to all queues and exchanges of a virtual host. It takes a few at a time, and
// matches their names with the topology unlocked. Only one takeover runs at a time, including the change of queues'
// settings: otherwise an older change could reach a queue after a newer one.
func (b *Broker) takeover(vhost message.VHost) {
	const few, soon = 256, 2 * time.Millisecond
	b.policies.Lock()
	defer b.policies.Unlock()
	b.topo.RLock()
	t := b.state.Takeover(vhost)
	b.topo.RUnlock()
	t.Order()
	for {
		b.topo.RLock()
		r := t.Rules()
		b.topo.RUnlock()
		began := time.Now()
		if !t.Match(r, few, func() bool { return time.Since(began) > soon }) {
			return
		}
		b.topo.Lock()
		queues, rerouted := b.state.Apply(t)
		if rerouted {
			b.revision.Add(1)
			b.retap()
		}
		b.topo.Unlock()
		b.reconfigure(queues)
	}
}

// settings turns the effective arguments and policies of a queue into a machine's settings.
func (b *Broker) settings(q *topology.Queue) (queue.Settings, partition.DeadLetter) {
	e := q.Effective
	or := func(v *int64) int64 {
		if v == nil {
			return -1
		}
		return *v
	}
	s := queue.Settings{
		DeadLetter: e.DeadLetterExchange != nil, LostAndFound: b.FindsLost(q), AtLeastOnce: e.Strategy == topology.AtLeastOnce,
		TTL: or(e.MessageTTL), Expires: or(e.Expires), MaxLength: or(e.MaxLength), MaxBytes: or(e.MaxLengthBytes),
		Overflow: e.Overflow, DeliveryLimit: or(e.DeliveryLimit), CountNack: !q.Strict, ConsumerTimeout: or(e.ConsumerTimeout), Retry: e.DelayedRetry, Breaker: e.Breaker,
	}
	if e.ConsumerTimeout == nil && b.ConsumerTimeout > 0 {
		s.ConsumerTimeout = b.ConsumerTimeout.Milliseconds()
	}
	if b.CountNack != nil {
		s.CountNack = *b.CountNack
	}
	b.govern(q, &s)
	var dead partition.DeadLetter
	if e.DeadLetterExchange != nil {
		dead.Exchange = *e.DeadLetterExchange
		if e.DeadLetterRoutingKey != nil {
			dead.Key, dead.HasKey = *e.DeadLetterRoutingKey, true
		}
	}
	return s, dead
}

// reconfigure passes changed settings to the queues. REQUIRES: topo is not held.
func (b *Broker) reconfigure(queues []*topology.Queue) {
	for _, q := range queues {
		b.topo.RLock()
		s, dead := b.settings(q)
		rt := runtimeOf(q)
		b.topo.RUnlock()
		b.node.Configure(rt, s, dead)
		if s.DeadLetter {
			b.deadLetters(q)
		}
	}
}
