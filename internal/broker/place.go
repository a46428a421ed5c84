package broker

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/routing"
	"bartleby.mq/internal/topology"
)

// place chooses the group of replicas of a quorum queue that was just declared:
// that of the queue its dead go to, since within a group a death is one command, and
// otherwise one that its name tells. REQUIRES: topo is held for writing.
func (b *Broker) place(q *topology.Queue) {
	if q.Type != topology.Quorum {
		return
	}
	group := b.node.DefaultGroup(q.VHost, string(q.Name))
	if near := b.groupOfDead(q); near != 0 {
		group = near
	}
	b.state.Place(q, group)
}

// groupOfDead is the group of the first quorum queue that the dead of q are routed
// to now, 0 if there is none.
func (b *Broker) groupOfDead(q *topology.Queue) uint64 {
	e := q.Effective
	if e.DeadLetterExchange == nil {
		return 0
	}
	v, ok := b.state.VHost(q.VHost)
	if !ok {
		return 0
	}
	x, ok := v.Exchange(message.ExchangeName(*e.DeadLetterExchange))
	if !ok {
		return 0
	}
	m := routing.Message{Key: []byte(q.Name)} // as published to the default exchange
	if e.DeadLetterRoutingKey != nil {
		m.Key = []byte(*e.DeadLetterRoutingKey)
	}
	var router topology.Router
	for _, t := range router.Route(v, x, &m, nil) {
		if t.Group != 0 && t != q {
			return t.Group
		}
	}
	return 0
}
