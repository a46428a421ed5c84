package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Paths are where the environment says that a node's files are; "" is not said.
type Paths struct {
	ConfigFile  string // RABBITMQ_CONFIG_FILE, with its .conf
	ConfigFiles string // RABBITMQ_CONFIG_FILES: a directory of *.conf, or a pattern
	DataDir     string // BARTLEBY_DATA_DIR, which the command line knows too, or RABBITMQ_MNESIA_DIR
}

// EnvironmentPaths reads them, by RabbitMQ's names.
func EnvironmentPaths(getenv func(string) string) Paths {
	p := Paths{getenv("RABBITMQ_CONFIG_FILE"), getenv("RABBITMQ_CONFIG_FILES"), cmp.Or(getenv("BARTLEBY_DATA_DIR"), getenv("RABBITMQ_MNESIA_DIR"))}
	if p.ConfigFile != "" && !strings.HasSuffix(p.ConfigFile, ".conf") {
		p.ConfigFile += ".conf" // RabbitMQ wants it without
	}
	return p
}

// Environment takes over what container users set in the environment, by the names of
// RabbitMQ and of its official image (BR-18.2). What is said of the first user acts on
// an empty node only, as everything in FirstStart. A configuration file read
// afterwards wins. Variables that mean nothing here are warned of; those that the
// image refuses, since they would be mistaken for protection, are errors.
func Environment(c *Config, getenv func(string) string) (warnings []Warning, err error) {
	for name, field := range map[string]*string{
		"RABBITMQ_DEFAULT_USER":  &c.FirstStart.User,
		"RABBITMQ_DEFAULT_PASS":  &c.FirstStart.Password,
		"RABBITMQ_DEFAULT_VHOST": &c.FirstStart.VHost,
		"RABBITMQ_NODENAME":      &c.NodeName,
		"RABBITMQ_LOG_BASE":      &c.Log.Dir,
	} {
		if v := getenv(name); v != "" {
			*field = v
		}
	}
	var failed []error
	fail := func(name, text string) { failed = append(failed, fmt.Errorf("%s: %s", name, text)) }
	if port, host := getenv("RABBITMQ_NODE_PORT"), getenv("RABBITMQ_NODE_IP_ADDRESS"); port != "" || host != "" {
		if port == "" {
			port = "5672"
		}
		if err := checkPort(port); err != nil {
			fail("RABBITMQ_NODE_PORT", err.Error())
		}
		c.AMQP = []string{net.JoinHostPort(host, port)}
	}
	switch where := getenv("RABBITMQ_LOGS"); where {
	case "":
	case "-":
		c.Log.Console.On = true
	default:
		c.Log.File.On, c.Log.Path = true, where
	}
	if err := logVariable(c, getenv("RABBITMQ_LOG")); err != nil {
		fail("RABBITMQ_LOG", err.Error())
	}
	for _, v := range refusedVariables {
		if getenv(v.name) != "" {
			fail(v.name, v.text)
		}
	}
	for _, v := range idleVariables {
		if getenv(v.name) != "" {
			warnings = append(warnings, Warning{File: "environment", Key: v.name, Text: v.text})
		}
	}
	return warnings, errors.Join(failed...)
}

// logVariable reads levels such as "debug" or "connection=warning,info".
func logVariable(c *Config, text string) error {
	for _, part := range strings.Split(text, ",") {
		category, name, found := strings.Cut(part, "=")
		if !found {
			category, name = "default", category
		}
		if name == "" || strings.HasPrefix(name, "+") || strings.HasPrefix(name, "-") {
			continue // +color, -single_line: how lines look
		}
		if _, _, err := LogLevel(name); err != nil {
			return err
		}
		if c.Log.Categories == nil {
			c.Log.Categories = map[string]string{}
		}
		c.Log.Categories[category] = name
	}
	return nil
}

// variable is one that is not obeyed, and why.
type variable struct{ name, text string }

