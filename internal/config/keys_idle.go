package config

import "strings"

// idleKeys are keys of RabbitMQ's that have no effect here, each with its reason. None protects the node or moves a port: such a key
// is obeyed or refused. Every name is written out, so that a typing error is an unknown key: a.{b c} stands for a.b and a.c,
// and a segment * for any one name.
var idleKeys = idle([]without{
	{"shovels speak AMQP 0-9-1", `
		amqp10_client.ssl_options amqp10_client.ssl_options.{cacertfile cert certfile depth keyfile log_alert password psk_identity
			reuse_sessions secure_renegotiate sni verify} amqp10_client.ssl_options.cacerts.* amqp10_client.ssl_options.key.{DSAPrivateKey
			PrivateKeyInfo RSAPrivateKey} amqp10_client.ssl_options.versions.*`},
	{"shovels take TLS options from their addresses and verify certificates, with TLS 1.2 or later", `
		amqp_client.ssl_options amqp_client.ssl_options.{cacertfile cert certfile depth keyfile log_alert password psk_identity
			reuse_sessions secure_renegotiate sni verify} amqp_client.ssl_options.cacerts.* amqp_client.ssl_options.key.{DSAPrivateKey
			PrivateKeyInfo RSAPrivateKey} amqp_client.ssl_options.versions.*`},
	{"there is one cache", `
		auth_cache.cache_module`},
	{"there is no LDAP backend: auth_backends refuses it", `
		auth_ldap.{connection_pool_size dn_lookup_attribute dn_lookup_base dn_lookup_bind group_lookup_base idle_timeout log other_bind port
			servers ssl_options timeout use_ssl use_starttls user_bind_pattern user_dn_pattern} auth_ldap.dn_lookup_bind.{password user_dn}
		auth_ldap.other_bind.{password user_dn} auth_ldap.queries.{resource_access tags topic_access vhost_access}
		auth_ldap.servers.* auth_ldap.ssl_options.{cacertfile cert certfile client_renegotiation crl_check depth dh dhfile
			fail_if_no_peer_cert honor_cipher_order honor_ecc_order hostname_verification keyfile log_alert password psk_identity reuse_sessions
			secure_renegotiate sni verify} auth_ldap.ssl_options.ciphers.* auth_ldap.ssl_options.key.{DSAPrivateKey PrivateKeyInfo
			RSAPrivateKey} auth_ldap.ssl_options.versions.*`},
	{"there is no OAuth 2: auth_backends and management.oauth_enabled refuse it", `
		auth_oauth2.{additional_scopes_key authorization_endpoint default_key default_oauth_provider discovery_endpoint_path
			end_session_endpoint issuer jwks_uri jwks_url require_exp resource_server_id resource_server_type scope_prefix token_endpoint
			verify_aud} auth_oauth2.algorithms.* auth_oauth2.discovery_endpoint_params.* auth_oauth2.https.{cacertfile crl_check depth
			fail_if_no_peer_cert hostname_verification peer_verification verify} auth_oauth2.oauth_providers.*.algorithms.*
		auth_oauth2.oauth_providers.*.{authorization_endpoint default_key discovery_endpoint_path end_session_endpoint issuer jwks_uri
			token_endpoint} auth_oauth2.oauth_providers.*.discovery_endpoint_params.* auth_oauth2.oauth_providers.*.https.{cacertfile crl_check
			depth hostname_verification verify} auth_oauth2.oauth_providers.*.signing_keys.* auth_oauth2.preferred_username_claims.*
		auth_oauth2.resource_servers.*.{additional_scopes_key id oauth_provider_id require_exp resource_server_type scope_prefix verify_aud}
		auth_oauth2.resource_servers.*.preferred_username_claims.* auth_oauth2.resource_servers.*.scope_aliases.*
		auth_oauth2.resource_servers.*.scope_aliases.*.{alias scope} auth_oauth2.scope_aliases.* auth_oauth2.scope_aliases.*.{alias scope}
		auth_oauth2.signing_keys.* management.oauth_authorization_endpoint_params.* management.{oauth_client_id oauth_client_secret
			oauth_disable_basic_auth oauth_initiated_logon_type oauth_metadata_url oauth_provider_url oauth_response_type oauth_scopes}
		management.oauth_resource_servers.*.{disabled id label oauth_client_id oauth_client_secret oauth_initiated_logon_type
			oauth_metadata_url oauth_provider_url oauth_response_type oauth_scopes}
			management.oauth_resource_servers.*.oauth_authorization_endpoint_params.*
			management.oauth_resource_servers.*.oauth_token_endpoint_params.* management.oauth_token_endpoint_params.*`},
	{"there is no such plugin", `
		aws.prefer_imdsv2 tracing.{dir password username}`},
	{"there is no Erlang VM", `
		background_gc_enabled background_gc_target_interval default_worker_pool_size hipe_compile erlang.{K W async_threads crash_dump
			distribution_buffer_size fullsweep_after process_limit smp} erlang.async_threads.stack_size erlang.distribution.{interface
			net_ticktime} erlang.distribution.port_range.{maximum minimum} erlang.schedulers.{compaction_of_load force_wakeup_interval online
			total utilization_balancing} socket_writer.gc_threshold sysmon_handler.thresholds.{busy_ports busy_processes}
		sysmon_handler.triggers.{distribution_port port} sysmon_handler.triggers.process.{garbage_collection heap_size
			long_scheduled_execution}`},
	{"messages are not intercepted", `
		channel_interceptor.priorities.* message_interceptors.*.*.*`},
	{"there is one journal for all queues", `
		classic_queue.default_version message_store_shutdown_timeout queue_index_embed_msgs_below quorum_queue.{commands_soft_limit
			compress_mem_tables compute_checksums max_append_entries_rpc_batch_size segment_compute_checksums segment_max_entries
			segment_max_size_bytes snapshot_chunk_size wal_compute_checksums wal_max_batch_size wal_max_entries wal_max_size_bytes}
		raft.{data_dir segment_max_entries snapshot_chunk_size wal_hibernate_after wal_max_batch_size wal_max_entries wal_max_size_bytes}`},
	{"there is one node", `
		cluster_formation.aws.{access_key_id hostname_path instance_tags region secret_key use_autoscaling_group use_private_ip}
		cluster_formation.aws.ec2_instance_states.* cluster_formation.aws.hostname_path.* cluster_formation.aws.instance_tags.*
		cluster_formation.classic_config.nodes.* cluster_formation.consul.{acl_token cluster_name deregister_after domain_suffix host
			include_nodes_with_warnings lock_prefix lock_timeout lock_wait_time port scheme ssl_options svc svc_addr svc_addr_auto svc_addr_nic
			svc_addr_use_nodename svc_id svc_meta svc_port svc_tags svc_ttl use_longname} cluster_formation.consul.ssl_options.{cacertfile cert
			certfile crl_check depth dh dhfile fail_if_no_peer_cert keyfile log_alert password psk_identity reuse_sessions secure_renegotiate
			verify} cluster_formation.consul.ssl_options.ciphers.* cluster_formation.consul.ssl_options.key.{DSAPrivateKey PrivateKeyInfo
			RSAPrivateKey} cluster_formation.consul.ssl_options.versions.* cluster_formation.consul.svc_meta.*
		cluster_formation.consul.svc_tags.* cluster_formation.{discovery_retry_interval discovery_retry_limit internal_lock_retries
			lock_retry_limit lock_retry_timeout node_type peer_discovery_backend target_cluster_size_hint} cluster_formation.dns.hostname
		cluster_formation.etcd.{cluster_name endpoints host key_prefix lock_timeout lock_wait_time node_ttl password port scheme ssl_options
			username} cluster_formation.etcd.endpoints.* cluster_formation.etcd.ssl_options.{cacertfile cert certfile crl_check depth keyfile
			log_alert password psk_identity reuse_sessions secure_renegotiate verify} cluster_formation.etcd.ssl_options.ciphers.*
		cluster_formation.etcd.ssl_options.key.{DSAPrivateKey PrivateKeyInfo RSAPrivateKey} cluster_formation.etcd.ssl_options.versions.*
		cluster_formation.k8s.{address_type cert_path host hostname_suffix namespace_path ordinal_start port scheme seed_node service_name
			token_path} cluster_formation.k8s.tls.{cacertfile certfile fail_if_no_peer_cert keyfile verify}
			cluster_formation.node_cleanup.{interval only_log_warning} cluster_formation.proxy.{http_proxy https_proxy}
		cluster_formation.proxy.proxy_exclusions.* cluster_formation.registration.enabled cluster_keepalive_interval
		cluster_partition_handling consumer_disconnected_timeout delegate_count distributed_cookie mirroring_sync_batch_size
		mirroring_sync_max_throughput mnesia_table_loading_retry_limit mnesia_table_loading_retry_timeout net_ticktime
		nodename queue_leader_locator queue_master_locator cluster_partition_handling.pause_if_all_down.nodes.*
		cluster_partition_handling.pause_if_all_down.recover distribution.listener.interface distribution.listener.port_range.{max min}
		management.delegate_count metadata_store.khepri.{default_timeout snapshot_interval}
			quorum_queue.continuous_membership_reconciliation.{auto_remove enabled interval target_group_size trigger_interval}
		quorum_queue.initial_cluster_size raft.adaptive_failure_detector.{detection_threshold heartbeat_interval poll_interval
			scaling_factor}`},
	{"tags of nodes and clusters are not kept", `
		cluster_tags.* node_tags.*`},
	{"statistics are always exact, and always there", `
		collect_statistics collect_statistics_interval management.{db_cache_multiplier disable_stats enable_queue_totals rates_mode}
		management.sample_retention_policies.*.* management_agent.disable_metrics_collector`},
	{"the node keeps the addresses of shovels in its memory as they are", `
		credentials_obfuscation.{cipher enabled hash iterations}`},
	{"the node always uses SHA-256", `
		definitions.hashing.algorithm`},
	{"there is no federation", `
		federation.exchanges.connection_close_timeout federation.exchanges.shutdown.{link_batch_size throttle_delay timeout}
		federation.queues.connection_close_timeout federation.queues.shutdown.{link_batch_size throttle_delay timeout}`},
	{"requests are in the log of the node, at level debug", `
		http_dispatch.access_log_dir management.http_log_dir`},
	{"frames before the login are at most 8192 bytes", `
		initial_frame_max`},
	{"listeners open when the node can serve clients", `
		listeners.startup_delay`},
	{"all log categories share one file", `
		log.channel.file log.connection.file log.federation.file log.mirroring.file log.queue.file log.ra.file
		log.upgrade.file log.user.file`},
	{"pages and metrics are compressed for clients that ask for it", `
		log.channel.rotation.compress log.connection.rotation.compress log.default.rotation.compress log.federation.rotation.compress
		log.file.rotation.compress log.mirroring.rotation.compress log.queue.rotation.compress log.ra.rotation.compress
		log.upgrade.rotation.compress log.user.rotation.compress management.listener.server.compress management.ssl.compress
		management.tcp.compress prometheus.ssl.compress prometheus.tcp.compress`},
	{"the node does not rotate log files; use logrotate, and SIGHUP to reopen them", `
		log.channel.rotation.{count date size} log.connection.rotation.{count date size} log.default.rotation.{count date size}
		log.federation.rotation.{count date size} log.file.rotation.{count date size} log.mirroring.rotation.{count date size}
		log.queue.rotation.{count date size} log.ra.rotation.{count date size} log.upgrade.rotation.{count date size}
		log.user.rotation.{count date size}`},
	{"log lines are plain text in one fixed form, or JSON", `
		log.console.color_esc_seqs.{alert critical debug emergency error info notice warning} log.console.formatter.json.{field_map
			verbosity_map} log.console.formatter.{level_format single_line time_format} log.console.formatter.plaintext.format
		log.console.use_colors log.file.formatter.json.{field_map verbosity_map} log.file.formatter.{level_format single_line time_format}
		log.file.formatter.plaintext.format`},
	{"there are no Erlang terms in the log", `
		log.{error_logger_format_depth summarize_process_state}`},
	{"log lines cannot be published to an exchange", `
		log.exchange log.exchange.{formatter level} log.exchange.formatter.json.{field_map verbosity_map}
			log.exchange.formatter.{level_format single_line time_format} log.exchange.formatter.plaintext.format`},
	{"the node does not write to journald; systemd sends its standard error there", `
		log.journald log.journald.{fields level}`},
	{"the node does not write to syslog; redirect its standard error", `
		log.syslog log.syslog.{facility formatter host identity ip level multiline_mode port protocol transport}
		log.syslog.formatter.json.{field_map verbosity_map} log.syslog.formatter.{level_format single_line time_format}
		log.syslog.formatter.plaintext.format log.syslog.ssl_options.{cacertfile cert certfile client_renegotiation crl_check depth dh dhfile
			fail_if_no_peer_cert honor_cipher_order honor_ecc_order keyfile log_alert password psk_identity reuse_sessions secure_renegotiate
			verify} log.syslog.ssl_options.key.{DSAPrivateKey PrivateKeyInfo RSAPrivateKey} log.syslog.ssl_options.versions.*`},
	{"pages of other origins may not use the API", `
		management.cors.{allow_origins max_age} management.cors.allow_origins.*`},
	{"browsers get a random cookie, never the password", `
		management.credential_encryption_secret`},
	{"the pages have a policy that allows nothing from elsewhere", `
		management.csp.policy`},
	{"definitions are read as JSON, whatever the file is called", `
		management.definitions.require_json_extension`},
	{"HTTP connections have fixed limits of time", `
		management.listener.server.{idle_timeout inactivity_timeout max_keepalive request_timeout shutdown_timeout}
		management.ssl.{idle_timeout inactivity_timeout max_keepalive request_timeout shutdown_timeout} management.tcp.{idle_timeout
			inactivity_timeout max_keepalive request_timeout shutdown_timeout} prometheus.ssl.{idle_timeout inactivity_timeout max_keepalive
			request_timeout shutdown_timeout} prometheus.tcp.{idle_timeout inactivity_timeout max_keepalive request_timeout shutdown_timeout}`},
	{"there is no page with a reference of the API", `
		management.require_auth_for_api_reference`},
	{"there is one node: such operations are refused", `
		management.restrictions.quorum_queue_replica_operations.disabled`},
	{"socket options are fixed", `
		management.ssl.backlog prometheus.ssl.backlog tcp_listen_options tcp_listen_options.{backlog buffer delay_send dontroute
			exit_on_close fd high_msgq_watermark high_watermark keepalive low_msgq_watermark low_watermark nodelay port priority recbuf
			send_timeout send_timeout_close sndbuf tos} tcp_listen_options.linger.{on timeout}`},
	{"totals count all queues", `
		management_agent.filter_aggregated_queue_metrics_pattern prometheus.filter_aggregated_queue_metrics_pattern`},
	{"memory is checked every second", `
		memory_monitor_interval`},
	{"the node prints no banner; the start is in the log", `
		motd_file`},
	{"MQTT is not supported", `
		mqtt.{allow_anonymous disconnect_on_unauthorized durable_queue_type exchange login_timeout mailbox_soft_limit max_connections
			max_packet_size_authenticated max_packet_size_unauthenticated max_session_expiry_interval_seconds prefetch proxy_protocol
			retained_message_store retained_message_store_dets_sync_interval sparkplug ssl_cert_client_id_from ssl_cert_login
			ssl_cert_login_san_index ssl_cert_login_san_type subscription_ttl tcp_listen_options topic_alias_maximum vhost}
		mqtt.listeners.{ssl tcp} mqtt.listeners.ssl.* mqtt.listeners.tcp.* mqtt.message_interceptors.*.*.*
		mqtt.num_acceptors.{ssl tcp} mqtt.retained_message_store.{max_messages max_size_bytes} mqtt.tcp_listen_options.{backlog buffer
			delay_send dontroute exit_on_close fd high_msgq_watermark high_watermark keepalive low_msgq_watermark low_watermark nodelay port
			priority recbuf send_timeout send_timeout_close sndbuf tos} mqtt.tcp_listen_options.linger.{on timeout}
		web_mqtt.{allow_origins max_connections proxy_protocol use_file_handle_cache ws_path} web_mqtt.allow_origins.*
		web_mqtt.cowboy_opts.{idle_timeout max_empty_lines max_header_name_length max_header_value_length max_headers max_keepalive
			max_request_line_length timeout} web_mqtt.hsts.policy web_mqtt.num_acceptors.{ssl tcp} web_mqtt.ssl.{backlog cacertfile cert
			certfile client_renegotiation crl_check depth dh dhfile fail_if_no_peer_cert honor_cipher_order honor_ecc_order ip keyfile listener
			log_alert password port psk_identity reuse_sessions secure_renegotiate verify} web_mqtt.ssl.ciphers.*
		web_mqtt.ssl.versions.* web_mqtt.tcp.{backlog ip listener port} web_mqtt.ws_opts.{compress idle_timeout max_frame_size}`},
	{"there are no acceptor processes", `
		num_acceptors.{ssl tcp}`},
	{"a redeclaration must be equivalent to the queue", `
		quorum_queue.property_equivalence.relaxed_checks_on_redeclaration`},
	{"host names are not looked up", `
		reverse_dns_lookups`},
	{"shovels run as their parameters say", `
		shovel.{delete_after_duration_floor operating_mode}`},
	{"src-predeclared and dest-predeclared of each shovel say this", `
		shovel.topology.predeclared`},
	{"local shovels move messages without credit", `
		shovel.local.max_credit`},
	{"SSL 3 is not supported", `
		ssl_allow_poodle_attack`},
	{"STOMP is not supported", `
		stomp.{default_nack_requeue default_pass default_topic_exchange default_user default_vhost hide_server_info implicit_connect
			login_timeout max_frame_size max_frame_size_unauthenticated proxy_protocol ssl_cert_login tcp_listen_options}
		stomp.listeners.{ssl tcp} stomp.listeners.ssl.* stomp.listeners.tcp.* stomp.num_acceptors.{ssl tcp}
		stomp.tcp_listen_options.{backlog buffer delay_send dontroute exit_on_close fd high_msgq_watermark high_watermark keepalive
			low_msgq_watermark low_watermark nodelay port priority recbuf send_timeout send_timeout_close sndbuf tos}
		stomp.tcp_listen_options.linger.{on timeout} web_stomp.{allow_origins max_connections port proxy_protocol use_file_handle_cache
			use_http_auth ws_frame ws_path} web_stomp.allow_origins.* web_stomp.cowboy_opts.{idle_timeout max_empty_lines max_header_name_length
			max_header_value_length max_headers max_keepalive max_request_line_length timeout} web_stomp.hsts.policy
		web_stomp.num_acceptors.{ssl tcp} web_stomp.ssl.{backlog cacertfile cert certfile client_renegotiation crl_check depth dh dhfile
			fail_if_no_peer_cert honor_cipher_order honor_ecc_order ip keyfile listener log_alert password port psk_identity reuse_sessions
			secure_renegotiate verify} web_stomp.ssl.ciphers.* web_stomp.ssl.versions.* web_stomp.tcp.{backlog ip listener port}
		web_stomp.ws_opts.{compress idle_timeout max_frame_size}`},
	{"streams are not supported", `
		stream.{advertised_host advertised_port advertised_tls_host advertised_tls_port credits_required_for_unblocking data_dir frame_max
			heartbeat initial_credits initial_frame_max max_connections max_super_stream_partitions max_uncompressed_sub_entry_batch_size
			read_ahead read_ahead_limit ssl_cert_login tcp_listen_options} stream.listeners.{ssl tcp} stream.listeners.ssl.*
		stream.listeners.tcp.* stream.num_acceptors.{ssl tcp} stream.replication.address_family stream.replication.port_range.{max min}
		stream.tcp_listen_options.{backlog buffer delay_send dontroute exit_on_close fd high_msgq_watermark high_watermark keepalive
			low_msgq_watermark low_watermark nodelay port priority recbuf send_timeout send_timeout_close sndbuf tos}
		stream.tcp_listen_options.linger.{on timeout}`},
	{"virtual hosts share one journal: none stops alone", `
		vhost_restart_strategy`},
	{"the node uses the resident memory that the system reports", `
		vm_memory_calculation_strategy`},
	{"message bodies are written to disk at once", `
		vm_memory_high_watermark_paging_ratio`},
	{"RabbitMQ 4 no longer has it", `
		mqtt.{default_user default_pass} cluster_formation.randomized_startup_delay_range.{min max} disk_monitor_failure_retries disk_monitor_failure_retry_interval
		msg_store_file_size_limit msg_store_io_batch_size queue_index_max_journal_entries file_handles_high_watermark`},
})

// without are keys without effect.
type without struct{ reason, keys string }

// idle makes keys of lists of them.
func idle(lists []without) (keys []key) {
	for _, l := range lists {
		for _, pattern := range patterns(l.keys) {
			keys = append(keys, key{pattern: pattern, idle: l.reason})
		}
	}
	return keys
}

// patterns splits a list of patterns, in which a.{b c} stands for a.b and a.c.
func patterns(list string) (all []string) {
	prefix := ""
	for _, word := range strings.Fields(list) {
		if before, first, opens := strings.Cut(word, "{"); opens {
			prefix, word = before, first
		}
		word, closes := strings.CutSuffix(word, "}")
		all = append(all, prefix+word)
		if closes {
			prefix = ""
		}
	}
	return all
}
