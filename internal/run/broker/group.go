package broker

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

// assignGroup gives a quorum queue that was just declared its group of replicas: near, where that is one, and otherwise one
// that its name tells. REQUIRES: topo is held for writing.
func (b *Broker) assignGroup(q *topology.Queue, near uint64) {
	if q.Type != topology.Quorum {
		return
	}
	if near == 0 {
		near = b.node.DefaultGroup(q.VHost, string(q.Name))
	}
	b.state.Place(q, near)
}

// groupOfDead is the group of the first quorum queue that the dead of a queue are routed to now, which is to be
// declared: within a group a death is one command. 0 is none. That keys may lead elsewhere when it is declared does no harm.
// REQUIRES: topo is held for reading, and nothing else. Others may be let in.
func (b *Broker) groupOfDead(d topology.QueueDecl) uint64 {
	q := b.state.PlannedQuorumQueue(d)
	if q == nil || q.Effective.DeadLetterExchange == nil {
		return 0
	}
	v, ok := b.state.VHost(q.VHost)
	if !ok {
		return 0
	}
	e := q.Effective
	x, ok := v.Exchange(message.ExchangeName(*e.DeadLetterExchange))
	if !ok {
		return 0
	}
	m := routing.Message{Key: []byte(q.Name), Pause: b.onPause} // as published to the default exchange
	if e.DeadLetterRoutingKey != nil {
		m.Key = []byte(*e.DeadLetterRoutingKey)
	}
	var router topology.Router
	for _, t := range router.Route(v, x, &m, nil) {
		if t.Group != 0 {
			return t.Group
		}
	}
	return 0
}
