// Package config reads the configuration of a node: rabbitmq.conf, with RabbitMQ's names
// and rules, and the environment variables of container users. The result is one typed
// value with defaults.
//
// The command bartleby, the server and the root package call it. It opens no files and owns
// no state: callers pass text and get values, errors and warnings, or the lines of a
// configuration. The table of keys says which keys a running node can change.
package config

import (
	"net/netip"
	"time"
)

// Config is the whole configuration of a node. Default returns the defaults.
type Config struct {
	NodeName    string // only the environment names it
	ClusterName string // cluster_name; "": the node's name

	AMQP       []string // listeners.tcp.*: HOST:PORT, an empty host is every interface; nil: not said; empty: none
	AMQPS      []string // listeners.ssl.*, likewise
	TLS        TLS      // ssl_options.*
	Management Listener // management.tcp.*
	Prometheus Listener // prometheus.tcp.*
	// MetricsPerObject is prometheus.return_per_object_metrics.
	MetricsPerObject bool
	// ManagementTLS and PrometheusTLS are management.ssl.* and prometheus.ssl.*.
	ManagementTLS, PrometheusTLS SecureListener
	// ManagementListener is management.listener.*, the older form of management.tcp.*, or of management.ssl.* if
	// ManagementListenerTLS (management.listener.ssl) is true: see ManagementListeners.
	ManagementListener    SecureListener
	ManagementListenerTLS bool
	MaxHTTP               MaxHTTP // management.tcp.max_connections and the like
	ManagementPrefix      string  // management.path_prefix: API and console are below it; "": at /
	PrometheusPath        string  // prometheus.path; "": /metrics
	PrometheusLogin       bool    // prometheus.authentication.enabled: only users who may monitor get metrics
	NoBasicAuth           bool    // management.disable_basic_auth: no password opens the API
	KeepOperatorPolicies  bool    // management.restrictions.operator_policy_changes.disabled: not by the API
	HideAllow             bool    // management.http.hide_allow_header
	// SessionLife is management.login_session_timeout, in minutes there: how long a login at the console lasts; 0: not set.
	SessionLife time.Duration
	Headers     map[string]string // of all answers of the management listeners: management.hsts.policy, management.headers.*

	// WebAMQP and WebAMQPTLS are web_amqp.tcp.* and web_amqp.ssl.*: listeners for AMQP 1.0 over WebSocket, none unless one is said.
	WebAMQP        Listener
	WebAMQPTLS     SecureListener
	WebAMQPPath    string   // web_amqp.ws_path; "": /ws
	WebAMQPOrigins []string // web_amqp.allow_origins.*: the pages that may connect; nil: all
	ProxyProtocol  bool     // proxy_protocol: AMQP listeners want a PROXY header first
	// Proxies are the trusted proxies, proxy_protocol.trusted.*; nil: not set.
	Proxies []netip.Prefix

	Heartbeat        time.Duration // heartbeat, in seconds there; 0: none is suggested (BR-1.6)
	HandshakeTimeout time.Duration // handshake_timeout, in ms there (BR-1.10)
	TLSTimeout       time.Duration // ssl_handshake_timeout, in ms there
	FrameMax         uint32        // frame_max, bytes; 0: no limit
	ChannelMax       uint16        // channel_max; 0: no limit
	SessionMax       int           // session_max_per_connection
	LinkMax          int           // link_max_per_session
	MaxConnections   int           // max_connections; 0: no limit
	MaxNodeChannels  int           // channel_max_per_node; 0: no limit
	// MaxHandshakes is handshake_max_per_address: connections from one address that have not
	// opened a virtual host yet; 0: no limit.
	MaxHandshakes   int
	MaxMessageSize  int           // max_message_size, bytes (BR-4.9)
	MaxHTTPBody     int64         // management.http.max_body_size, bytes
	ConsumerTimeout time.Duration // consumer_timeout, in ms there; 0: none (BR-9.16)
	// MaxChannelConsumers is consumer_max_per_channel; 0: no limit (BR-3.7).
	MaxChannelConsumers int

	Auth    Auth
	OpenAPI OpenAPI

	// ProductName is product.name, for AMQP clients. Some behave differently with any name
	// except RabbitMQ (BR-1.3).
	ProductName    string
	ProductVersion string // product.version, for clients: a version of RabbitMQ

	FirstStart    FirstStart
	LoopbackUsers []string // loopback_users.*, never nil: who may log in from loopback only (BR-2.6)

	DefaultQueueType string          // default_queue_type: classic or quorum (BR-7.3)
	Permit           map[string]bool // deprecated_features.permit.*

	Memory Watermark // vm_memory_high_watermark.*
	Disk   Watermark // disk_free_limit.*
	// TotalMemory is total_memory_available_override_value, bytes, for relative limits; 0: what the machine or the container has.
	TotalMemory int64

	Storage Storage // storage.*

	Definitions Definitions

	Log Log

	EventExchange EventExchange
	// WebhooksAllowLocal lets webhooks reach addresses of this machine and its link.
	WebhooksAllowLocal bool

	Profile  string // profile: that of virtual hosts that are not told one, rabbitmq or apsaramq
	ApsaraMQ ApsaraMQ

	Strict             bool          // compatibility.strict: RabbitMQ's behaviour where ours differs by choice
	AMQP10             bool          // amqp10.enabled: whether clients may speak AMQP 1.0
	SettleExchange     *bool         // settle_exchange.enabled; nil: unless compatibility.strict
	CountNack          *bool         // delivery_limit.count_nack (DL-11.5); nil: in all queues but strict ones
	LostAndFound       *bool         // lost_and_found.enabled; nil: unless compatibility.strict
	ResetOnDeadLetter  bool          // delivery_limit.reset_on_dead_letter (DL-11.6)
	StripCC            bool          // dead_letter.strip_cc (DL-20.1)
	TrustClientDeath   bool          // dead_letter.trust_client_x_death (DL-7.10)
	ClassicAtLeastOnce bool          // classic.at_least_once (DL-21.5)
	RetryHeld          time.Duration // dead_letter_worker_publisher_confirm_timeout, in ms there; 0: not said (DL-13.4)
}

