package config

import "bartleby.mq/internal/wire/erlterm"

// application is one of RabbitMQ's applications: its settings have the same names in rabbitmq.conf behind a prefix, with
// exceptions.
type application struct {
	prefix string
	names  map[string]string // of a setting: its key in rabbitmq.conf
}

// applications are those whose settings may have a name in rabbitmq.conf.
var applications = map[string]application{
	"rabbit": {"", map[string]string{
		"tcp_listeners": "listeners.tcp", "ssl_listeners": "listeners.ssl", "num_tcp_acceptors": "num_acceptors.tcp", "num_ssl_acceptors": "num_acceptors.ssl",
		"connection_max": "max_connections", "msg_store_shutdown_timeout": "message_store_shutdown_timeout",
		"classic_queue_default_version": "classic_queue.default_version", "cluster_nodes": "cluster_formation.classic_config.nodes",
		"permit_deprecated_features": "deprecated_features.permit", "channel_interceptor_priorities": "channel_interceptor.priorities",
		"summarize_process_state_when_logged": "log.summarize_process_state", "writer_gc_threshold": "socket_writer.gc_threshold",
		"classic_queues_enabled": "queue_types.classic.enabled", "quorum_queues_enabled": "queue_types.quorum.enabled",
		"stream_queues_enabled": "queue_types.stream.enabled", "local_random_exchange_enabled": "exchange_types.local_random.enabled",
		"product_name": "product.name", "product_version": "product.version", "listeners_startup_delay": "listeners.startup_delay",
		"khepri_default_timeout": "metadata_store.khepri.default_timeout", "khepri_snapshot_interval": "metadata_store.khepri.snapshot_interval",
		"quorum_commands_soft_limit": "quorum_queue.commands_soft_limit", "quorum_cluster_size": "quorum_queue.initial_cluster_size",
		"quorum_relaxed_checks_on_redeclaration": "quorum_queue.property_equivalence.relaxed_checks_on_redeclaration",
		"stream_read_ahead":                      "stream.read_ahead", "stream_read_ahead_limit": "stream.read_ahead_limit",
	}},
	"kernel": {"kernel.", map[string]string{
		"net_ticktime": "net_ticktime", "inet_dist_listen_min": "distribution.listener.port_range.min",
		"inet_dist_listen_max": "distribution.listener.port_range.max", "inet_dist_use_interface": "distribution.listener.interface",
	}},
	"ra":     {"raft.", nil},
	"aten":   {"raft.adaptive_failure_detector.", nil},
	"osiris": {"stream.", nil},
	"rabbitmq_management": {"management.", map[string]string{
		"tcp_config": "management.tcp", "ssl_config": "management.ssl", "cors_allow_origins": "management.cors.allow_origins",
		"cors_max_age": "management.cors.max_age", "content_security_policy": "management.csp.policy", "strict_transport_security": "management.hsts.policy",
		"max_http_body_size": "management.http.max_body_size", "hide_http_allow_header": "management.http.hide_allow_header",
		"disable_management_stats": "management.disable_stats", "management_db_cache_multiplier": "management.db_cache_multiplier",
		"require_definition_json_extension": "management.definitions.require_json_extension",
	}},
	"rabbitmq_management_agent": {"management_agent.", map[string]string{
		"rates_mode": "management.rates_mode", "sample_retention_policies": "management.sample_retention_policies",
	}},
	"rabbitmq_prometheus":         {"prometheus.", map[string]string{"tcp_config": "prometheus.tcp", "ssl_config": "prometheus.ssl"}},
	"rabbitmq_web_dispatch":       {"http_dispatch.", nil},
	"rabbitmq_auth_backend_http":  {"auth_http.", map[string]string{"ssl_hostname_verification": "auth_http.ssl_options.hostname_verification"}},
	"rabbitmq_auth_backend_cache": {"auth_cache.", nil},
	"rabbitmq_auth_backend_ldap":  {"auth_ldap.", nil},
	// Its name was another before RabbitMQ 3.8.
	"rabbitmq_auth_backend_oauth2": {"auth_oauth2.", nil},
	"rabbitmq_auth_backend_uaa":    {"auth_oauth2.", nil},
	"rabbitmq_trust_store":         {"trust_store.", nil},
	"rabbitmq_mqtt":                {"mqtt.", protocolNames("mqtt")},
	"rabbitmq_stomp":               {"stomp.", protocolNames("stomp")},
	"rabbitmq_stream":              {"stream.", protocolNames("stream")},
	"rabbitmq_web_mqtt":            {"web_mqtt.", webNames("web_mqtt")},
	"rabbitmq_web_stomp":           {"web_stomp.", webNames("web_stomp")},
	"rabbitmq_event_exchange":      {"event_exchange.", nil},
	"rabbitmq_shovel":              {"shovel.", map[string]string{"max_local_shovel_credit": "shovel.local.max_credit"}},
	"rabbitmq_tracing":             {"tracing.", map[string]string{"directory": "tracing.dir"}},
	"rabbitmq_exchange_federation": {"federation.exchanges.", nil},
	"rabbitmq_queue_federation":    {"federation.queues.", nil},
	"rabbitmq_aws":                 {"aws.", map[string]string{"aws_prefer_imdsv2": "aws.prefer_imdsv2"}},
	"amqp_client":                  {"amqp_client.", nil},
	"amqp10_client":                {"amqp10_client.", nil},
	"credentials_obfuscation":      {"credentials_obfuscation.", nil},
}

