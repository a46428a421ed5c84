package api

import (
	"slices"

	"bartleby.mq/internal/core/topology"
)

// featureFlag is RabbitMQ's description of a feature that is off until every node of a
// cluster has it. Here all are on from the start.
type featureFlag struct {
	name, desc, stability, level, provider string
	callbacks                              []string
}

const (
	required = "required"
	stable   = "stable"
)

// featureFlags are RabbitMQ 4.3's. Tools check some of them before they use the feature.
var featureFlags = []featureFlag{
	{"classic_mirrored_queue_version", "Support setting version for classic mirrored queues", required, "hard", "rabbit", nil},
	{"classic_queue_type_delivery_support", "Bug fix for classic queue deliveries using mixed versions", required, "hard", "rabbit", nil},
	{"detailed_queues_endpoint", "Add a detailed queues HTTP API endpoint. Reduce number of metrics in the default endpoint.", required, "soft", "rabbitmq_management", nil},
	{"direct_exchange_routing_v2", "v2 direct exchange routing implementation", required, "hard", "rabbit", nil},
	{"drop_unroutable_metric", "Count unroutable publishes to be dropped in stats", required, "hard", "rabbitmq_management_agent", nil},
	{"empty_basic_get_metric", "Count AMQP `basic.get` on empty queues in stats", required, "hard", "rabbitmq_management_agent", nil},
	{"feature_flags_v2", "Feature flags subsystem V2", required, "hard", "rabbit", nil},
	{"implicit_default_bindings", "Default bindings are now implicit, instead of being stored in the database", required, "hard", "rabbit", nil},
	{"khepri_db", "New Raft-based metadata store.", required, "soft", "rabbit", []string{"enable", "post_enable"}},
	{"listener_records_in_ets", "Store listener records in ETS instead of Mnesia", required, "hard", "rabbit", nil},
	{"maintenance_mode_status", "Maintenance mode status", required, "hard", "rabbit", nil},
	{"message_containers", "Message containers.", required, "hard", "rabbit", nil},
	{"message_containers_deaths_v2", "Bug fix for dead letter cycle detection", required, "soft", "rabbit", nil},
	{"quorum_queue", "Support queues of type `quorum`", required, "hard", "rabbit", nil},
	{"quorum_queue_non_voters", "Allows new quorum queue members to be added as non voters initially.", required, "soft", "rabbit", nil},
	{"rabbit_exchange_type_local_random", "Local random exchange", required, "soft", "rabbit", nil},
	{"rabbitmq_4.0.0", "Allows rolling upgrades from 3.13.x to 4.0.x", required, "soft", "rabbit", nil},
	{"rabbitmq_4.1.0", "Allows rolling upgrades to 4.1.x", required, "soft", "rabbit", nil},
	{"rabbitmq_4.2.0", "Allows rolling upgrades to 4.2.x", required, "soft", "rabbit", []string{"enable"}},
	{"rabbitmq_4.3.0", "Allows rolling upgrades to 4.3.x", stable, "none", "rabbit", nil},
	{"restart_streams", "Support for restarting streams with optional preferred next leader argument.Used to implement stream leader rebalancing", required, "hard", "rabbit", nil},
	{"stream_queue", "Support queues of type `stream`", required, "hard", "rabbit", nil},
	{"tracking_records_in_ets", "Store tracking records in ETS instead of Mnesia", required, "hard", "rabbit", nil},
	{"user_limits", "Configure connection and channel limits for a user", required, "hard", "rabbit", nil},
	{"virtual_host_metadata", "Virtual host metadata (description, tags, etc)", required, "hard", "rabbit", nil},
}

// featureFlagPages are the pages about some of them.
var featureFlagPages = map[string]string{
	"classic_queue_type_delivery_support": "https://github.com/rabbitmq/rabbitmq-server/issues/5931",
	"khepri_db":                           "https://www.rabbitmq.com/docs/next/metadata-store",
	"message_containers_deaths_v2":        "https://github.com/rabbitmq/rabbitmq-server/issues/11159",
	"quorum_queue":                        "https://www.rabbitmq.com/docs/quorum-queues",
	"stream_queue":                        "https://www.rabbitmq.com/docs/stream",
}

