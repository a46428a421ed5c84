// Command bartleby is a RabbitMQ-compatible message broker in one binary:
// "bartleby server" runs a node, the other verbs administer one. Called by the name
// rabbitmqctl it is rabbitmqctl.
package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/ctl"
)

func main() {
	os.Exit(ctl.Execute(context.Background(), command(os.Args[0])))
}

// command is the root of all verbs for a program called by that path.
func command(path string) *cobra.Command {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	if strings.HasPrefix(name, "rabbitmqctl") {
		return ctl.Command("rabbitmqctl")
	}
	root := ctl.Command("bartleby")
	root.Short = "A RabbitMQ-compatible message broker"
	root.AddCommand(serverCommand(), demoCommand(), versionCommand())
	arrange(root)
	return root
}

// arrange puts what is ours before the many verbs of rabbitmqctl in the help.
func arrange(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: "node", Title: "A node:"},
		&cobra.Group{ID: "dead", Title: "Dead letters:"},
		&cobra.Group{ID: "admin", Title: "Administration, as with rabbitmqctl:"},
	)
	groups := map[string]string{"server": "node", "version": "node", "status": "node", "stop": "node", "demo": "dead", "replay": "dead"}
	for _, c := range root.Commands() {
		c.GroupID = "admin"
		if g, ok := groups[c.Name()]; ok {
			c.GroupID = g
		}
	}
	root.SetHelpCommandGroupID("node")
	root.SetCompletionCommandGroupID("node")
}
