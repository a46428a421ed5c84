package repair

import (
	"fmt"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// names are the declared queues, by incarnation.
type names map[uint64]Touched

// of returns the name of a queue, even of a deleted one.
func (n names) of(incarnation uint64) Touched {
	if t, ok := n[incarnation]; ok {
		return t
	}
	return Touched{Queue: fmt.Sprintf("#%d, no longer declared", incarnation)}
}

// namesIn returns the queues of a broker.
func namesIn(b *broker.Broker) names {
	n := names{}
	b.Read(func(s *topology.State, _ *auth.Users) { n.add(s) })
	return n
}

func (n names) add(s *topology.State) {
	for _, v := range s.VHosts() {
		for _, q := range v.Queues() {
			n[q.Incarnation] = Touched{VHost: string(q.VHost), Queue: string(q.Name)}
		}
		v.EachWaiting(func(q *topology.Queue) { n[q.Incarnation] = Touched{VHost: string(q.VHost), Queue: string(q.Name)} })
	}
}
