// Command bartleby is a RabbitMQ-compatible message broker in one binary:
// "bartleby server" runs a node, the other verbs administer one. Called by the name
// of one of RabbitMQ's tools, rabbitmqctl and its like, it is that tool.
package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/client/ctl"
	"bartleby.mq/internal/config"
)

func main() {
	args := ctl.Arguments()
	root := command(args[0])
	root.SetArgs(args[1:])
	os.Exit(ctl.Execute(context.Background(), root))
}

// command is the root of all verbs for a program called by that path.
func command(path string) *cobra.Command {
	name := strings.TrimSuffix(strings.ToLower(filepath.Base(path)), ".exe") // on Windows in any case
	for _, tool := range ctl.Names {
		if strings.HasPrefix(name, tool) {
			return withVersion(ctl.Command(tool), config.CompatibleVersion)
		}
	}
	root := withVersion(ctl.Command("bartleby"), versionLine())
	root.Short = "A RabbitMQ-compatible message broker"
	root.AddCommand(serverCommand(), configCommand(), definitionsCommand(), journalCommand(), demoCommand(), versionCommand(), manCommand())
	arrange(root)
	return root
}

// withVersion lets a program answer --version and -v.
func withVersion(root *cobra.Command, text string) *cobra.Command {
	root.Version = text
	if root.Name() == "rabbitmqadmin" {
		text = root.Name() + " " + text // as RabbitMQ's does
	}
	root.SetVersionTemplate(text + "\n")
	return root
}

// arrange puts what is ours before the many verbs of rabbitmqctl in the help.
func arrange(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: "node", Title: "A node:"},
		&cobra.Group{ID: "dead", Title: "Dead Letter Office:"},
		&cobra.Group{ID: "admin", Title: "Administration, as with rabbitmqctl:"},
	)
	groups := map[string]string{"server": "node", "config": "node", "definitions": "node", "journal": "node", "backup": "node", "version": "node", "status": "node", "stop": "node", "demo": "dead", "deaths": "dead", "replay": "dead", "dlq": "dead", "drops": "dead", "lint": "dead", "rules": "dead"}
	for _, c := range root.Commands() {
		c.GroupID = "admin"
		if g, ok := groups[c.Name()]; ok {
			c.GroupID = g
		}
	}
	root.SetHelpCommandGroupID("node")
	root.SetCompletionCommandGroupID("node")
}
