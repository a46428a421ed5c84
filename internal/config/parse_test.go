package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var sameNetwork = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// BR-18.1: what each key does.
func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		text string
		want func(c *Config)
	}{
		{"", func(*Config) {}},
		{"# a comment\n\n   # another\r\n", func(*Config) {}},
		{"listeners.tcp.default = 5673", func(c *Config) { c.AMQP = []string{":5673"} }},
		{"listeners.tcp.1 = ::1:5672", func(c *Config) { c.AMQP = []string{"[::1]:5672"} }},
		{"listeners.tcp.1 = :::5672\nlisteners.tcp.2 = *:5673\nlisteners.tcp.3 = localhost:5674", func(c *Config) {
			c.AMQP = []string{"[::]:5672", ":5673", "localhost:5674"}
		}},
		{"listeners.tcp.1 = fe80::1%eth0:5672", func(c *Config) { c.AMQP = []string{"[fe80::1%eth0]:5672"} }},
		{"listeners.tcp.1 = ::5672", nil},
		{"listeners.tcp.1 = :5672", nil},
		{"listeners.tcp.1 = a:b:5672", nil},
		{"listeners.tcp.1 = [::1:5672", nil},
		{"listeners.tcp.1 = [127.0.0.1]:5672", nil},
		{"listeners.tcp.1 = 127.0.0.1:0", nil},
		{"management.listener.port = 15671\nmanagement.listener.ip = 10.0.0.1\nmanagement.listener.ssl = true\nmanagement.listener.ssl_opts.certfile = c", func(c *Config) {
			c.ManagementListener = SecureListener{Listener{"10.0.0.1", "15671"}, TLS{Depth: -1, CertFile: "c"}}
			c.ManagementListenerTLS = true
		}},
		{"management.path_prefix = rabbit/mq/\nprometheus.path = /m", func(c *Config) { c.ManagementPrefix, c.PrometheusPath = "/rabbit/mq", "/m" }},
		{"management.path_prefix = /", func(*Config) {}},
		{"management.path_prefix = /a/../b", nil},
		{"management.path_prefix = //a", nil},
		{"prometheus.path = /a b", nil},
		{"prometheus.tcp.listener = none", func(c *Config) { c.Prometheus = Listener{"", "none"} }},
		{"prometheus.tcp.listener = 127.0.0.1:9000", func(c *Config) { c.Prometheus = Listener{"127.0.0.1", "9000"} }},
		{"management.disable_basic_auth = true\nprometheus.authentication.enabled = true\nmanagement.restrictions.operator_policy_changes.disabled = true", func(c *Config) {
			c.NoBasicAuth, c.PrometheusLogin, c.KeepOperatorPolicies = true, true, true
		}},
		{"management.login_session_timeout = 60\nmanagement.http.hide_allow_header = true", func(c *Config) { c.SessionLife, c.HideAllow = time.Hour, true }},
		{"management.hsts.policy = max-age=31536000; includeSubDomains\nmanagement.headers.frame_options = DENY", func(c *Config) {
			c.Headers = map[string]string{"Strict-Transport-Security": "max-age=31536000; includeSubDomains", "X-Frame-Options": "DENY"}
		}},
		{"management.tcp.max_connections = 50\nprometheus.ssl.max_connections = infinity", func(c *Config) { c.MaxHTTP.Management = 50 }},
		{"total_memory_available_override_value = 8GiB", func(c *Config) { c.TotalMemory = 8 << 30 }},
		{"ssl_options.certfile = c\nssl_options = none", func(*Config) {}},
		{"queue_types.classic.enabled = true\nqueue_types.stream.enabled = false\nvhost_max = infinity\nmanagement.oauth_enabled = off", func(*Config) {}},
		{"queue_types.classic.enabled = false", nil},
		{"vhost_max = 10", nil},
		{"management.oauth_enabled = true", nil},
		{"log.connectoin.level = debug", nil},
		{"deprecated_features.permit.global_qoss = true", nil},
		{"mqtt.vhosst = /", nil},
		{"management.ssl.keyfille = /k", nil},
		{"listeners.tcp.1 = 127.0.0.1:5672\nlisteners.tcp.2 = [::1]:5672", func(c *Config) { c.AMQP = []string{"127.0.0.1:5672", "[::1]:5672"} }},
		{"listeners.tcp = none", func(c *Config) { c.AMQP = []string{} }},
		{"listeners.ssl.default = 5671", func(c *Config) { c.AMQPS = []string{":5671"} }},
		{"listeners.ssl.default = none", func(*Config) {}},
		{"management.tcp.port = 8080\nmanagement.tcp.ip = 0.0.0.0", func(c *Config) { c.Management = Listener{"0.0.0.0", "8080"} }},
		{"prometheus.tcp.port = 9100", func(c *Config) { c.Prometheus = Listener{"", "9100"} }},
		{"prometheus.tcp.port = 0", nil},
		{"heartbeat = 0", func(c *Config) { c.Heartbeat = 0 }},
		{"heartbeat=30", func(c *Config) { c.Heartbeat = 30 * time.Second }},
		{"heartbeat = 65536", nil},
		{"heartbeat = soon", nil},
		{"frame_max = 4096", func(c *Config) { c.FrameMax = 4096 }},
		{"frame_max = 4095", nil},
		{"channel_max = 100", func(c *Config) { c.ChannelMax = 100 }},
		{"channel_max = 0", func(c *Config) { c.ChannelMax = 0 }},
		{"frame_max = 0", func(c *Config) { c.FrameMax = 0 }},
		{"frame_max = 128KiB", func(c *Config) { c.FrameMax = 131072 }},
		{"frame_max = 2147483648", nil},
		{"connection_max = 10\nmax_connections = 0", func(c *Config) { c.MaxConnections = 0 }},
		{"connection_max = 10", func(c *Config) { c.MaxConnections = 10 }},
		{"handshake_max_per_address = infinity", func(c *Config) { c.MaxHandshakes = 0 }},
		{"connection_max = 10\nconnection_max = infinity", func(c *Config) { c.MaxConnections = 0 }},
		{"max_message_size = 1048576", func(c *Config) { c.MaxMessageSize = 1 << 20 }},
		{"max_message_size = 536870913", nil},
		{"consumer_timeout = 60000", func(c *Config) { c.ConsumerTimeout = time.Minute }},
		{"consumer_timeout = undefined", func(c *Config) { c.ConsumerTimeout = 0 }},
		{"auth_mechanisms.1 = PLAIN", func(c *Config) { c.Auth.Mechanisms = []string{"PLAIN"} }},
		{"auth_mechanisms.1 = EXTERNAL", func(c *Config) { c.Auth.Mechanisms = []string{"EXTERNAL"} }},
		{"auth_mechanisms.1 = SCRAM", nil},
		{"auth_backends.1 = internal", func(*Config) {}},
		{"auth_backends.1 = ldap", nil},
		{"product.name = RabbitMQ\nproduct.version = 4.3.0", func(c *Config) { c.ProductName, c.ProductVersion = "RabbitMQ", "4.3.0" }},
		{"default_user = admin\ndefault_pass = 's # = et'\ndefault_vhost = main", func(c *Config) {
			c.FirstStart.User, c.FirstStart.Password, c.FirstStart.VHost = "admin", "s # = et", "main"
		}},
		{"default_pass = encrypted:abc", nil},
		{"default_permissions.configure = ^x\ndefault_permissions.write = ''\ndefault_permissions.read = .* # all", func(c *Config) {
			c.FirstStart.Configure, c.FirstStart.Write, c.FirstStart.Read = "^x", "", ".*"
		}},
		{"default_permissions.read = (", nil},
		{"default_user_tags.monitoring = true\ndefault_user_tags.management = true\ndefault_user_tags.management = false", func(c *Config) {
			c.FirstStart.Tags = []string{"monitoring"}
		}},
		{"loopback_users.guest = false", func(c *Config) { c.LoopbackUsers = []string{} }},
		{"loopback_users = none\nloopback_users.my\\.user = true", func(c *Config) { c.LoopbackUsers = []string{"my.user"} }},
		{"default_queue_type = quorum", func(c *Config) { c.DefaultQueueType = "quorum" }},
		{"default_queue_type = stream", nil},
		{"deprecated_features.permit.global_qos = false", func(c *Config) { c.Permit[GlobalQos] = false }},
		{"load_definitions = a.json\ndefinitions.import_backend = local_filesystem\ndefinitions.local.path = b.json", func(c *Config) {
			c.Definitions.Files = []string{"a.json", "b.json"}
		}},
		{"vm_memory_high_watermark.relative = 0.4", func(c *Config) { c.Memory = Watermark{Relative: 0.4} }},
		{"vm_memory_high_watermark.relative = 1.1", nil},
		{"vm_memory_high_watermark.relative = NaN", nil},
		{"vm_memory_high_watermark.absolute = 2GiB", func(c *Config) { c.Memory = Watermark{Absolute: 2 << 30} }},
		{"disk_free_limit.absolute = 500MB", func(c *Config) { c.Disk = Watermark{Absolute: 500e6} }},
		{"disk_free_limit.absolute = 500XB", nil},
		{"disk_free_limit.absolute = 99999999999TB", nil},
		{"disk_free_limit.relative = 1.5", func(c *Config) { c.Disk = Watermark{Relative: 1.5} }},
		{"log.console.level = debug", func(c *Config) { c.Log.Console.Level = "debug" }},
		{"log.console.level = loud", nil},
		{"compatibility.strict = true", func(c *Config) { c.Strict = true }},
		{"delivery_limit.count_nack = on", func(c *Config) { on := true; c.CountNack = &on }},
		{"delivery_limit.count_nack = false", func(c *Config) { c.CountNack = new(bool) }},
		{"delivery_limit.reset_on_dead_letter = true", func(c *Config) { c.ResetOnDeadLetter = true }},
		{"event_exchange.enabled = off\nevent_exchange.vhost = ops\nevent_exchange.protocol = amqp_0_9_1", func(c *Config) {
			c.EventExchange = EventExchange{Enabled: new(bool), VHost: "ops"}
		}},
		{"event_exchange.enabled = maybe", nil},
		{"webhooks.allow_local = true", func(c *Config) { c.WebhooksAllowLocal = true }},
		{"event_exchange.protocol = mqtt", nil},
		{"dead_letter.strip_cc = true", func(c *Config) { c.StripCC = true }},
		{"dead_letter.strip_cc = false", func(*Config) {}},
		{"dead_letter.strip_cc = maybe", nil},
		{"dead_letter.trust_client_x_death = true", func(c *Config) { c.TrustClientDeath = true }},
		{"dead_letter.trust_client_x_death = false", func(*Config) {}},
		{"classic.at_least_once = true", func(c *Config) { c.ClassicAtLeastOnce = true }},
		{"dead_letter_worker_publisher_confirm_timeout = 2000", func(c *Config) { c.RetryHeld = 2 * time.Second }},
		{"proxy_protocol.trusted.1 = 192.0.2.7\nproxy_protocol.trusted.2 = 2001:db8::1/64", func(c *Config) {
			c.Proxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::/64")}
		}},
		{"proxy_protocol = true", func(c *Config) { c.ProxyProtocol = true }},
		{"ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\nssl_options.versions.1 = tlsv1.3", func(c *Config) {
			c.TLS.Verify, c.TLS.Require, c.TLS.Versions = true, true, []string{"tlsv1.3"}
		}},
		{"ssl_options.versions.1 = tlsv1.1", nil},
		{"ssl_options.crl_check = true", nil},
		{"ssl_options.crl_check = false", func(*Config) {}},
		{"ssl_options.password = encrypted:x", nil},
		{"management.ssl.port = 15671\nmanagement.ssl.keyfile = k.pem", func(c *Config) {
			c.ManagementTLS.Port, c.ManagementTLS.TLS.KeyFile = "15671", "k.pem"
		}},
		{"ssl_cert_login_from = subject_alt_name\nssl_cert_login_san_type = uri\nssl_cert_login_san_index = 1", func(c *Config) {
			c.Auth.CertLogin = CertLogin{"subject_alternative_name", "uri", 1}
		}},
		{"auth_backends.2 = internal\nauth_backends.1.authn = http\nauth_backends.1.authz = rabbit_auth_backend_internal", func(c *Config) {
			c.Auth.Backends = []AuthBackend{{HTTPBackend, InternalBackend}, {InternalBackend, InternalBackend}}
		}},
		{"auth_backends.1.authn = cache", func(c *Config) { c.Auth.Backends = []AuthBackend{{CacheBackend, CacheBackend}} }},
		{"auth_backends.first = http", nil},
		{"auth_cache.cached_backend = cache", nil},
		{"auth_http.http_method = post\nauth_http.user_path = http://a/u\nauth_http.request_timeout = 2000", func(c *Config) {
			c.Auth.HTTP.Post, c.Auth.HTTP.UserPath, c.Auth.HTTP.RequestTimeout = true, "http://a/u", 2*time.Second
		}},
		{"password_hashing_module = argon2id", func(c *Config) { c.Auth.Hashing = "argon2id" }},
		{"password_hashing_module = rabbit_password_hashing_md5", nil},
		{"credential_validator.min_length = 12", func(c *Config) { c.Auth.MinPassword = 12 }},
		{"max_connections = 7", func(c *Config) { c.MaxConnections = 7 }},
		{"handshake_timeout = 20000", func(c *Config) { c.HandshakeTimeout = 20 * time.Second }},
		{"default_users.a.password = x", nil},
		{"log.file = b.log\nlog.file.formatter = json\nlog.connection.level = warning", func(c *Config) {
			c.Log.File, c.Log.Path = LogOutput{On: true, JSON: true}, "b.log"
			c.Log.Categories = map[string]string{"connection": "warning"}
		}},
		{"log.console = false", func(c *Config) { c.Log.Console.On = false }},
		{"listeners.tcp.default = 1\nlisteners.tcp.default = 2", func(c *Config) { c.AMQP = []string{":2"} }},
		{"heartbeat", nil},
		{"heartbeat =", nil},
		{"heartbeat = # none", nil},
		{"= 5", nil},
		{"cluster_name = 'open", nil},
		{"cluster_name = 'shut' tail", nil},
		{"cluster_name = 'shut' # tail", func(c *Config) { c.ClusterName = "shut" }},
		{"include other.conf", nil},
		{"key with spaces = 1", nil},
	} {
		got := Default()
		warnings, err := Parse(&got, tt.text)
		if tt.want == nil {
			if err == nil {
				t.Errorf("%q is taken, want an error", tt.text)
			}
			continue
		}
		want := Default()
		tt.want(&want)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%q: %v, warnings %v", tt.text, err, warnings)
		} else if diff := cmp.Diff(want, got, sameNetwork); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		} else {
			readBack(t, got)
		}
	}
}