// refusedVariables are those that the official image refuses to start with.
var refusedVariables = []variable{
	{"RABBITMQ_DEFAULT_PASS_FILE", "it is not read; use default_pass in a configuration file"},
	{"RABBITMQ_DEFAULT_USER_FILE", "it is not read; use default_user in a configuration file"},
	{"RABBITMQ_MANAGEMENT_SSL_CACERTFILE", "it is not read; use management.ssl.cacertfile"},
	{"RABBITMQ_MANAGEMENT_SSL_CERTFILE", "it is not read; use management.ssl.certfile"},
	{"RABBITMQ_MANAGEMENT_SSL_DEPTH", "it is not read; use management.ssl.depth"},
	{"RABBITMQ_MANAGEMENT_SSL_FAIL_IF_NO_PEER_CERT", "it is not read; use management.ssl.fail_if_no_peer_cert"},
	{"RABBITMQ_MANAGEMENT_SSL_KEYFILE", "it is not read; use management.ssl.keyfile"},
	{"RABBITMQ_MANAGEMENT_SSL_VERIFY", "it is not read; use management.ssl.verify"},
	{"RABBITMQ_SSL_CACERTFILE", "it is not read; use ssl_options.cacertfile"},
	{"RABBITMQ_SSL_CERTFILE", "it is not read; use ssl_options.certfile"},
	{"RABBITMQ_SSL_DEPTH", "it is not read; use ssl_options.depth"},
	{"RABBITMQ_SSL_FAIL_IF_NO_PEER_CERT", "it is not read; use ssl_options.fail_if_no_peer_cert"},
	{"RABBITMQ_SSL_KEYFILE", "it is not read; use ssl_options.keyfile"},
	{"RABBITMQ_SSL_VERIFY", "it is not read; use ssl_options.verify"},
	{"RABBITMQ_VM_MEMORY_HIGH_WATERMARK", "it is not read; use vm_memory_high_watermark.relative or .absolute"},
}

const noErlang = "there is no Erlang machine"

var idleVariables = []variable{
	{"RABBITMQ_ERLANG_COOKIE", "there is one node, and the command line has a key of its own in the data directory"},
	{"RABBITMQ_ADVANCED_CONFIG_FILE", "Erlang terms are not read; what they say must be said in rabbitmq.conf"},
	{"RABBITMQ_CONF_ENV_FILE", "shell files are not read"},
	{"RABBITMQ_ENABLED_PLUGINS", "there are no plugins: what is there is on"},
	{"RABBITMQ_ENABLED_PLUGINS_FILE", "there are no plugins: what is there is on"},
	{"RABBITMQ_PLUGINS_DIR", "there are no plugins: what is there is on"},
	{"RABBITMQ_FEATURE_FLAGS", "feature flags are always on"},
	{"RABBITMQ_MNESIA_BASE", "there is no Mnesia; --data-dir or RABBITMQ_MNESIA_DIR names the directory"},
	{"RABBITMQ_QUORUM_DIR", "there is one journal for all queues"},
	{"RABBITMQ_STREAM_DIR", "there are no streams yet"},
	{"RABBITMQ_DIST_PORT", "there is one node"},
	{"RABBITMQ_USE_LONGNAME", "there is one node"},
	{"RABBITMQ_SERVER_ERL_ARGS", noErlang},
	{"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", noErlang},
	{"RABBITMQ_SERVER_START_ARGS", noErlang},
	{"RABBITMQ_IO_THREAD_POOL_SIZE", noErlang},
	{"RABBITMQ_MAX_NUMBER_OF_PROCESSES", noErlang},
	{"RABBITMQ_MAX_NUMBER_OF_ATOMS", noErlang},
	{"RABBITMQ_DISTRIBUTION_BUFFER_SIZE", noErlang},
	{"RABBITMQ_SCHEDULER_BIND_TYPE", noErlang},
}
