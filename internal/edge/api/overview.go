package api

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// erlangVersion is for tools that look for an Erlang version (BR-15.14).
const erlangVersion = "27.0"

func erlangFullVersion() string {
	return "Erlang/OTP " + erlangVersion + " (" + runtime.Version() + ")"
}

// cryptoLibrary is the TLS library.
const cryptoLibrary = "Go crypto/tls"

// exchangeTypes lists the types of exchanges, in strict mode those that come with RabbitMQ.
func (s *server) exchangeTypes() []map[string]any {
	if s.b.Strict {
		return bundledTypes
	}
	return slices.Insert(slices.Clone(bundledTypes), 5, delayedType)
}

// delayedType is listed as RabbitMQ lists the type of its plugin.
var delayedType = map[string]any{"name": "x-delayed-message", "description": "Delayed Message Exchange.", "enabled": true}

var bundledTypes = []map[string]any{
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
		"cluster_tags": s.clusterTags(), "node_tags": map[string]any{}, "node": s.NodeName,
		"erlang_version": erlangVersion, "erlang_full_version": erlangFullVersion(), "crypto_lib_version": cryptoLibrary,
		"rates_mode": "basic", "exchange_types": s.exchangeTypes(), "default_queue_type": string(s.defaultQueueType()),
		"sample_retention_policies": map[string]any{
			"global": []int{600, 3600, 28800, 86400}, "basic": []int{600, 3600}, "detailed": []int{600},
		},
		"disable_stats": false, "enable_queue_totals": false, "is_op_policy_updating_enabled": !s.KeepOperatorPolicies,
		"require_definition_json_extension": false, "statistics_db_event_queue": 0,
		"listeners": s.showListeners(), "contexts": s.showContexts(true),
	}
	sp, name := r.spans(), overviewName
	if !r.may(monitoring) {
		name += r.user // who sees less has figures of his own
	}
	t := s.totals(r.eachVHost, r.may(monitoring))
	lengths := map[string]any{}
	s.putLengths(lengths, name, sp, &t.counts)
	object["queue_totals"] = lengths
	// Tools take a missing message_stats for a refusal, so it is always there and never
	// empty (RabbitMQ's disk counters).
	s.putStats(object, name, sp, true, t.publishes, deliveries(&t.counts.Stats))
	s.history.put(object["message_stats"].(map[string]any), name+"\x00disk", sp.rates, map[string]float64{"disk_reads": 0, "disk_writes": 0})
	object["dead_letters"] = showDead(&t.counts.Stats)
	connections := r.connections()
	channels := 0
	for _, c := range connections {
		channels += c.Client().Status().Channels
	}
	object["object_totals"] = map[string]any{
		"queues": t.queues, "exchanges": t.exchanges, "consumers": t.consumers,
		"connections": len(connections), "channels": channels,
	}
	churn := map[string]any{}
	s.history.put(churn, churnName, sp.rates, s.churn())
	object["churn_rates"] = churn
	if s.b.Strict {
		r.trimOverview(object)
	} else if t.open > 0 {
		object["breakers"] = map[string]any{"open": t.open, "queues": t.broken}
	}
	query := r.query()
	if s.b.Strict && r.URL.Query().Has("page") {
		query.Del("columns")
	}
	wanted, bad := topColumnsOf(query)
	if bad != nil {
		return nil, bad
	}
	return withStatus{http.StatusOK, r.shown(object, wanted)}, nil
}

// overviewName and churnName are what the history calls the figures of the overview, and the counts of what came and went.
const overviewName, churnName = "overview\x00", "churn"

// totals are sums over virtual hosts. counts includes deleted queues, except of consumers, if all virtual hosts count.
type totals struct {
	counts                       partition.Counts
	publishes                    statGroup
	queues, exchanges, consumers int
	open                         int           // breakers that are not closed
	broken                       []brokenQueue // the first of their queues
}

// brokenQueue is a queue whose breaker is open, or tries.
type brokenQueue struct {
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	shownBreaker
}

// mostBroken is how many of them the overview names.
const mostBroken = 20

// totals sums up the virtual hosts that each shows; all says that these are all, so that what has gone counts too.
func (s *server) totals(each func(func(*topology.VHost)), all bool) (t totals) {
	var queues []broker.QueueInfo
	var stats []*broker.ExchangeStats
	each(func(v *topology.VHost) {
		v.EachExchange(func(x *topology.Exchange) {
			t.exchanges++
			if !all {
				stats = append(stats, s.b.ExchangeStats(x))
			}
		})
		v.EachQueue(func(q *topology.Queue) { queues = append(queues, broker.Describe(q)) })
	})
	for _, q := range queues {
		c := s.b.Counts(q)
		addCounts(&t.counts, c)
		if b := c.Breaker; b.State == queue.BreakerOpen || b.State == queue.BreakerTrying {
			if t.open++; t.open <= mostBroken {
				t.broken = append(t.broken, brokenQueue{string(q.Decl.VHost), string(q.Decl.Name), showBreaker(b)})
			}
		}
	}
	t.queues, t.consumers = len(queues), t.counts.Consumers
	if all {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			gone := s.b.StatsOfDeleted(kind)
			t.counts.Stats.Add(&gone)
		}
		n := &s.b.Totals
		sum := func(of func(*broker.Traffic) *atomic.Uint64) uint64 { return n.Sum(of) }
		t.publishes = publishes(
			sum(func(t *broker.Traffic) *atomic.Uint64 { return &t.Published }), sum(func(t *broker.Traffic) *atomic.Uint64 { return &t.Confirmed }),
			sum(func(t *broker.Traffic) *atomic.Uint64 { return &t.UnroutableReturned }), sum(func(t *broker.Traffic) *atomic.Uint64 { return &t.UnroutableDropped }),
		)
		return t
	}
	published, returned, dropped := uint64(0), uint64(0), uint64(0)
	for _, x := range stats {
		published += x.In.Load()
		returned += x.Returned.Load()
		dropped += x.Dropped.Load()
	}
	t.publishes = publishes(published, t.counts.Stats.Confirmed, returned, dropped)
	return t
}