func (s *server) listFeatureFlags(*request) (any, error) {
	items := make([]map[string]any, 0, len(featureFlags))
	for _, f := range featureFlags {
		callbacks := f.callbacks
		if callbacks == nil {
			callbacks = []string{}
		}
		items = append(items, map[string]any{
			"name": f.name, "desc": f.desc, "doc_url": featureFlagPages[f.name], "state": "enabled", "stability": f.stability, "provided_by": f.provider,
			"require_level": f.level, "experiment_level": "supported", "callbacks": callbacks,
		})
	}
	return objects(items), nil
}

// enableFeatureFlag has nothing to do.
func (s *server) enableFeatureFlag(r *request) (any, error) {
	for _, f := range featureFlags {
		if f.name == r.params["flag"] {
			return nil, nil
		}
	}
	return nil, badRequest("unsupported")
}

// deprecatedFeature is a feature that RabbitMQ has deprecated.
type deprecatedFeature struct {
	name, phase, url, provider string
	permitted                  func(*server) bool
}

const deprecations = "https://blog.rabbitmq.com/posts/2021/08/4.0-deprecation-announcements/"

func always(*server) bool { return true }
func never(*server) bool  { return false }

// deprecatedFeatures are RabbitMQ 4.3's; some are permitted here unless denied (BR-7.7, BR-9.9).
var deprecatedFeatures = []deprecatedFeature{
	{"queue_master_locator", "denied_by_default", "", "rabbit", func(s *server) bool { return !s.b.Options.Topology.DenyQueueMasterLocator }},
	{"global_qos", "denied_by_default", deprecations + "#removal-of-global-qos", "rabbit", func(s *server) bool { return s.b.GlobalQos }},
	{"amqp_filter_set_bug", "denied_by_default", "https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html#type-filter-set", "rabbit", never},
	{"amqp_address_v1", "denied_by_default", "https://www.rabbitmq.com/docs/amqp#addresses", "rabbit", never},
	{"management_metrics_collection", "permitted_by_default", deprecations + "#disable-metrics-delivery-via-the-management-api--ui", "rabbitmq_management_agent", always},
	{"transient_nonexcl_queues", "permitted_by_default", deprecations + "#removal-of-transient-non-exclusive-queues", "rabbit", func(s *server) bool { return !s.b.Options.Topology.DenyTransientNonExclusive }},
	{"classic_queue_mirroring", "removed", deprecations + "#removal-of-classic-queue-mirroring", "rabbit", never},
	{"ram_node_type", "removed", deprecations + "#removal-of-ram-nodes", "rabbit", never},
}

func (f *deprecatedFeature) show() map[string]any {
	return map[string]any{"name": f.name, "desc": "", "deprecation_phase": f.phase, "doc_url": f.url, "provided_by": f.provider}
}

func (s *server) listDeprecatedFeatures(*request) (any, error) {
	items := make([]map[string]any, 0, len(deprecatedFeatures))
	for _, f := range deprecatedFeatures {
		object := f.show()
		object["state"] = "denied"
		if f.permitted(s) {
			object["state"] = "permitted"
		}
		items = append(items, object)
	}
	return objects(items), nil
}

// listUsedFeatures are those that something declared now makes use of: of all, only
// transient queues can be seen.
func (s *server) listUsedFeatures(r *request) (any, error) {
	items := []map[string]any{}
	if r.hasTransientQueues() {
		for _, f := range deprecatedFeatures {
			if f.name == "transient_nonexcl_queues" {
				items = append(items, f.show())
			}
		}
	}
	return objects(items), nil
}

// hasTransientQueues looks at the declarations of what the user may list.
func (r *request) hasTransientQueues() bool {
	var taken []*topology.Snapshot
	r.eachVHost(func(v *topology.VHost) { taken = append(taken, v.Snapshot()) })
	return slices.ContainsFunc(taken, func(s *topology.Snapshot) bool {
		return slices.ContainsFunc(s.Queues(), func(q *topology.Queue) bool { return !q.Durable && !q.Exclusive })
	})
}
