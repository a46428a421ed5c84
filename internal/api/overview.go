package api

import (
	"runtime"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/topology"
)

// erlangVersion is what tools that look for one are told (BR-15.14).
const erlangVersion = "27.0"

var exchangeTypes = []map[string]any{
	{"name": "direct", "description": "AMQP direct exchange, as per the AMQP specification", "enabled": true},
	{"name": "fanout", "description": "AMQP fanout exchange, as per the AMQP specification", "enabled": true},
	{"name": "headers", "description": "AMQP headers exchange, as per the AMQP specification", "enabled": true},
	{"name": "topic", "description": "AMQP topic exchange, as per the AMQP specification", "enabled": true},
	{"name": "x-consistent-hash", "description": "Consistent Hashing Exchange", "enabled": true},
	{"name": "x-local-random", "description": "Picks one random local binding (queue) to route via (to).", "enabled": true},
	{"name": "x-modulus-hash", "description": "Modulus Hashing Exchange", "enabled": true},
}

func (s *server) overview(r *request) (any, error) {
	object := map[string]any{
		"management_version": s.Version, "rabbitmq_version": s.Version,
		"product_name": s.Product, "product_version": s.ProductVersion, "cluster_name": s.clusterName(),
		"cluster_tags": map[string]any{}, "node_tags": map[string]any{}, "node": s.NodeName,
		"erlang_version": erlangVersion, "erlang_full_version": "Erlang/OTP " + erlangVersion + " (" + runtime.Version() + ")",
		"rates_mode": "basic", "exchange_types": exchangeTypes, "default_queue_type": string(s.defaultQueueType()),
		"sample_retention_policies": map[string]any{
			"global": []int{600, 3600, 28800, 86400}, "basic": []int{600, 3600}, "detailed": []int{600},
		},
		"disable_stats": false, "enable_queue_totals": false, "is_op_policy_updating_enabled": true,
		"require_definition_json_extension": false, "statistics_db_event_queue": 0,
		"listeners": s.showListeners(), "contexts": s.showContexts(),
	}
	var total partition.Counts
	queues, exchanges, consumers := 0, 0, 0
	chosen := map[message.VHost]bool{}
	var infos []broker.QueueInfo
	r.eachVHost(func(v *topology.VHost) {
		chosen[v.Name] = true
		exchanges += len(v.Exchanges())
		for _, q := range v.Queues() {
			infos = append(infos, broker.Describe(q))
		}
	})
	queues = len(infos)
	for _, q := range infos {
		c := s.b.Counts(q)
		addCounts(&total, c)
		consumers += c.Consumers
	}
	queueTotals := map[string]any{}
	s.putTotals(queueTotals, "overview\x00"+r.user, total)
	if stats, ok := queueTotals["message_stats"].(map[string]any); ok {
		stats["confirm"] = s.b.Totals.Confirmed.Load()
		stats["drop_unroutable"] = s.b.Totals.UnroutableDropped.Load()
		stats["return_unroutable"] = s.b.Totals.UnroutableReturned.Load()
		stats["disk_reads"], stats["disk_writes"] = 0, 0
		object["message_stats"] = stats
		delete(queueTotals, "message_stats")
	} else {
		object["message_stats"] = map[string]any{}
	}
	object["queue_totals"] = queueTotals
	object["dead_letters"] = showDead(&total.Stats)
	connections := r.connections()
	channels := 0
	for _, c := range connections {
		channels += len(c.Client().ShowChannels())
	}
	object["object_totals"] = map[string]any{
		"queues": queues, "exchanges": exchanges, "consumers": consumers,
		"connections": len(connections), "channels": channels,
	}
	object["churn_rates"] = s.churn()
	return object, nil
}

func (s *server) churn() map[string]any {
	t := &s.b.Totals
	churn := map[string]any{}
	s.rates.put(churn, "churn", map[string]float64{
		"connection_created": float64(t.ConnectionsOpened.Load()), "connection_closed": float64(t.ConnectionsClosed.Load()),
		"channel_created": float64(t.ChannelsOpened.Load()), "channel_closed": float64(t.ChannelsClosed.Load()),
		"queue_declared": float64(t.QueuesDeclared.Load()), "queue_created": float64(t.QueuesCreated.Load()),
		"queue_deleted": float64(t.QueuesGone.Load()),
	})
	return churn
}

func (s *server) listeners() []Listener {
	if s.Listeners == nil {
		return nil
	}
	return s.Listeners()
}

func (s *server) showListeners() []any {
	shown := []any{}
	for _, l := range s.listeners() {
		shown = append(shown, map[string]any{
			"node": s.NodeName, "protocol": l.Protocol, "ip_address": l.Host, "port": l.Port, "tls": l.TLS,
			"socket_opts": map[string]any{"backlog": 128, "nodelay": true},
		})
	}
	return shown
}

// showContexts are the listeners that speak HTTP.
func (s *server) showContexts() []any {
	shown := []any{}
	for _, l := range s.listeners() {
		description := map[string]string{"http": "RabbitMQ Management", "http/prometheus": "RabbitMQ Prometheus"}[l.Protocol]
		if description != "" {
			shown = append(shown, map[string]any{
				"node": s.NodeName, "description": description, "path": "/", "ip": l.Host, "port": l.Port, "ssl_opts": []any{},
			})
		}
	}
	return shown
}

func (s *server) defaultQueueType() topology.QueueType {
	if t := s.b.Options.Topology.DefaultQueueType; t != "" {
		return t
	}
	return topology.Classic
}

const clusterNameParameter = "cluster_name"

// clusterName is what was set, or what the server was configured with.
func (s *server) clusterName() string {
	name := s.ClusterName
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		for _, p := range state.GlobalParameters() {
			if p.Name != clusterNameParameter {
				continue
			}
			if v, err := topology.ParseJSON(p.Value); err == nil {
				if text, ok := v.(string); ok {
					name = text
				}
			}
		}
	})
	return name
}

func (s *server) getClusterName(*request) (any, error) {
	return map[string]any{"name": s.clusterName()}, nil
}

func (s *server) putClusterName(r *request) (any, error) {
	if err := missingKeys(r.body, "name"); err != nil {
		return nil, err
	}
	_, err := s.putGlobal(clusterNameParameter, r.body["name"])
	return nil, err
}

func (s *server) version(*request) (any, error) { return s.Version, nil }

func (s *server) listExtensions(*request) (any, error) { return []any{}, nil }