// trimOverview leaves out what RabbitMQ does not show: without statistics all of them, and to users who may not monitor what they may
// not see.
func (r *request) trimOverview(object map[string]any) {
	object["disable_stats"], object["enable_queue_totals"] = r.without(), r.flag("enable_queue_totals")
	if r.without() {
		for _, key := range []string{"churn_rates", "contexts", "dead_letters", "listeners", "message_stats", "queue_totals", "statistics_db_event_queue"} {
			delete(object, key)
		}
		totals := object["object_totals"].(map[string]any)
		delete(totals, "channels")
		delete(totals, "consumers")
		if !r.may(monitoring) {
			delete(totals, "connections")
		}
		return
	}
	if !r.may(monitoring) {
		delete(object, "contexts")
		delete(object, "listeners")
		delete(object, "node")
		delete(object["object_totals"].(map[string]any), "consumers")
	}
}

// churn counts opened and closed connections and channels, and declared and deleted queues.
func (s *server) churn() map[string]float64 {
	t := &s.b.Totals
	return map[string]float64{
		"connection_created": float64(t.ConnectionsOpened.Load()), "connection_closed": float64(t.ConnectionsClosed.Load()),
		"channel_created": float64(t.ChannelsOpened.Load()), "channel_closed": float64(t.ChannelsClosed.Load()),
		"queue_declared": float64(t.QueuesDeclared.Load()), "queue_created": float64(t.QueuesCreated.Load()),
		"queue_deleted": float64(t.QueuesGone.Load()),
	}
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
			"socket_opts": map[string]any{"backlog": 128, "nodelay": true, "linger": []any{true, 0}, "exit_on_close": false},
		})
	}
	return shown
}

// contexts are RabbitMQ's descriptions of HTTP listeners, by protocol.
var contexts = map[string]string{
	"http": "RabbitMQ Management", "https": "RabbitMQ Management",
	"http/prometheus": "RabbitMQ Prometheus", "https/prometheus": "RabbitMQ Prometheus",
}

// showContexts lists them, the port as text. A node's own list does not repeat its name.
func (s *server) showContexts(withNode bool) []any {
	shown := []any{}
	for _, l := range s.listeners() {
		description, ok := contexts[l.Protocol]
		if !ok {
			continue
		}
		c := map[string]any{
			"description": description, "path": "/", "ip": l.Host, "port": strconv.Itoa(l.Port), "protocol": l.Protocol, "cowboy_opts": "",
		}
		if s.b.Strict {
			delete(c, "protocol")
			if strings.HasPrefix(description, "RabbitMQ Management") {
				c["cowboy_opts"] = "[{sendfile,false}]"
			}
		}
		if withNode {
			c["node"], c["ssl_opts"] = s.NodeName, []any{}
		}
		shown = append(shown, c)
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

// clusterName is the name that was set, or the configured one.
func (s *server) clusterName() string {
	if name, ok := s.globalParameter(clusterNameParameter).(string); ok {
		return name
	}
	return s.ClusterName
}

// clusterTags are what a global parameter says.
func (s *server) clusterTags() any {
	if tags, ok := s.globalParameter(clusterTags).(map[string]any); ok {
		return tags
	}
	return map[string]any{}
}

// globalParameter is the value of one, nil if there is none.
func (s *server) globalParameter(name string) (value any) {
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		for _, p := range state.GlobalParameters() {
			if p.Name == name {
				value, _ = topology.ParseJSON(p.Value)
			}
		}
	})
	return value
}

func (s *server) getClusterName(*request) (any, error) {
	return map[string]any{"name": s.clusterName()}, nil
}

func (s *server) putClusterName(r *request) (any, error) {
	if err := missingKeys(r.body, "name"); err != nil {
		return nil, err
	}
	_, err := r.putGlobal(clusterNameParameter, r.body["name"])
	return nil, err
}

func (s *server) version(*request) (any, error) { return s.Version, nil }

// listExtensions are the scripts that RabbitMQ's management page would load.
func (s *server) listExtensions(*request) (any, error) {
	return []any{
		map[string]any{"javascript": "dispatcher.js"},
		map[string]any{"javascript": []string{"shovel_management-ejs.js", "shovel.js"}}, // by which tools see that shovels can be managed
	}, nil
}
