package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/config"
)

// version is set by the linker; see the Makefile.
var version string

// programVersion is what the linker set or else what the Go tool knows.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// versionLine is what "bartleby version" and "bartleby --version" print.
func versionLine() string {
	return fmt.Sprintf("bartleby %s (as RabbitMQ %s, %s)", programVersion(), config.CompatibleVersion, runtime.Version())
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			_, _ = fmt.Fprintln(c.OutOrStdout(), versionLine())
		},
	}
}
