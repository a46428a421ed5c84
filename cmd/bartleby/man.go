package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand is for those who build packages: `bartleby completion` is its like for shells.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the manual pages, one for each verb", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true // else pages differ from day to day
			return doc.GenManTree(root, &doc.GenManHeader{Title: "BARTLEBY", Section: "1", Source: "Bartleby", Manual: "Bartleby"}, args[0])
		},
	}
}
