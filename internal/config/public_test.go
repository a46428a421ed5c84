package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Files of the kinds that people have: of charts, compose files, guides and old installations. Each is taken as it is. want has
// what a node does by it, and behind "-" the line and the name of each setting without effect.
var publicFiles = []struct{ name, text, want string }{
	{"a chart's cluster.conf", `
## Clustering
cluster_name = rabbitmq
cluster_formation.peer_discovery_backend  = rabbit_peer_discovery_k8s
cluster_formation.k8s.host = kubernetes.default.svc.cluster.local
cluster_formation.k8s.address_type = hostname
cluster_formation.node_cleanup.interval = 10
cluster_formation.node_cleanup.only_log_warning = true
cluster_partition_handling = autoheal
queue_master_locator = min-masters
loopback_users.guest = false
default_user = user
default_pass = CHANGEME
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 409MiB
load_definitions = /app/load_definition.json
log.console = true
log.console.level = info
`, `
cluster_name = rabbitmq
default_pass = CHANGEME
default_user = user
load_definitions = /app/load_definition.json
log.console.level = info
vm_memory_high_watermark.absolute = 428867584
loopback_users.guest =
vm_memory_high_watermark.relative =
- 4 cluster_formation.peer_discovery_backend
- 5 cluster_formation.k8s.host
- 6 cluster_formation.k8s.address_type
- 7 cluster_formation.node_cleanup.interval
- 8 cluster_formation.node_cleanup.only_log_warning
- 9 cluster_partition_handling
- 10 queue_master_locator`},
	{"an operator's defaults", `
queue_leader_locator = balanced
disk_free_limit.absolute = 2GB
cluster_partition_handling = pause_minority
cluster_formation.target_cluster_size_hint = 3
cluster_formation.classic_config.nodes.1 = rabbit@r1
total_memory_available_override_value = 1717986919
management.load_definitions = /etc/definitions.json
prometheus.return_per_object_metrics = true
raft.wal_max_size_bytes = 64000000
collect_statistics_interval = 10000
`, `
disk_free_limit.absolute = 2000000000
load_definitions = /etc/definitions.json
prometheus.return_per_object_metrics = true
total_memory_available_override_value = 1717986919
- 2 queue_leader_locator
- 4 cluster_partition_handling
- 5 cluster_formation.target_cluster_size_hint
- 6 cluster_formation.classic_config.nodes.1
- 10 raft.wal_max_size_bytes
- 11 collect_statistics_interval`},
	{"a guide to TLS", `
listeners.tcp = none
listeners.ssl.default = 5671
ssl_options.cacertfile = /path/to/ca_certificate.pem
ssl_options.certfile   = /path/to/server_certificate.pem
ssl_options.keyfile    = /path/to/server_key.pem
ssl_options.verify     = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
ssl_options.honor_cipher_order = true
ssl_options.honor_ecc_order    = true
ssl_options.ciphers.1 = TLS_AES_256_GCM_SHA384
management.ssl.port       = 15671
management.ssl.cacertfile = /path/to/ca_certificate.pem
management.ssl.certfile   = /path/to/server_certificate.pem
management.ssl.keyfile    = /path/to/server_key.pem
prometheus.ssl.port       = 15691
prometheus.ssl.certfile   = /path/to/server_certificate.pem
prometheus.ssl.keyfile    = /path/to/server_key.pem
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
ssl_cert_login_from = common_name
`, `
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
listeners.ssl.1 = 5671
listeners.tcp = none
management.ssl.cacertfile = /path/to/ca_certificate.pem
management.ssl.certfile = /path/to/server_certificate.pem
management.ssl.keyfile = /path/to/server_key.pem
management.ssl.port = 15671
prometheus.ssl.certfile = /path/to/server_certificate.pem
prometheus.ssl.keyfile = /path/to/server_key.pem
prometheus.ssl.port = 15691
ssl_cert_login_from = common_name
ssl_options.cacertfile = /path/to/ca_certificate.pem
ssl_options.certfile = /path/to/server_certificate.pem
ssl_options.ciphers.1 = TLS_AES_256_GCM_SHA384
ssl_options.fail_if_no_peer_cert = true
ssl_options.keyfile = /path/to/server_key.pem
ssl_options.verify = verify_peer
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
- 11 ssl_options.honor_cipher_order
- 12 ssl_options.honor_ecc_order`},
	{"a page behind a proxy, the older form", `
management.listener.port = 15671
management.listener.ip = 0.0.0.0
management.listener.ssl = true
management.listener.ssl_opts.cacertfile = /etc/ssl/ca.pem
management.listener.ssl_opts.certfile = /etc/ssl/cert.pem
management.listener.ssl_opts.keyfile = /etc/ssl/key.pem
management.path_prefix = /rabbitmq
management.rates_mode = basic
management.cors.allow_origins.1 = https://origin.example
management.hsts.policy = max-age=31536000
`, `
management.hsts.policy = max-age=31536000
management.listener.ip = 0.0.0.0
management.listener.port = 15671
management.listener.ssl = true
management.listener.ssl_opts.cacertfile = /etc/ssl/ca.pem
management.listener.ssl_opts.certfile = /etc/ssl/cert.pem
management.listener.ssl_opts.keyfile = /etc/ssl/key.pem
management.path_prefix = /rabbitmq
- 9 management.rates_mode
- 10 management.cors.allow_origins.1`},
	{"a broker for devices", `
listeners.tcp.1 = :::5672
listeners.tcp.2 = ::1:5673
mqtt.listeners.tcp.default = 1883
mqtt.allow_anonymous = false
mqtt.vhost = /
mqtt.exchange = amq.topic
mqtt.default_user = guest
web_mqtt.tcp.port = 15675
stomp.listeners.tcp.1 = 61613
tcp_listen_options.backlog = 4096
tcp_listen_options.nodelay = true
tcp_listen_options.linger.on = true
channel_max = 0
frame_max = 0
max_connections = infinity
heartbeat = 30
num_acceptors.tcp = 20
`, `
channel_max = 0
frame_max = 0
heartbeat = 30
listeners.tcp.1 = [::]:5672
listeners.tcp.2 = [::1]:5673
- 4 mqtt.listeners.tcp.default
- 5 mqtt.allow_anonymous
- 6 mqtt.vhost
- 7 mqtt.exchange
- 8 mqtt.default_user
- 9 web_mqtt.tcp.port
- 10 stomp.listeners.tcp.1
- 11 tcp_listen_options.backlog
- 12 tcp_listen_options.nodelay
- 13 tcp_listen_options.linger.on
- 18 num_acceptors.tcp`},
	{"logins by a service", `
auth_backends.1 = cache
auth_cache.cached_backend = http
auth_cache.cache_ttl = 5000
auth_http.http_method = post
auth_http.user_path = http://auth:8000/auth/user
auth_http.vhost_path = http://auth:8000/auth/vhost
auth_http.resource_path = http://auth:8000/auth/resource
auth_http.topic_path = http://auth:8000/auth/topic
management.disable_basic_auth = false
prometheus.authentication.enabled = true
prometheus.path = /metrics
management.restrictions.operator_policy_changes.disabled = true
log.file.rotation.date = $D0
log.connection.level = error
`, `
auth_backends.1 = cache
auth_cache.cache_ttl = 5000
auth_cache.cached_backend = http
auth_http.http_method = post
auth_http.resource_path = http://auth:8000/auth/resource
auth_http.topic_path = http://auth:8000/auth/topic
auth_http.user_path = http://auth:8000/auth/user
auth_http.vhost_path = http://auth:8000/auth/vhost
log.connection.level = error
management.restrictions.operator_policy_changes.disabled = true
prometheus.authentication.enabled = true
prometheus.path = /metrics
- 14 log.file.rotation.date`},

	{"an installation of 3.6", `
%% -*- mode: erlang -*-
[
 {rabbit,
  [%% networking
   {tcp_listeners, [5672, {"127.0.0.1", 5673}, {"::1", 5674}]},
   {num_tcp_acceptors, 10},
   {handshake_timeout, 10000},
   {reverse_dns_lookups, true},
   {loopback_users, []},
   {default_vhost,       <<"/">>},
   {default_user,        <<"admin">>},
   {default_pass,        <<"s3#cret">>},
   {default_permissions, [<<".*">>, <<".*">>, <<".*">>]},
   {default_user_tags, [administrator]},
   {vm_memory_high_watermark, 0.4},
   {vm_memory_high_watermark_paging_ratio, 0.5},
   {disk_free_limit, {mem_relative, 1.5}},
   {cluster_partition_handling, pause_minority},
   {cluster_nodes, {['rabbit@one', 'rabbit@two'], disc}},
   {heartbeat, 60},
   {frame_max, 131072},
   {channel_max, 128},
   {log_levels, [{connection, warning}, {channel, info}]},
   {hipe_compile, false},
   {collect_statistics_interval, 5000},
   {server_properties, [{"product", "x"}]}
  ]},
 {kernel, [{net_ticktime, 120}, {inet_dist_listen_min, 25672}]},
 {rabbitmq_management,
  [{listener, [{port, 15672}, {ip, "127.0.0.1"}]},
   {load_definitions, "/etc/rabbitmq/definitions.json"},
   {rates_mode, basic},
   {sample_retention_policies, [{global, [{60, 5}, {3600, 60}]}]}]},
 {rabbitmq_shovel, [{shovels, [{my_shovel, [{sources, [{broker, "amqp://"}]}]}]}]},
 {lager, [{log_root, "/var/log/rabbitmq"}]}
].
`, `
channel_max = 128
default_pass = s3#cret
default_user = admin
disk_free_limit.relative = 1.5
listeners.tcp.1 = 5672
listeners.tcp.2 = 127.0.0.1:5673
listeners.tcp.3 = [::1]:5674
load_definitions = /etc/rabbitmq/definitions.json
log.connection.level = warning
management.listener.ip = 127.0.0.1
management.listener.port = 15672
vm_memory_high_watermark.relative = 0.4
disk_free_limit.absolute =
loopback_users.guest =
- 27 rabbit.server_properties.product
- 35 rabbitmq_shovel.shovels.my_shovel
- 36 lager
- 7 num_acceptors.tcp
- 9 reverse_dns_lookups
- 17 vm_memory_high_watermark_paging_ratio
- 19 cluster_partition_handling
- 20 cluster_formation.classic_config.nodes.1
- 20 cluster_formation.classic_config.nodes.2
- 24 log.channel.level
- 25 hipe_compile
- 26 collect_statistics_interval
- 29 net_ticktime
- 29 distribution.listener.port_range.min
- 33 management.rates_mode
- 34 management.sample_retention_policies.global.60
- 34 management.sample_retention_policies.global.3600`},
	{"TLS of 3.6", `
[{ssl, [{versions, ['tlsv1.2']}]},
 {rabbit, [
   {ssl_listeners, [5671]},
   {ssl_options, [{cacertfile, "/ca/cacert.pem"}, {certfile, "/s/cert.pem"}, {keyfile, "/s/key.pem"}, {password, "pw"},
                  {versions, ['tlsv1.2', 'tlsv1.3']}, {verify, verify_peer}, {fail_if_no_peer_cert, true}, {depth, 2},
                  {ciphers, ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]}, {honor_cipher_order, true}]},
   {auth_mechanisms, ['PLAIN', 'EXTERNAL']},
   {ssl_cert_login_from, common_name}]},
 {rabbitmq_management, [
   {listener, [{port, 15671}, {ssl, true},
               {ssl_opts, [{cacertfile, "/ca/cacert.pem"}, {certfile, "/s/cert.pem"}, {keyfile, "/s/key.pem"}]}]}]}].
`, `
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
listeners.ssl.1 = 5671
management.listener.port = 15671
management.listener.ssl = true
management.listener.ssl_opts.cacertfile = /ca/cacert.pem
management.listener.ssl_opts.certfile = /s/cert.pem
management.listener.ssl_opts.keyfile = /s/key.pem
ssl_cert_login_from = common_name
ssl_options.cacertfile = /ca/cacert.pem
ssl_options.certfile = /s/cert.pem
ssl_options.ciphers.1 = ECDHE-RSA-AES256-GCM-SHA384
ssl_options.ciphers.2 = ECDHE-RSA-AES128-GCM-SHA256
ssl_options.depth = 2
ssl_options.fail_if_no_peer_cert = true
ssl_options.keyfile = /s/key.pem
ssl_options.password = pw
ssl_options.verify = verify_peer
ssl_options.versions.1 = tlsv1.2
ssl_options.versions.2 = tlsv1.3
- 2 ssl
- 7 ssl_options.honor_cipher_order`},
	{"an advanced.config of today", `
[
  {rabbit, [
    {consumer_timeout, 3600000},
    {default_queue_type, rabbit_quorum_queue},
    {log, [{console, [{enabled, true}, {level, warning}]},
           {file, [{file, "rabbit.log"}, {level, info}, {size, 10485760}]},
           {categories, [{connection, [{level, error}]}]}]},
    {tcp_listen_options, [binary, {backlog, 4096}, {nodelay, true}, {linger, {true, 0}}]},
    {permit_deprecated_features, #{transient_nonexcl_queues => false}},
    {auth_backends, [{rabbit_auth_backend_http, rabbit_auth_backend_internal}, rabbit_auth_backend_internal]}
  ]},
  {rabbitmq_auth_backend_http, [{http_method, post}, {user_path, "http://a/user"}]},
  {rabbitmq_prometheus, [{tcp_config, [{port, 15692}, {ip, {127,0,0,1}}]},
    {ssl_config, [{port, 15691}, {ssl_opts, [{certfile, "/c"}, {keyfile, "/k"}]}, {cowboy_opts, [{idle_timeout, 1000}]}]}]},
  {rabbitmq_management, [{tcp_config, [{port, 15672}, {cowboy_opts, [{compress, true}]}]}, {disable_basic_auth, true},
    {restrictions, [{operator_policy_changes, [{disabled, true}]}]}]},
  {ra, [{wal_max_size_bytes, 64000000}]},
  {rabbitmq_mqtt, [{default_user, <<"guest">>}, {tcp_listeners, [1883]}]},
  {rabbitmq_auth_backend_oauth2, [{resource_server_id, <<"rabbitmq">>}, {key_config, [{signing_keys, #{<<"k">> => {map, #{}}}}]}]}
].
`, `
auth_backends.1.authn = http
auth_backends.1.authz = internal
auth_backends.2 = internal
auth_http.http_method = post
auth_http.user_path = http://a/user
consumer_timeout = 3600000
default_queue_type = quorum
deprecated_features.permit.transient_nonexcl_queues = false
log.connection.level = error
log.console.level = warning
log.file = rabbit.log
log.file.level = info
management.disable_basic_auth = true
management.restrictions.operator_policy_changes.disabled = true
management.tcp.port = 15672
prometheus.ssl.certfile = /c
prometheus.ssl.keyfile = /k
prometheus.ssl.port = 15691
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = 15692
auth_backends.1 =
- 9 rabbit.tcp_listen_options.binary
- 9 rabbit.tcp_listen_options.linger
- 20 rabbitmq_auth_backend_oauth2.key_config.signing_keys.k
- 7 log.file.rotation.size
- 9 tcp_listen_options.backlog
- 9 tcp_listen_options.nodelay
- 15 prometheus.ssl.idle_timeout
- 16 management.tcp.compress
- 18 raft.wal_max_size_bytes
- 19 mqtt.default_user
- 19 mqtt.listeners.tcp.1
- 20 auth_oauth2.resource_server_id`},
	{"nothing", "[].\n", ""},
	{"nothing but comments", "%% none yet\n", ""},
}

