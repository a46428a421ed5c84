package config

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

// keys are all that are known (BR-18.1). The first that matches counts.
var keys = []key{
	{pattern: "listeners.tcp", set: func(p *parser, _, value string) (string, error) {
		if value != "none" {
			return "", errors.New("it must be none; addresses go to listeners.tcp.default or listeners.tcp.1")
		}
		p.c.AMQP = []string{}
		return "", nil
	}},
	{pattern: "listeners.tcp.*", set: func(p *parser, _, value string) (string, error) {
		address, err := listenAddress(value)
		if err == nil {
			p.c.AMQP = append(p.c.AMQP, address)
		}
		return "", err
	}},
	{pattern: "listeners.ssl.*", set: func(_ *parser, _, value string) (string, error) {
		if value == "none" {
			return "", nil
		}
		return "", errors.New("there are no TLS listeners yet, and a plain one in its place would be worse than none")
	}},
	{pattern: "ssl_options.**", idle: "there are no TLS listeners yet"},
	{pattern: "management.tcp.port", set: port(func(c *Config) *string { return &c.Management.Port })},
	{pattern: "management.tcp.ip", set: text(func(c *Config) *string { return &c.Management.Host })},
	{pattern: "prometheus.tcp.port", set: port(func(c *Config) *string { return &c.Prometheus.Port })},
	{pattern: "prometheus.tcp.ip", set: text(func(c *Config) *string { return &c.Prometheus.Host })},

	{pattern: "heartbeat", set: integer(0, math.MaxUint16, func(c *Config, n int64) { c.Heartbeat = time.Duration(n) * time.Second })},
	{pattern: "frame_max", set: integer(4096, math.MaxInt32, func(c *Config, n int64) { c.FrameMax = uint32(n) })},
	{pattern: "channel_max", set: integer(1, math.MaxUint16, func(c *Config, n int64) { c.ChannelMax = uint16(n) })},
	{pattern: "connection_max", set: orInfinity(1, math.MaxInt32, func(c *Config, n int64) { c.MaxConnections = int(n) })},
	{pattern: "consumer_max_per_channel", set: orInfinity(1, math.MaxInt32, func(c *Config, n int64) { c.MaxChannelConsumers = int(n) })},
	{pattern: "max_message_size", set: integer(1, maxMessageSize, func(c *Config, n int64) { c.MaxMessageSize = int(n) })},
	{pattern: "consumer_timeout", set: func(p *parser, _, value string) (string, error) {
		if value == "undefined" {
			p.c.ConsumerTimeout = 0
			return "", nil
		}
		return milliseconds(1, func(c *Config) *time.Duration { return &c.ConsumerTimeout })(p, "", value)
	}},
	{pattern: "auth_mechanisms.*", set: func(p *parser, _, value string) (string, error) {
		if value != "PLAIN" && value != "AMQPLAIN" {
			return "", errors.New("it must be PLAIN or AMQPLAIN")
		}
		if !slices.Contains(p.c.Mechanisms, value) {
			p.c.Mechanisms = append(p.c.Mechanisms, value)
		}
		return "", nil
	}},
	{pattern: "auth_backends.*", set: func(_ *parser, _, value string) (string, error) {
		if value != "internal" && value != "rabbit_auth_backend_internal" {
			return "", errors.New("it must be internal: there is no other backend yet")
		}
		return "", nil
	}},
	{pattern: "product.name", set: text(func(c *Config) *string { return &c.ProductName })},
	{pattern: "product.version", set: text(func(c *Config) *string { return &c.ProductVersion })},
	{pattern: "cluster_name", set: text(func(c *Config) *string { return &c.ClusterName })},

	{pattern: "default_user", set: text(func(c *Config) *string { return &c.FirstStart.User })},
	{pattern: "default_pass", set: func(p *parser, _, value string) (string, error) {
		if strings.HasPrefix(value, "encrypted:") {
			return "", errors.New("encrypted values cannot be read")
		}
		p.c.FirstStart.Password = value
		return "", nil
	}},
	{pattern: "default_vhost", set: text(func(c *Config) *string { return &c.FirstStart.VHost })},
	{pattern: "default_permissions.configure", set: pattern(func(c *Config) *string { return &c.FirstStart.Configure })},
	{pattern: "default_permissions.write", set: pattern(func(c *Config) *string { return &c.FirstStart.Write })},
	{pattern: "default_permissions.read", set: pattern(func(c *Config) *string { return &c.FirstStart.Read })},
	{pattern: "default_user_tags.*", set: func(p *parser, name, value string) (string, error) {
		on, err := boolean(value)
		if err != nil {
			return "", err
		}
		if !p.tagged {
			p.c.FirstStart.Tags, p.tagged = nil, true
		}
		p.c.FirstStart.Tags = member(p.c.FirstStart.Tags, name, on)
		return "", nil
	}},
	{pattern: "loopback_users", set: func(p *parser, _, value string) (string, error) {
		if value != "none" {
			return "", errors.New("it must be none; a user goes to loopback_users.NAME")
		}
		p.c.LoopbackUsers = []string{}
		return "", nil
	}},
	{pattern: "loopback_users.*", set: func(p *parser, name, value string) (string, error) {
		on, err := boolean(value)
		if err != nil {
			return "", err
		}
		p.c.LoopbackUsers = member(p.c.LoopbackUsers, name, on)
		return "", nil
	}},

	{pattern: "default_queue_type", set: oneOf([]string{"classic", "quorum"}, func(c *Config) *string { return &c.DefaultQueueType })},
	{pattern: "deprecated_features.permit.*", set: func(p *parser, name, value string) (string, error) {
		on, err := boolean(value)
		if err != nil {
			return "", err
		}
		if _, known := p.c.Permit[name]; !known {
			return "the feature " + name + " does not exist here", nil
		}
		p.c.Permit[name] = on
		return "", nil
	}},
	{pattern: "load_definitions", set: definitions},
	{pattern: "management.load_definitions", set: definitions},
	{pattern: "definitions.local.path", set: definitions},
	{pattern: "definitions.import_backend", set: func(_ *parser, _, value string) (string, error) {
		if value != "local_filesystem" {
			return "", errors.New("it must be local_filesystem")
		}
		return "", nil
	}},

	{pattern: "vm_memory_high_watermark.relative", set: share(1, func(c *Config) *Watermark { return &c.Memory })},
	{pattern: "vm_memory_high_watermark.absolute", set: absolute(func(c *Config) *Watermark { return &c.Memory })},
	{pattern: "disk_free_limit.relative", set: share(math.MaxInt32, func(c *Config) *Watermark { return &c.Disk })},
	{pattern: "disk_free_limit.absolute", set: absolute(func(c *Config) *Watermark { return &c.Disk })},

	{pattern: "log.console", set: func(_ *parser, _, value string) (string, error) {
		on, err := boolean(value)
		if err != nil || on {
			return "", err
		}
		return "the log goes to standard error; log.console.level = none silences it", nil
	}},
	{pattern: "log.console.level", set: logLevel},
	{pattern: "log.default.level", set: logLevel},
	{pattern: "log.file.**", idle: "the log goes to standard error"},
	{pattern: "log.**", idle: "the log goes to standard error, with one level for all; log.console.level sets it"},

	{pattern: "compatibility.strict", set: flag(func(c *Config) *bool { return &c.Strict })},
	{pattern: "delivery_limit.count_nack", set: flag(func(c *Config) *bool { return &c.CountNack })},
	{pattern: "delivery_limit.reset_on_dead_letter", set: flag(func(c *Config) *bool { return &c.ResetOnDeadLetter })},
	{pattern: "dead_letter.strip_cc", set: flag(func(c *Config) *bool { return &c.StripCC })},
	{pattern: "dead_letter.trust_client_x_death", set: flag(func(c *Config) *bool { return &c.TrustClientDeath })},
	{pattern: "classic.at_least_once", set: flag(func(c *Config) *bool { return &c.ClassicAtLeastOnce })},
	{pattern: "dead_letter_worker_publisher_confirm_timeout", set: milliseconds(1, func(c *Config) *time.Duration { return &c.RetryHeld })},

	{pattern: "proxy_protocol", set: notYet("the PROXY protocol is not spoken yet, and clients behind a proxy would be refused")},

	{pattern: "dead_letter_worker_consumer_prefetch", idle: "dead letters wait in their queue, none are held in a worker"},
	{pattern: "handshake_timeout", idle: "the handshake has 10 s"},
	{pattern: "tcp_listen_options.**", idle: "sockets are set up in one way"},
	{pattern: "num_acceptors.**", idle: "there are no acceptor processes"},
	{pattern: "reverse_dns_lookups", idle: "names are not looked up"},
	{pattern: "collect_statistics", idle: "statistics are always exact"},
	{pattern: "collect_statistics_interval", idle: "statistics are always exact"},
	{pattern: "management.**", idle: "the management API has nothing of that kind"},
	{pattern: "management_agent.**", idle: "the management API has no agents"},
	{pattern: "prometheus.**", idle: "the metrics have nothing of that kind"},
	{pattern: "vm_memory_high_watermark_paging_ratio", idle: "bodies are on disk from the start"},
	{pattern: "vm_memory_calculation_strategy", idle: "memory is what the system counts as resident"},
	{pattern: "memory_monitor_interval", idle: "memory is looked at every second"},
	{pattern: "disk_monitor_failure_retries", idle: "the disk is looked at every second"},
	{pattern: "disk_monitor_failure_retry_interval", idle: "the disk is looked at every second"},
	{pattern: "queue_index_embed_msgs_below", idle: "there is one journal for all bodies"},
	{pattern: "msg_store_file_size_limit", idle: "there is one journal for all bodies"},
	{pattern: "queue_leader_locator", idle: "there is one node"},
	{pattern: "queue_master_locator", idle: "there is one node"},
	{pattern: "mirroring_sync_batch_size", idle: "there is one node"},
	{pattern: "cluster_formation.**", idle: "there is one node"},
	{pattern: "cluster_partition_handling", idle: "there is one node"},
	{pattern: "cluster_keepalive_interval", idle: "there is one node"},
	{pattern: "net_ticktime", idle: "there is one node"},
	{pattern: "raft.**", idle: "there is one node"},
	{pattern: "quorum_queue.**", idle: "there is one node"},
	{pattern: "classic_queue.**", idle: "there is one journal for all queues"},
	{pattern: "background_gc_enabled", idle: "memory is not managed by Erlang here"},
	{pattern: "background_gc_target_interval", idle: "memory is not managed by Erlang here"},
	{pattern: "mqtt.**", idle: "MQTT is not spoken here"},
	{pattern: "web_mqtt.**", idle: "MQTT is not spoken here"},
	{pattern: "stomp.**", idle: "STOMP is not spoken here"},
	{pattern: "web_stomp.**", idle: "STOMP is not spoken here"},
	{pattern: "stream.**", idle: "there are no streams yet"},
}

// maxMessageSize is RabbitMQ's bound of max_message_size, 512 MiB.
const maxMessageSize = 512 << 20

// definitions adds a file to import at start.
func definitions(p *parser, _, value string) (string, error) {
	if value == "" {
		return "", errors.New("it must name a file")
	}
	if !slices.Contains(p.c.Definitions, value) {
		p.c.Definitions = append(p.c.Definitions, value)
	}
	return "", nil
}

func logLevel(p *parser, _, value string) (string, error) {
	if _, _, err := LogLevel(value); err != nil {
		return "", err
	}
	p.c.Log.Level = value
	return "", nil
}

// member puts a name into a list or takes it out.
func member(list []string, name string, in bool) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
	if in {
		list = append(list, name)
	}
	if list == nil {
		list = []string{} // said to be empty, which nil is not
	}
	return list
}
