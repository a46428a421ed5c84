package api

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// eachConsumer calls f for every consumer of the chosen virtual hosts.
func (s *server) eachConsumer(chosen func(message.VHost) bool, f func(broker.QueueInfo, broker.AttachedConsumer)) {
	var queues []broker.QueueInfo
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		for _, v := range state.VHosts() {
			if !chosen(v.Name) {
				continue
			}
			v.EachQueue(func(q *topology.Queue) { queues = append(queues, broker.Describe(q)) })
		}
	})
	for _, q := range broker.SortQueues(queues) {
		for _, c := range s.b.Consumers(q) {
			f(q, c)
		}
	}
}

func (s *server) listConsumers(r *request) (any, error) {
	chosen := map[message.VHost]bool{}
	r.eachVHost(func(v *topology.VHost) { chosen[v.Name] = true })
	items := []map[string]any{}
	s.eachConsumer(func(v message.VHost) bool { return chosen[v] }, func(q broker.QueueInfo, c broker.AttachedConsumer) {
		if s.b.Strict && c.User != r.user && !r.may(monitoring) {
			return
		}
		items = append(items, s.showConsumer(q, c))
	})
	return objects(items), nil
}

// showConsumer is the object of BR-15.15.
func (s *server) showConsumer(q broker.QueueInfo, c broker.AttachedConsumer) map[string]any {
	status := "up"
	if q.Effective.SingleActiveConsumer {
		status = "single_active"
		if !c.Active {
			status = "waiting"
		}
	}
	return map[string]any{
		"consumer_tag": c.Tag, "queue": map[string]any{"name": string(q.Decl.Name), "vhost": string(q.Decl.VHost)},
		"ack_required": !c.NoAck, "exclusive": c.Exclusive, "prefetch_count": c.Prefetch, "active": c.Active,
		"activity_status": status, "arguments": topology.ArgumentsJSON(c.Arguments), "consumer_timeout": s.consumerTimeout(q, c),
		"channel_details": map[string]any{
			"name": c.Channel, "number": c.Number, "connection_name": c.Connection, "user": c.User, "node": s.NodeName,
			"peer_host": c.PeerHost, "peer_port": c.PeerPort,
		},
	}
}

// consumerTimeout is how long a delivery may stay unsettled, in milliseconds; 0 means forever.
func (s *server) consumerTimeout(q broker.QueueInfo, c broker.AttachedConsumer) int64 {
	switch {
	case c.Timeout > 0:
		return c.Timeout
	case q.Effective.ConsumerTimeout != nil:
		return *q.Effective.ConsumerTimeout
	}
	return max(0, s.b.ConsumerTimeout.Milliseconds())
}