func TestPublicConfigurations(t *testing.T) {
	for _, tt := range publicFiles {
		t.Run(tt.name, func(t *testing.T) {
			c, before := Default(), Default()
			isTerms := strings.Contains(tt.text, "[") && !strings.Contains(tt.text, " = ") || strings.HasPrefix(tt.text, "%%")
			warnings, err := ParseFiles(&c, nil, File{Text: tt.text, Terms: isTerms})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Check(); err != nil {
				t.Error(err)
			}
			var got strings.Builder
			for _, s := range Changed(&before, &c) {
				fmt.Fprint(&got, "\n", strings.TrimSpace(s.Key+" = "+s.Value))
			}
			for _, w := range warnings {
				fmt.Fprintf(&got, "\n- %d %s", w.Line, w.Key)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if isTerms {
				converts(t, tt.text, c)
			} else {
				readBack(t, c)
			}
		})
	}
}

// converts checks that a file of terms, as lines of rabbitmq.conf, says the same.
func converts(t *testing.T, text string, want Config) {
	t.Helper()
	lines, err := ConvertTerms(File{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	got := Default()
	if _, err := Parse(&got, lines); err != nil {
		t.Errorf("the lines are refused: %v\n%s", err, lines)
	} else if diff := cmp.Diff(want, got, sameNetwork); diff != "" {
		t.Errorf("the lines say something else (-terms +lines):\n%s\n%s", diff, lines)
	}
}

// What is wrong in a file of terms, or must not be ignored, is an error with its line.
func TestTermsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[{rabbit, [\n{tcp_listeners, [{\"h\"}]}]}].":                     "line 2: listeners.tcp: is neither a port nor {Address, Port}",
		"[{rabbit, [{tcp_listeners, 5672}]}].":                            "line 1: listeners.tcp: is not a list",
		"[{rabbit, [{default_pass,\n{encrypted, <<\"x\">>}}]}].":          "line 2: rabbit.default_pass: the value is encrypted, which is not supported",
		"[{rabbit, [{heartbeat, soon}]}].":                                `line 1: heartbeat: "soon" is not a number of seconds from 0 to 65535`,
		"[{rabbit, [{ssl_options, [{verify_fun, {m, f, []}}]}]}].":        "line 1: rabbit.ssl_options.verify_fun: is not supported: a function cannot verify certificates; name the authorities in cacertfile",
		"[{rabbit, [{vhost_max, 5}]}].":                                   `line 1: vhost_max: "5" is not supported, only infinity: the node does not limit this; limit queues and connections of each virtual host with its limits`,
		"[{rabbit, [{default_users, [{a, [{password, \"s3cret\"}]}]}]}].": "line 1: rabbit.default_users: is not supported: import further users with load_definitions",
		"[{rabbitmq_trust_store, [{directory, \"/x\"}]}].":                `line 1: trust_store.directory: "/x" is not supported: there is no trust store; name the authorities in ssl_options.cacertfile`,
		"[{rabbit, 5}].": "line 1: rabbit: is not a list",
		"[{rabbit}].":    "line 1: is not of the form {application, [settings]}",
		"[].\n[].":       "line 2: a second term: the file has one list of applications",
		"[{rabbit, [{default_permissions, [<<\".*\">>]}]}].":                          "line 1: default_permissions: is not [Configure, Write, Read]",
		"[{rabbit, [{auth_backends, [rabbit_auth_backend_ldap]}]}].":                  `line 1: auth_backends.1: "rabbit_auth_backend_ldap" is not internal, http or cache; there are no other backends`,
		"listeners.tcp.1 = 5672\n":                                                    `line 1: ".tcp.1 = 5672" comes where . or , or a closing bracket is due`,
		"[{rabbit, [{loopback_users, [{a, b, c}]}, {cluster_nodes, {x, y, z}}, {]}].": `line 1: "]}]." is no term`,
	} {
		c := Default()
		if _, err := ParseFiles(&c, nil, File{Text: text, Terms: true}); err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// A setting in advanced.config replaces what rabbitmq.conf says of it, all of it, and nothing else.
func TestTermsReplaceLines(t *testing.T) {
	c := Default()
	_, err := ParseFiles(&c, nil,
		File{Name: "rabbitmq.conf", Text: "listeners.tcp.1 = 1\nlisteners.tcp.2 = 2\nssl_options.depth = 3\nconnection_max = 4\nheartbeat = 5\nlog.console.level = debug\nmanagement.tcp.port = 6"},
		File{Name: "advanced.config", Terms: true, Text: `[{rabbit, [{tcp_listeners, [7]}, {ssl_options, [{certfile, "c"}]}, {connection_max, infinity}, {default_pass, "a'b # $(c)"}]}].`})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.AMQP, want.TLS.CertFile, want.Heartbeat = []string{":7"}, "c", 5*time.Second
	want.Log.Console.Level, want.Management.Port, want.FirstStart.Password = "debug", "6", "a'b # $(c)"
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A reload takes over any value, also one that no line can have.
	if now, waiting, err := TakeOver(&c, &c); err != nil || len(waiting) > 0 || !cmp.Equal(now, c) {
		t.Errorf("%v, %v:\n%s", err, waiting, cmp.Diff(c, now))
	}
}

func TestConvertTerms(t *testing.T) {
	got, err := ConvertTerms(File{Text: "[{rabbit, [{default_pass, <<\"a#b\">>}, {default_user, \"it's #1\"}, {hipe_compile, true},\n{vhost_max, 3}, {x, [{y, 1}]}]}]."})
	want := `default_pass = 'a#b'
# no effect: there is no Erlang VM
hipe_compile = true
# refused: "3" is not supported, only infinity: the node does not limit this; limit queues and connections of each virtual host with its limits
vhost_max = 3
# line 2: rabbit.x.y: rabbitmq.conf has no name for it, and it is not obeyed
not converted: line 1: default_user: rabbitmq.conf cannot have the value; write $(NAME) instead of it, and set the variable NAME in the node's environment
`
	if diff := cmp.Diff(want, got); err == nil || "not converted: "+err.Error() != got[strings.Index(got, "not converted"):len(got)-1] || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A node does not start with lines in which a value of the terms is missing: it would have another password, or no limit.
func TestWhatIsNotConvertedIsRefused(t *testing.T) {
	for text, key := range map[string]string{
		`[{rabbit, [{default_pass, <<"pa'ss # word">>}]}].`:                "default_pass",
		"[{rabbit, [{default_pass, \"two\nlines\"}]}].":                    "default_pass",
		`[{rabbit, [{default_pass, {encrypted, <<"x">>}}]}].`:              "default_pass",
		`[{rabbit, [{default_pass, {a, b, c}}]}].`:                         "default_pass",
		`[{rabbit, [{ssl_options, [{verify_fun, {m, f, []}}]}]}].`:         "verify_fun",
		`[{rabbit, [{default_user_tags, [{'a = b # c', true}]}]}].`:        "default_user_tags",
		"[{rabbit, [{default_user_tags, [{'a\nheartbeat = 1', true}]}]}].": "default_user_tags",
	} {
		lines, err := ConvertTerms(File{Text: text})
		if err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "# word") {
			t.Errorf("%s: the error is %v", text, err)
		}
		c := Default()
		if _, err := Parse(&c, lines); err == nil || !strings.Contains(lines, "not converted: ") {
			t.Errorf("%s: a node starts with\n%s", text, lines)
		}
	}
}

// No text panics, its lines have names, and what is converted is what is read.
func FuzzTerms(f *testing.F) {
	for _, tt := range publicFiles {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := Default()
		file := File{Text: text, Terms: true}
		_, err := ParseFiles(&c, nil, file)
		lines, failed := ConvertTerms(file)
		again := Default()
		if failed != nil {
			if _, refused := Parse(&again, lines); refused == nil {
				t.Errorf("not all is converted (%v), and a node starts with\n%s", failed, lines)
			}
		} else if err == nil {
			if _, err := Parse(&again, lines); err != nil || !cmp.Equal(c, again, sameNetwork) {
				t.Errorf("%v:\n%s\n%s", err, lines, cmp.Diff(c, again, sameNetwork))
			}
		}
	})
}
