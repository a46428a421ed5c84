// Command bartleby is a RabbitMQ-compatible message broker in one binary:
// "bartleby server" runs a node, the other verbs administer one.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "bartleby", Short: "A RabbitMQ-compatible message broker", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(serverCommand(), demoCommand(), versionCommand())
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
