package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
)

func definitionsCommand() *cobra.Command {
	c := &cobra.Command{Use: "definitions", Short: "Check a definitions file before a node imports it", Args: cobra.NoArgs}
	strict := false
	check := &cobra.Command{
		Use: "check FILE", Short: "List all objects of a definitions file that an empty node would refuse", Args: cobra.ExactArgs(1),
		Long: "Imports a definitions file (- is the standard input) into a node in memory, and lists every object that cannot be imported, with the\n" +
			"reason. Shovels are not looked at. A running node that has objects already is asked with \"bartleby import_definitions --dry-run\".\n" +
			"Exits with 0 if all can be imported, with 1 if not. What is marked is left out by --skip-unsupported and definitions.skip_unsupported.",
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readDefinitions(args[0], c.InOrStdin())
			if err != nil {
				return err
			}
			return checkDefinitions(c, args[0], text, strict)
		},
	}
	check.Flags().BoolVar(&strict, "strict", false, "by the rules of a node in strict mode")
	c.AddCommand(check)
	return c
}

func readDefinitions(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

func checkDefinitions(c *cobra.Command, path string, text []byte, strict bool) error {
	shovels := func(component string) bool { return component == "shovel" }
	obstacles, warnings, err := definitions.Check(c.Context(), broker.Options{Strict: strict}, nil, text, "", shovels)
	if err != nil {
		return fmt.Errorf("%s: %w%s", path, err, definitions.SyntaxError(text))
	}
	for _, w := range warnings {
		c.Printf("warning: %s\n", w)
	}
	stops := 0
	for _, o := range obstacles {
		note := ""
		if o.Unsupported {
			note = " (--skip-unsupported leaves it out)"
		} else {
			stops++
		}
		if _, err := fmt.Fprintf(c.OutOrStdout(), "%s%s\n", o, note); err != nil {
			return err
		}
	}
	if len(obstacles) > 0 {
		return &exitError{1, fmt.Errorf("%d objects cannot be imported, %d of them not even with --skip-unsupported", len(obstacles), stops)}
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), "all of it can be imported")
	return err
}
