package api

// featureFlags are those of RabbitMQ that tools ask for before they use what
// stands behind them. All are always on.
var featureFlags = []string{
	"classic_mirrored_queue_version", "classic_queue_type_delivery_support", "detailed_queues_endpoint",
	"direct_exchange_routing_v2", "drop_unroutable_metric", "empty_basic_get_metric", "feature_flags_v2",
	"implicit_default_bindings", "khepri_db", "listener_records_in_ets", "maintenance_mode_status",
	"message_containers", "quorum_queue", "quorum_queue_non_voters", "quorum_queues_v4", "rabbitmq_4.0.0",
	"rabbitmq_4.1.0", "rabbitmq_4.2.0", "rabbitmq_4.3.0", "restart_streams", "stream_queue", "tracking_records_in_ets",
	"user_limits", "virtual_host_metadata",
}

func (s *server) listFeatureFlags(*request) (any, error) {
	items := make([]map[string]any, 0, len(featureFlags))
	for _, name := range featureFlags {
		items = append(items, map[string]any{
			"name": name, "desc": "", "doc_url": "", "state": "enabled", "stability": "required", "provided_by": "rabbit",
			"require_level": "hard", "experiment_level": "supported", "callbacks": []any{},
		})
	}
	return objects(items), nil
}

// enableFeatureFlag has nothing to do.
func (s *server) enableFeatureFlag(*request) (any, error) { return nil, nil }

// listDeprecatedFeatures: nothing this broker has is about to go.
func (s *server) listDeprecatedFeatures(*request) (any, error) { return []any{}, nil }
