package broker

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

// assignGroup gives a new quorum queue its group: near if that is not 0, otherwise the one that its name determines.
// REQUIRES: topo is held for writing.
func (b *Broker) assignGroup(q *topology.Queue, near uint64) {
	if q.Type != topology.Quorum {
		return
	}
	if near == 0 {
		near = b.node.DefaultGroup(q.VHost, string(q.Name))
	}
	b.state.Place(q, near)
}

// groupOfDead returns the group of the first quorum queue that gets the dead letters of a queue that will be
// declared; 0 if there is none. Within one group a death is one command. It does no harm if keys lead elsewhere
// later. REQUIRES: topo is held for reading, and nothing else is held. It may let others in.
func (b *Broker) groupOfDead(p *topology.Plan) uint64 {
	q := p.Queue()
	if q.Type != topology.Quorum || q.Effective.DeadLetterExchange == nil {
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
	m := routing.Message{Key: []byte(q.Name), Pause: b.onPause} // as a message published to the default exchange
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