// Storage configures the use of memory and disk for messages. 0 means not set.
type Storage struct {
	IndexBudget          int64         // storage.index_budget, bytes: memory for the index of queues; an eighth of what there is, see Server.storage
	CacheBudget          int64         // storage.cache_budget, bytes: memory for messages; a sixteenth of what there is, see Server.storage
	CheckpointEvery      time.Duration // storage.checkpoint_interval, in ms there
	CheckpointBytes      int64         // storage.checkpoint_bytes: of the journal
	CheckpointOperations int64         // storage.checkpoint_operations: in the journal
}

// Definitions are the definitions to import at every start (BR-16.7).
type Definitions struct {
	Files []string // load_definitions: files, or directories of them
	URL   string   // definitions.https.url
	TLS   TLS      // definitions.tls.*: TLS with the server at the URL
	// SkipUnchanged skips unchanged definitions that were imported before: objects that
	// were deleted since stay deleted.
	SkipUnchanged   bool
	SkipUnsupported bool // leave out what this broker has not: see definitions.How
}

// FirstStart has the objects that a node makes on an empty data directory (BR-18.1, BR-18.2).
type FirstStart struct {
	VHost                  string
	User, Password         string
	Tags                   []string
	Configure, Write, Read string // regular expressions
}

// Watermark is a limit in bytes, or as a share of the machine's memory.
type Watermark struct {
	Relative float64 // 0: Absolute counts
	Absolute int64   // bytes
}

// Limit is the watermark in bytes; total is the machine's memory. 0 means no limit.
func (w Watermark) Limit(total int64) int64 {
	if w.Relative > 0 {
		return int64(w.Relative * float64(total))
	}
	return w.Absolute
}

// Default is RabbitMQ 4.3's configuration, except where a rule of ours differs.
func Default() Config {
	return Config{
		NodeName:         "bartleby@localhost",
		AMQP10:           true,
		Heartbeat:        60 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		TLSTimeout:       5 * time.Second,
		FrameMax:         131072,
		SessionMax:       64,
		LinkMax:          256,
		ChannelMax:       2047,
		MaxHandshakes:    2000,
		MaxMessageSize:   16 << 20,
		MaxHTTPBody:      20_000_000,
		ConsumerTimeout:  30 * time.Minute,
		Auth:             defaultAuth(),
		ProductName:      "RabbitMQ",
		ProductVersion:   CompatibleVersion,
		FirstStart: FirstStart{
			VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"},
			Configure: ".*", Write: ".*", Read: ".*",
		},
		LoopbackUsers:    []string{"guest"},
		DefaultQueueType: "classic",
		Permit: map[string]bool{
			TransientQueues: true, GlobalQos: true, QueueMasterLocator: true,
		},
		Memory: Watermark{Relative: 0.6},
		Disk:   Watermark{Absolute: 50_000_000},
		TLS:    TLS{Depth: -1}, ManagementTLS: SecureListener{TLS: TLS{Depth: -1}}, ManagementListener: SecureListener{TLS: TLS{Depth: -1}}, PrometheusTLS: SecureListener{TLS: TLS{Depth: -1}}, WebAMQPTLS: SecureListener{TLS: TLS{Depth: -1}},
		Definitions: Definitions{TLS: TLS{Verify: true, Depth: -1}},
		Profile:     "rabbitmq",
		ApsaraMQ:    defaultApsaraMQ(),
		Log:         Log{Console: LogOutput{On: true}, Stdio: "stderr"},
	}
}

// CompatibleVersion is the version of RabbitMQ that the node is compatible with. Clients
// and tools decide by it which features they use.
const CompatibleVersion = "4.3.6"

// Deprecated features with a meaning here.
const (
	TransientQueues    = "transient_nonexcl_queues" // BR-7.7
	GlobalQos          = "global_qos"               // BR-9.9
	QueueMasterLocator = "queue_master_locator"     // BR-7.13
)
