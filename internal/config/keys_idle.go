package config

import "slices"

// idleKeys are RabbitMQ's keys that mean nothing here. Keys whose meaning a node must
// not pass over, such as a limit or a check, are errors instead.
var idleKeys = idle(map[string][]string{
	"there is one node": {
		"queue_leader_locator", "queue_master_locator", "mirroring_sync_batch_size", "mirroring_sync_max_throughput", "cluster_formation.**",
		"cluster_partition_handling", "cluster_partition_handling.**", "cluster_keepalive_interval", "net_ticktime", "raft.**", "quorum_queue.**",
		"metadata_store.**", "mnesia_table_loading_retry_timeout", "mnesia_table_loading_retry_limit", "distribution.**", "delegate_count",
		"prevent_startup_if_node_was_reset", "vhost_restart_strategy", "cluster_tags.**", "node_tags.**", "consumer_disconnected_timeout",
	},
	"there is one journal for all queues":                                           {"classic_queue.**", "queue_index_embed_msgs_below", "msg_store_file_size_limit", "message_store_shutdown_timeout"},
	"bodies are on disk from the start":                                             {"vm_memory_high_watermark_paging_ratio"},
	"memory is what the system counts as resident":                                  {"vm_memory_calculation_strategy", "total_memory_available_override_value"},
	"memory is looked at every second":                                              {"memory_monitor_interval"},
	"the disk is looked at every second":                                            {"disk_monitor_failure_retries", "disk_monitor_failure_retry_interval"},
	"memory is not managed by Erlang here":                                          {"background_gc_enabled", "background_gc_target_interval", "socket_writer.gc_threshold", "hipe_compile", "erlang.**", "sysmon_handler.**", "default_worker_pool_size"},
	"statistics are always exact":                                                   {"collect_statistics", "collect_statistics_interval", "management.rates_mode", "management.sample_retention_policies.**", "management.db_cache_multiplier"},
	"sockets are set up in one way":                                                 {"tcp_listen_options.**", "management.ssl.backlog", "prometheus.ssl.backlog", "listeners.startup_delay"},
	"there are no acceptor processes":                                               {"num_acceptors.**"},
	"names are not looked up":                                                       {"reverse_dns_lookups"},
	"dead letters wait in their queue, none are held in a worker":                   {"dead_letter_worker_consumer_prefetch"},
	"the management API has nothing of that kind":                                   {"management.**"},
	"the management API has no agents":                                              {"management_agent.**"},
	"the metrics have nothing of that kind":                                         {"prometheus.**"},
	"MQTT is not spoken here":                                                       {"mqtt.**", "web_mqtt.**"},
	"STOMP is not spoken here":                                                      {"stomp.**", "web_stomp.**"},
	"there are no streams yet":                                                      {"stream.**", "queue_types.stream.enabled"},
	"there is no such plugin":                                                       {"auth_ldap.**", "auth_oauth2.**", "tracing.**", "event_exchange.**", "trust_store.**", "federation.**", "exchange_federation.**", "queue_federation.**", "aws.**"},
	"shovels are not there yet":                                                     {"shovel.**", "amqp_client.**", "amqp10_client.**"},
	"AMQP 1.0 is not spoken yet":                                                    {"session_max_per_connection", "link_max_per_session"},
	"passwords are kept as hashes only":                                             {"credentials_obfuscation.**"},
	"SSL 3 is not spoken here":                                                      {"ssl_allow_poodle_attack"},
	"frames before the login may have 8192 bytes":                                   {"initial_frame_max"},
	"what a start says is in the log":                                               {"motd_file"},
	"this limit is not kept: count it with a policy or a limit of the virtual host": {"vhost_max", "cluster_queue_limit", "cluster_exchange_limit", "channel_tx_message_max", "runtime_parameters.**"},
	"every kind of queue and exchange there is can be declared":                     {"queue_types.**", "exchange_types.**"},
	"messages are not intercepted":                                                  {"message_interceptors.**", "channel_interceptor.**"},
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
	// The first that matches counts: the exact ones, then of two wild ones the longer.
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
