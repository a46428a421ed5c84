// Package config reads what a node is told before it starts: rabbitmq.conf, by
// RabbitMQ's names and rules as far as they mean something here, and the
// environment of container users. The result is one typed value with defaults.
//
// It opens no files and keeps no state: callers hand in text and get values,
// errors and warnings back. Nothing in it can be changed while a node runs.
package config

import "time"

// Config is everything a node can be told. Default gives what holds where nothing is said.
type Config struct {
	NodeName    string // only the environment names it
	ClusterName string // cluster_name; "": the node's name

	AMQP       []string // listeners.tcp.*: HOST:PORT, an empty host is every interface; nil: not said; empty: none
	Management Listener // management.tcp.*
	Prometheus Listener // prometheus.tcp.*

	Heartbeat       time.Duration // heartbeat, in seconds there; 0: none is suggested (BR-1.6)
	FrameMax        uint32        // frame_max, bytes
	ChannelMax      uint16        // channel_max
	MaxConnections  int           // connection_max; 0: no limit
	MaxMessageSize  int           // max_message_size, bytes (BR-4.9)
	ConsumerTimeout time.Duration // consumer_timeout, in ms there; 0: none (BR-9.16)
	// MaxChannelConsumers is consumer_max_per_channel; 0: no limit (BR-3.7).
	MaxChannelConsumers int
	Mechanisms          []string // auth_mechanisms.*; nil: not said (BR-2.1)

	// ProductName is product.name: what AMQP clients are told. Some behave differently
	// with anything but RabbitMQ (BR-1.3).
	ProductName    string
	ProductVersion string // product.version: what clients are told, a version of RabbitMQ

	FirstStart    FirstStart
	LoopbackUsers []string // loopback_users.*, never nil: who may log in from loopback only (BR-2.6)

	DefaultQueueType string          // default_queue_type: classic or quorum (BR-7.3)
	Permit           map[string]bool // deprecated_features.permit.*

	Memory Watermark // vm_memory_high_watermark.*
	Disk   Watermark // disk_free_limit.*

	Definitions []string // load_definitions: files to import at start

	Log Log

	Strict             bool          // compatibility.strict: RabbitMQ's behaviour where ours differs by choice
	CountNack          bool          // delivery_limit.count_nack (DL-11.5)
	ResetOnDeadLetter  bool          // delivery_limit.reset_on_dead_letter (DL-11.6)
	StripCC            bool          // dead_letter.strip_cc (DL-20.1)
	TrustClientDeath   bool          // dead_letter.trust_client_x_death (DL-7.10)
	ClassicAtLeastOnce bool          // classic.at_least_once (DL-21.5)
	RetryHeld          time.Duration // dead_letter_worker_publisher_confirm_timeout, in ms there; 0: not said (DL-13.4)
}

// FirstStart is what a node makes when it starts with an empty data directory (BR-18.1, BR-18.2).
type FirstStart struct {
	VHost                  string
	User, Password         string
	Tags                   []string
	Configure, Write, Read string // regular expressions
}

// Watermark is a limit in bytes, or as a share of the memory there is.
type Watermark struct {
	Relative float64 // 0: Absolute counts
	Absolute int64   // bytes
}

// Limit is the watermark in bytes where total is what there is; 0 is no limit.
func (w Watermark) Limit(total int64) int64 {
	if w.Relative > 0 {
		return int64(w.Relative * float64(total))
	}
	return w.Absolute
}

// Default is RabbitMQ 4.3's configuration, but for what DESIGN chose otherwise.
func Default() Config {
	return Config{
		NodeName:        "bartleby@localhost",
		Heartbeat:       60 * time.Second,
		FrameMax:        131072,
		ChannelMax:      2047,
		MaxMessageSize:  16 << 20,
		ConsumerTimeout: 30 * time.Minute,
		ProductName:     "RabbitMQ",
		ProductVersion:  CompatibleVersion,
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
		Log:    Log{Level: "info"},
	}
}

// CompatibleVersion is the RabbitMQ version whose behaviour this is. Clients and
// tools read it and decide by it what they may use.
const CompatibleVersion = "4.3.6"

// Deprecated features that mean something here.
const (
	TransientQueues    = "transient_nonexcl_queues" // BR-7.7
	GlobalQos          = "global_qos"               // BR-9.9
	QueueMasterLocator = "queue_master_locator"     // BR-7.13
)

// Log is what is logged.
type Log struct {
	Level string // debug, info, warning, error or none
}
