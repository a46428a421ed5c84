package config

import "slices"

// idleKeys are keys of RabbitMQ's that have no effect here. A key that the node must not
// ignore, such as a check, is an error instead.
var idleKeys = idle(map[string][]string{
	"there is one node": {
		"queue_leader_locator", "queue_master_locator", "mirroring_sync_batch_size", "mirroring_sync_max_throughput", "cluster_formation.**",
		"cluster_partition_handling", "cluster_partition_handling.**", "cluster_keepalive_interval", "net_ticktime", "raft.**", "quorum_queue.**",
		"metadata_store.**", "mnesia_table_loading_retry_timeout", "mnesia_table_loading_retry_limit", "distribution.**", "delegate_count",
		"prevent_startup_if_node_was_reset", "vhost_restart_strategy", "cluster_tags.**", "node_tags.**", "consumer_disconnected_timeout",
	},
	"there is one journal for all queues":                                     {"classic_queue.**", "queue_index_embed_msgs_below", "msg_store_file_size_limit", "message_store_shutdown_timeout"},
	"message bodies are written to disk at once":                              {"vm_memory_high_watermark_paging_ratio"},
	"the node uses the resident memory that the system reports":               {"vm_memory_calculation_strategy", "total_memory_available_override_value"},
	"memory is checked every second":                                          {"memory_monitor_interval"},
	"free disk space is checked every second":                                 {"disk_monitor_failure_retries", "disk_monitor_failure_retry_interval"},
	"there is no Erlang VM":                                                   {"background_gc_enabled", "background_gc_target_interval", "socket_writer.gc_threshold", "hipe_compile", "erlang.**", "sysmon_handler.**", "default_worker_pool_size"},
	"statistics are always exact":                                             {"collect_statistics", "collect_statistics_interval", "management.rates_mode", "management.sample_retention_policies.**", "management.db_cache_multiplier"},
	"socket options are fixed":                                                {"tcp_listen_options.**", "management.ssl.backlog", "prometheus.ssl.backlog", "listeners.startup_delay"},
	"there are no acceptor processes":                                         {"num_acceptors.**"},
	"host names are not looked up":                                            {"reverse_dns_lookups"},
	"dead letters wait in their queue; there is no worker that holds them":    {"dead_letter_worker_consumer_prefetch"},
	"the management API does not have this setting":                           {"management.**"},
	"the management API has no agents":                                        {"management_agent.**"},
	"the metrics do not have this setting":                                    {"prometheus.**"},
	"MQTT is not supported":                                                   {"mqtt.**", "web_mqtt.**"},
	"STOMP is not supported":                                                  {"stomp.**", "web_stomp.**"},
	"there are no streams yet":                                                {"stream.**", "queue_types.stream.enabled"},
	"there is no such plugin":                                                 {"auth_ldap.**", "auth_oauth2.**", "tracing.**", "trust_store.**", "federation.**", "exchange_federation.**", "queue_federation.**", "aws.**"},
	"shovels are not there yet":                                               {"shovel.**", "amqp_client.**", "amqp10_client.**"},
	"AMQP 1.0 is not supported yet":                                           {"session_max_per_connection", "link_max_per_session"},
	"passwords are stored only as hashes":                                     {"credentials_obfuscation.**"},
	"SSL 3 is not supported":                                                  {"ssl_allow_poodle_attack"},
	"frames before the login are at most 8192 bytes":                          {"initial_frame_max"},
	"the node prints no banner; the start is in the log":                      {"motd_file"},
	"this limit is not enforced: use a policy or a limit of the virtual host": {"vhost_max", "cluster_queue_limit", "cluster_exchange_limit", "channel_tx_message_max", "runtime_parameters.**"},
	"all supported types of queues and exchanges can be declared":             {"queue_types.**", "exchange_types.**"},
	"messages are not intercepted":                                            {"message_interceptors.**", "channel_interceptor.**"},
})

// idle lists keys with their reasons.
func idle(reasons map[string][]string) (list []key) {
	why := map[string]string{}
	for reason, patterns := range reasons {
		for _, p := range patterns {
			why[p] = reason
		}
	}
	for _, p := range sortedKeys(why) {
		list = append(list, key{pattern: p, idle: why[p]})
	}
	// The first match counts: exact patterns first, then longer wildcards before shorter ones.
	slices.SortStableFunc(list, func(a, b key) int {
		if x, y := isWild(a.pattern), isWild(b.pattern); x != y {
			if x {
				return 1
			}
			return -1
		}
		return len(b.pattern) - len(a.pattern)
	})
	return list
}