func protocolNames(prefix string) map[string]string {
	return map[string]string{
		"tcp_listeners": prefix + ".listeners.tcp", "ssl_listeners": prefix + ".listeners.ssl",
		"num_tcp_acceptors": prefix + ".num_acceptors.tcp", "num_ssl_acceptors": prefix + ".num_acceptors.ssl",
	}
}

func webNames(prefix string) map[string]string {
	return map[string]string{
		"tcp_config": prefix + ".tcp", "ssl_config": prefix + ".ssl", "num_tcp_acceptors": prefix + ".num_acceptors.tcp",
		"num_ssl_acceptors": prefix + ".num_acceptors.ssl",
	}
}

// innerNames are the names of settings within settings that differ in rabbitmq.conf, some only below a key; "": what is within
// stands there itself.
var innerNames = map[string]string{
	"server_name_indication": "sni", "local_path": "local.path", "url": "https.url", "hashing_algorithm": "hashing.algorithm",
	"peer_discovery_k8s": "k8s", "peer_discovery_consul": "consul", "peer_discovery_etcd": "etcd", "peer_discovery_aws": "aws", "peer_discovery_dns": "dns",
	"perform_registration": "registration.enabled", "cowboy_opts": "", "management.listener.cowboy_opts": "server", "prometheus.ssl.ssl_opts": "",
}

// specialTerms are settings whose values have forms of their own.
var specialTerms = map[string]func(t *terms, key string, v erlterm.Term){
	"rabbit.tcp_listeners": listeners, "rabbit.ssl_listeners": listeners,
	"rabbitmq_mqtt.tcp_listeners": listeners, "rabbitmq_mqtt.ssl_listeners": listeners, "rabbitmq_stomp.tcp_listeners": listeners,
	"rabbitmq_stomp.ssl_listeners": listeners, "rabbitmq_stream.tcp_listeners": listeners, "rabbitmq_stream.ssl_listeners": listeners,
	"rabbit.loopback_users": names, "rabbit.default_user_tags": names, "rabbit.default_permissions": permissions,
	"rabbit.auth_backends": backends, "rabbitmq_auth_backend_cache.cached_backend": backends, "rabbitmq_web_dispatch.auth_backends": backends,
	"rabbit.vm_memory_high_watermark": watermark, "rabbit.disk_free_limit": watermark,
	"rabbit.default_queue_type": queueType, "rabbit.log": logs, "rabbit.log_levels": logLevels, "rabbit.cluster_nodes": clusterNodes,
	"rabbit.cluster_partition_handling": partitions, "rabbitmq_shovel.shovels": staticShovels,
}

// refusedTerms are settings that the node cannot obey and must not ignore, in forms that rabbitmq.conf does not have.
var refusedTerms = map[string]string{
	"rabbit.default_users":    "import further users with load_definitions",
	"rabbit.default_policies": "import policies with load_definitions",
	"rabbit.default_limits":   "import limits of virtual hosts with load_definitions",
}