// readBack checks that what is shown of a configuration says all of it.
func readBack(t *testing.T, c Config) {
	t.Helper()
	var text strings.Builder
	for _, s := range c.Settings() {
		text.WriteString(s.line() + "\n")
	}
	again := Default()
	if warnings, err := Parse(&again, text.String()); err != nil || len(warnings) > 0 {
		t.Errorf("what is shown cannot be read back: %v, %v:\n%s", err, warnings, text.String())
	} else if diff := cmp.Diff(c, again, sameNetwork); diff != "" {
		t.Errorf("what is shown reads back as something else (-shown +read):\n%s", diff)
	}
}

// Every wrong line is named, with what would be right.
func TestErrorsNameLineKeyValueAndRule(t *testing.T) {
	c := Default()
	_, err := Parse(&c, "heartbeat = 10\nhartbeat = 10\n\nframe_max = 12\ndisk_free_limit.absolut = 1GB\nlisteners.tpc.default = 5672\nvm_args = x\n")
	want := strings.Join([]string{
		"line 2: hartbeat: unknown key; did you mean heartbeat?",
		`line 4: frame_max: "12" is not a size from 4096 to 2147483647 bytes, or 0 for no limit`,
		"line 5: disk_free_limit.absolut: unknown key; did you mean disk_free_limit.absolute?",
		"line 6: listeners.tpc.default: unknown key; did you mean listeners.tcp.*?",
		"line 7: vm_args: unknown key: neither RabbitMQ 4.3.6 nor Bartleby has it",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// What means nothing here is said, with the reason, and does no harm.
func TestWarnings(t *testing.T) {
	c := Default()
	got, err := Parse(&c, "cluster_formation.peer_discovery_backend = dns\nssl_options.dhfile = /x\nlog.federation.level = debug\n"+
		"log.file.rotation.size = 1\nmanagement.rates_mode = none\ndeprecated_features.permit.ram_node_type = true\n")
	want := []Warning{
		{"", 1, "cluster_formation.peer_discovery_backend", "there is one node"},
		{"", 2, "ssl_options.dhfile", "key exchange uses elliptic curves only"},
		{"", 3, "log.federation.level", "nothing is logged in the category federation"},
		{"", 4, "log.file.rotation.size", "the node does not rotate log files; use logrotate, and SIGHUP to reopen them"},
		{"", 5, "management.rates_mode", "statistics are always exact, and always there"},
		{"", 6, "deprecated_features.permit.ram_node_type", "the deprecated feature ram_node_type is not there"},
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Errorf("lines without meaning changed something (-want +got):\n%s", diff)
	}
}

// BR-18.2: container users set the first user in the environment; the file wins.
func TestEnvironment(t *testing.T) {
	env := map[string]string{
		"RABBITMQ_DEFAULT_USER": "u", "RABBITMQ_DEFAULT_PASS": "p", "RABBITMQ_DEFAULT_VHOST": "v", "RABBITMQ_NODE_PORT": "5673",
		"RABBITMQ_LOG": "connection=warning,debug,+color", "RABBITMQ_ERLANG_COOKIE": "x", "RABBITMQ_PORT": "tcp://10.0.0.1:5672",
		"RABBITMQ_CONFIG_FILE": "/etc/rabbitmq/rabbitmq",
	}
	getenv := func(name string) string { return env[name] }
	c := Default()
	warnings, err := Environment(&c, getenv)
	if err != nil || len(warnings) != 1 || warnings[0].Key != "RABBITMQ_ERLANG_COOKIE" {
		t.Errorf("warnings %v, %v", warnings, err)
	}
	if len(c.AMQP) != 1 || c.AMQP[0] != ":5673" || c.Log.Categories["connection"] != "warning" || c.Log.Categories["default"] != "debug" {
		t.Errorf("listeners %v, levels %v", c.AMQP, c.Log.Categories)
	}
	if p := EnvironmentPaths(getenv); p.ConfigFile != "/etc/rabbitmq/rabbitmq" {
		t.Errorf("the file is %s", p.ConfigFile)
	}
	if f := c.FirstStart; f.User != "u" || f.Password != "p" || f.VHost != "v" {
		t.Errorf("first start is %+v", f)
	}
	if _, err := Parse(&c, "default_user = file\nlisteners.tcp.1 = 5674"); err != nil || c.FirstStart.User != "file" || len(c.AMQP) != 1 || c.AMQP[0] != ":5674" {
		t.Errorf("user %q at %v, %v; want the file's", c.FirstStart.User, c.AMQP, err)
	}
	env = map[string]string{"RABBITMQ_SSL_CERTFILE": "/x"}
	if _, err := Environment(&c, getenv); err == nil || !strings.Contains(err.Error(), "use ssl_options.certfile") {
		t.Errorf("a variable that the image refuses: %v", err)
	}
}

func TestWatermarkLimit(t *testing.T) {
	for _, tt := range []struct {
		w    Watermark
		want int64
	}{
		{Watermark{Relative: 0.5}, 500}, {Watermark{Absolute: 7}, 7}, {Watermark{}, 0},
	} {
		if got := tt.w.Limit(1000); got != tt.want {
			t.Errorf("%+v of 1000 is %d, want %d", tt.w, got, tt.want)
		}
	}
}

func TestListenerAddress(t *testing.T) {
	for _, tt := range []struct {
		l    Listener
		want string
	}{
		{Listener{"::1", "80"}, "[::1]:80"}, {Listener{"", "80"}, ":80"}, {Listener{"10.0.0.1", ""}, "10.0.0.1:15672"},
	} {
		if got := tt.l.Address("127.0.0.1:15672"); got != tt.want {
			t.Errorf("%+v is at %s, want %s", tt.l, got, tt.want)
		}
	}
}

// No text panics, every error names a line, and what is refused once is refused again.
func FuzzParse(f *testing.F) {
	f.Add("heartbeat = 10\n# x\nlisteners.tcp.1 = [::1]:5672\n")
	f.Add("default_pass = 'a # b' # c\n")
	f.Add("loopback_users.a\\.b = true\nvm_memory_high_watermark.absolute = 2GiB")
	f.Fuzz(func(t *testing.T, text string) {
		a, b := Default(), Default()
		warnings, err := Parse(&a, text)
		again, errAgain := Parse(&b, text)
		if (err == nil) != (errAgain == nil) || len(warnings) != len(again) || !cmp.Equal(a, b) {
			t.Fatalf("two readings differ: %v, %v", err, errAgain)
		}
		if err == nil {
			return
		}
		if !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("the error names no line: %v", err)
		}
	})
}

// RabbitMQ has no exchange for events without a plugin, so there is none in strict mode unless the configuration asks for it.
func TestEventsAreOffInStrictMode(t *testing.T) {
	on := true
	for _, tt := range []struct {
		strict bool
		said   *bool
		want   bool
	}{{false, nil, true}, {true, nil, false}, {true, &on, true}, {false, new(bool), false}} {
		c := Default()
		c.Strict, c.EventExchange.Enabled = tt.strict, tt.said
		if c.EventsEnabled() != tt.want {
			t.Errorf("%+v: %t", tt, !tt.want)
		}
	}
}
