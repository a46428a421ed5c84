package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Paths are the paths of a node's files that the environment names; "" means not set.
type Paths struct {
	ConfigFile   string // RABBITMQ_CONFIG_FILE, with .conf or .config at its end or without
	ConfigFiles  string // RABBITMQ_CONFIG_FILES: a directory of *.conf, or a pattern
	AdvancedFile string // RABBITMQ_ADVANCED_CONFIG_FILE
	DataDir      string // BARTLEBY_DATA_DIR, which the command line reads too, or RABBITMQ_MNESIA_DIR
}

// EnvironmentPaths reads the paths, by RabbitMQ's names.
func EnvironmentPaths(getenv func(string) string) Paths {
	return Paths{
		getenv("RABBITMQ_CONFIG_FILE"), getenv("RABBITMQ_CONFIG_FILES"), getenv("RABBITMQ_ADVANCED_CONFIG_FILE"),
		cmp.Or(getenv("BARTLEBY_DATA_DIR"), getenv("RABBITMQ_MNESIA_DIR")),
	}
}

// Environment applies the variables that container users set, by the names of RabbitMQ
// and of its official image (BR-18.2). The first user is made only on an empty node, as
// everything in FirstStart. A configuration file that is read afterwards wins. Variables
// without effect give warnings. Variables that the image refuses are errors: a user
// would believe that they protect the node.
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
			fail("RABBITMQ_NODE_PORT", fmt.Sprintf("%q %v", port, err))
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

// variable is an environment variable that is not obeyed, and the reason.
type variable struct{ name, text string }

// refusedVariables are the variables with which the official image refuses to start.
var refusedVariables = []variable{
	{"RABBITMQ_DEFAULT_PASS_FILE", "not supported; use default_pass in a configuration file"},
	{"RABBITMQ_DEFAULT_USER_FILE", "not supported; use default_user in a configuration file"},
	{"RABBITMQ_MANAGEMENT_SSL_CACERTFILE", "not supported; use management.ssl.cacertfile"},
	{"RABBITMQ_MANAGEMENT_SSL_CERTFILE", "not supported; use management.ssl.certfile"},
	{"RABBITMQ_MANAGEMENT_SSL_DEPTH", "not supported; use management.ssl.depth"},
	{"RABBITMQ_MANAGEMENT_SSL_FAIL_IF_NO_PEER_CERT", "not supported; use management.ssl.fail_if_no_peer_cert"},
	{"RABBITMQ_MANAGEMENT_SSL_KEYFILE", "not supported; use management.ssl.keyfile"},
	{"RABBITMQ_MANAGEMENT_SSL_VERIFY", "not supported; use management.ssl.verify"},
	{"RABBITMQ_SSL_CACERTFILE", "not supported; use ssl_options.cacertfile"},
	{"RABBITMQ_SSL_CERTFILE", "not supported; use ssl_options.certfile"},
	{"RABBITMQ_SSL_DEPTH", "not supported; use ssl_options.depth"},
	{"RABBITMQ_SSL_FAIL_IF_NO_PEER_CERT", "not supported; use ssl_options.fail_if_no_peer_cert"},
	{"RABBITMQ_SSL_KEYFILE", "not supported; use ssl_options.keyfile"},
	{"RABBITMQ_SSL_VERIFY", "not supported; use ssl_options.verify"},
	{"RABBITMQ_VM_MEMORY_HIGH_WATERMARK", "not supported; use vm_memory_high_watermark.relative or .absolute"},
}

const noErlang = "there is no Erlang VM"

var idleVariables = []variable{
	{"RABBITMQ_ERLANG_COOKIE", "there is one node, and the command line reads its token from the data directory"},
	{"RABBITMQ_CONF_ENV_FILE", "shell files are not read"},
	{"RABBITMQ_ENABLED_PLUGINS", "there are no plugins; all features are on"},
	{"RABBITMQ_ENABLED_PLUGINS_FILE", "there are no plugins; all features are on"},
	{"RABBITMQ_PLUGINS_DIR", "there are no plugins; all features are on"},
	{"RABBITMQ_FEATURE_FLAGS", "feature flags are always on"},
	{"RABBITMQ_MNESIA_BASE", "there is no Mnesia; --data-dir or RABBITMQ_MNESIA_DIR names the directory"},
	{"RABBITMQ_QUORUM_DIR", "there is one journal for all queues"},
	{"RABBITMQ_STREAM_DIR", "streams are not supported"},
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
