package broker

import (
	"context"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// RelocateStranded sends stranded messages of a virtual host to the queue `to`, or back to the queue they left if
// `to` is empty. `from` limits it to messages that left that queue; empty means all. limit is how many at most, 0
// all. It returns how many went; messages without a place there stay stranded. It stops when ctx ends.
func (b *Broker) RelocateStranded(ctx context.Context, v message.VHost, from, to message.QueueName, limit int) (moved int, err error) {
	r := partition.Relocation{VHost: v, Limit: limit}
	b.Read(func(s *topology.State, _ *auth.Users) {
		vhost, ok := s.VHost(v)
		if !ok {
			err = topology.Refuse(topology.NotFound, "vhost %s not found", v)
			return
		}
		for _, each := range []struct {
			name message.QueueName
			q    **partition.Queue
		}{{from, &r.Source}, {to, &r.Target}} {
			if each.name == "" {
				continue
			}
			q, ok := vhost.Queue(each.name)
			if !ok {
				err = topology.NoQueue(v, each.name)
				return
			}
			*each.q = runtimeOf(q)
		}
	})
	if err != nil {
		return 0, err
	}
	return b.node.Relocate(ctx, r)
}
