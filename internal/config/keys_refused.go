package config

import "strings"

// refusedKeys are keys of RabbitMQ's that would protect the node in a way that it cannot. A node that ignored one would be less safe than
// its configuration says, so it does not start. Those of TLS are in tlsKeys.
var refusedKeys = refusals([]refusal{
	{refused("the management API uses the backends of auth_backends.*"), `
		http_dispatch.auth_backends.* http_dispatch.auth_backends.*.{authn authz}`},
	{refused("import further users with load_definitions"), `
		default_users.*.{configure password read tags vhost_pattern write}`},
	{refused("import policies with load_definitions"), `
		default_policies.operator.*.{apply_to delivery_limit expires max_in_memory_bytes max_in_memory_length max_length max_length_bytes
			message_ttl queue_pattern vhost_pattern} default_policies.operator.*.classic_queues.{ha_mode ha_params ha_sync_mode queue_version}`},
	{refused("import limits of virtual hosts with load_definitions"), `
		default_limits.vhosts.*.{max_connections max_queues pattern}`},
	{refused("there is no trust store; name the authorities in ssl_options.cacertfile"), `
		trust_store.{directory https_request_timeout refresh_interval ssl_options url} trust_store.providers.*
		trust_store.ssl_options.{cacertfile cert certfile client_renegotiation crl_check depth dh dhfile fail_if_no_peer_cert
			honor_cipher_order honor_ecc_order keyfile log_alert password psk_identity reuse_sessions secure_renegotiate verify}
		trust_store.ssl_options.{key.* versions.* ciphers.*}`},
	{only("infinity", "the node does not limit this; limit queues and connections of each virtual host with its limits"), `
		vhost_max cluster_queue_limit cluster_exchange_limit`},
	{only("infinity", "a transaction may always have 65,536 operations"), `channel_tx_message_max`},
	{refused("the node does not limit the number of parameters"), `runtime_parameters.limits.*`},
	{only("false", "the node has no mark outside of its data directory by which it could tell"), `prevent_startup_if_node_was_reset`},
	{only("true", "the node cannot forbid a type of queue or exchange; use permissions"), `
		queue_types.classic.enabled queue_types.quorum.enabled exchange_types.local_random.enabled`},
	{only("false", "there is no OAuth 2"), `management.oauth_enabled`},
	{only("false", noRevocation), `amqp_client.ssl_options.crl_check amqp10_client.ssl_options.crl_check`},
})

// refusal are keys with the same rule.
type refusal struct {
	value
	keys string
}

func refusals(lists []refusal) (keys []key) {
	for _, l := range lists {
		for _, pattern := range patterns(l.keys) {
			secret := strings.HasSuffix(pattern, "password") || strings.Contains(pattern, ".key.")
			keys = append(keys, key{pattern: pattern, value: l.value, secret: secret})
		}
	}
	return keys
}
