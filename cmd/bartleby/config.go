package main

import (
	"errors"
	"fmt"
	"os"

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
				"files, and looks for those of load_definitions. Exits with 0 if a node would start with it.",
			RunE: func(c *cobra.Command, args []string) error {
				conf, warnings, err := readConfig(args)
				if err != nil {
					return err
				}
				for _, w := range warnings {
					if w.Line > 0 {
						c.Printf("%s: line %d: ", w.File, w.Line)
					}
					c.Printf("%s: no effect: %s\n", w.Key, w.Text)
				}
				if err := errors.Join(checkTLS(&conf), missingDefinitions(&conf)); err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), "configuration is valid")
				return err
			},
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
				conf, _, err := readConfig(args)
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

func readConfig(args []string) (config.Config, []config.Warning, error) {
	flag := ""
	if len(args) > 0 {
		flag = args[0]
	}
	return findConfig(flag, os.Getenv).load(os.Getenv)
}

// checkTLS reads the certificates of the listeners.
func checkTLS(c *config.Config) error {
	_, management := c.ManagementListeners()
	for prefix, t := range map[string]config.TLS{
		"ssl_options": c.TLS, "management.ssl": management.TLS, "prometheus.ssl": c.PrometheusTLS.TLS, "web_amqp.ssl": c.WebAMQPTLS.TLS,
	} {
		if !t.Said() {
			continue
		}
		if err := listen.CheckTLS(listen.TLSOptions(t)); err != nil {
			return fmt.Errorf("%s: %w", prefix, err)
		}
	}
	return nil
}
