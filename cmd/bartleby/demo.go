package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/client/demo"
	"bartleby.mq/internal/config"
)

// errDemoNode refuses a node that is named by its data directory.
var errDemoNode = errors.New("demo connects to its node over AMQP and HTTP: use --amqp and --http, not a data directory (--data-dir, $BARTLEBY_DATA_DIR)")

func demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use: "demo", Short: "Show dead-lettering on a running node", Args: cobra.NoArgs,
		Long: "Publishes orders that succeed, orders that fail and are retried, and orders that keep failing, are parked and are replayed.\n" +
			"The messages are real. They are in a virtual host of their own, which is deleted afterwards.\n" +
			"With --keep it stays, with some hundreds of dead letters of several causes to look at, and the demo says where.",
		RunE: func(c *cobra.Command, _ []string) error {
			// A user who names a data directory does not mean the node on the default ports.
			if dir := c.Flags().Lookup("data-dir"); dir != nil && dir.Changed {
				return errDemoNode
			}
			if config.EnvironmentPaths(os.Getenv).DataDir != "" && !(c.Flags().Changed("amqp") && c.Flags().Changed("http")) {
				return errDemoNode
			}
			o.Out = c.OutOrStdout()
			return demo.Run(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.AMQP, "amqp", "127.0.0.1:5672", "HOST:PORT of the node's AMQP listener")
	flags.StringVar(&o.HTTP, "http", "http://127.0.0.1:15672", "address of the node's management API")
	flags.StringVar(&o.User, "user", "guest", "an administrator")
	flags.StringVar(&o.Password, "password", "guest", "the administrator's password")
	flags.DurationVar(&o.Delay, "delay", time.Second, "how long a retry waits")
	flags.BoolVar(&o.Keep, "keep", false, "keep the virtual host, with dead letters to look at")
	return c
}
