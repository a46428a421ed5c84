package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/edge/listen"
)

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check or show a configuration before a node uses it", Args: cobra.NoArgs}
	c.AddCommand(
		&cobra.Command{
			Use: "check [FILE|DIRECTORY]", Short: "Report errors in a configuration, and settings without effect", Args: cobra.MaximumNArgs(1),
			Long: "Reads a configuration as a node would: first the environment, then the file, the *.conf files of a directory, or the files that\n" +
				"RABBITMQ_CONFIG_FILE and RABBITMQ_CONFIG_FILES name; then conf.d/*.conf and advanced.config beside them. It also reads the TLS\n" +
				"files, and looks for those of load_definitions, and for two listeners at one port. Exits with 0 if a node would start with it.",
			RunE: checkConfig,
		},
		&cobra.Command{
			Use: "convert FILE", Short: "Print a file of Erlang terms, such as rabbitmq.config or advanced.config, as lines of rabbitmq.conf", Args: cobra.ExactArgs(1),
			Long: "Prints the settings of a file of Erlang terms in the form of rabbitmq.conf, with its secrets. A comment above a line says that it\n" +
				"has no effect or is refused; comments at the end name the settings that rabbitmq.conf has no name for. What cannot be converted\n" +
				"is an error, and a line that no node starts with.",
			RunE: func(c *cobra.Command, args []string) error {
				text, err := convertConfig(args[0])
				_, failed := fmt.Fprint(c.OutOrStdout(), text)
				return errors.Join(err, failed)
			},
		},
		&cobra.Command{
			Use: "show [FILE|DIRECTORY]", Short: "Show the whole configuration, with defaults and with secrets masked", Args: cobra.MaximumNArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				conf, _, err := namedConfig(args).load(os.Getenv)
				if err != nil {
					return err
				}
				for _, s := range conf.Settings() {
					if _, err := fmt.Fprintln(c.OutOrStdout(), s); err != nil {
						return err
					}
				}
				return nil
			},
		},
	)
	return c
}

// namedConfig is the configuration that the arguments name, or else the environment.
func namedConfig(args []string) configFiles {
	flag := ""
	if len(args) > 0 {
		flag = args[0]
	}
	return findConfig(flag, os.Getenv)
}

// checkConfig says all that is wrong at once, and what was read.
func checkConfig(c *cobra.Command, args []string) error {
	files := namedConfig(args)
	conf, warnings, err := files.load(os.Getenv)
	for _, w := range slices.Concat(warnings, idleTLS(&conf)) {
		if w.Line > 0 {
			c.Printf("%s: line %d: ", w.File, w.Line)
		}
		c.Printf("%s: no effect: %s\n", w.Key, w.Text)
	}
	if err := errors.Join(err, checkTLS(&conf), missingDefinitions(&conf), portsTwice(&conf)); err != nil {
		return err
	}
	read, _, err := files.names()
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	for _, name := range read {
		_, err = fmt.Fprintln(out, "read:", name)
	}
	if len(read) == 0 {
		_, err = fmt.Fprintln(out, "no file was read: neither an argument nor RABBITMQ_CONFIG_FILE names one")
	}
	_, last := fmt.Fprintln(out, "configuration is valid")
	return errors.Join(err, last)
}

// checkTLS reads the certificates of the listeners.
func checkTLS(c *config.Config) error {
	var failed []error
	_, management := c.ManagementListeners()
	for _, l := range []struct {
		prefix string
		tls    config.TLS
	}{{"ssl_options", c.TLS}, {"management.ssl", management.TLS}, {"prometheus.ssl", c.PrometheusTLS.TLS}, {"web_amqp.ssl", c.WebAMQPTLS.TLS}} {
		if !l.tls.Said() {
			continue
		}
		files := map[string]string{"certfile": l.tls.CertFile, "keyfile": l.tls.KeyFile}
		if l.tls.Verify {
			files["cacertfile"] = l.tls.CACertFile
		}
		missing := false
		for _, key := range slices.Sorted(maps.Keys(files)) {
			if _, err := os.Stat(files[key]); files[key] != "" && err != nil {
				failed, missing = append(failed, fmt.Errorf("%s.%s: %w", l.prefix, key, err)), true
			}
		}
		if missing {
			continue
		}
		if err := listen.CheckTLS(listen.TLSOptions(l.tls)); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", l.prefix, err))
		}
	}
	return errors.Join(failed...)
}

// idleTLS is a warning if there are options for TLS, and no listener that has it.
func idleTLS(c *config.Config) []config.Warning {
	if len(c.AMQPS) > 0 || c.ManagementListenerTLS || !c.TLS.Said() && c.TLS.CACertFile == "" {
		return nil
	}
	return []config.Warning{{Key: "ssl_options", Text: "no listener uses it: listeners.ssl.default = 5671 opens one"}}
}

// portsTwice is an error for each two listeners that a start without flags for addresses would open at one port.
func portsTwice(c *config.Config) error {
	var f serverFlags
	f.host = defaultHost
	at := func(port string) config.Address { return f.address(false, "", port) }
	http, https := c.ManagementAddresses(at("15672"))
	type listener struct{ key, address string }
	all := []listener{
		{"management.tcp", http}, {"management.ssl", https}, {"web_amqp.tcp", c.WebAMQPAddress()}, {"web_amqp.ssl", c.WebAMQPTLS.SecureAddress(":15677")},
		{"prometheus.tcp", c.Prometheus.Plain(c.PrometheusTLS, at("15692"))}, {"prometheus.ssl", c.PrometheusTLS.SecureAddress(":15691")},
	}
	for _, address := range c.AMQPAddresses(at("5672")) {
		all = append(all, listener{"listeners.tcp", address})
	}
	for _, address := range c.AMQPS {
		all = append(all, listener{"listeners.ssl", address})
	}
	var failed []error
	for n, l := range all {
		for _, other := range all[:n] {
			if samePlace(l.address, other.address) {
				failed = append(failed, fmt.Errorf("%s and %s: two listeners at port %s", other.key, l.key, l.address[strings.LastIndexByte(l.address, ':')+1:]))
			}
		}
	}
	return errors.Join(failed...)
}

// samePlace says whether two listeners cannot be open both.
func samePlace(a, b string) bool {
	host, port, err := net.SplitHostPort(a)
	host2, port2, err2 := net.SplitHostPort(b)
	everywhere := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return err == nil && err2 == nil && port == port2 && port != "0" && (host == host2 || everywhere(host) || everywhere(host2))
}
