//go:build !unix

package ctl

import "os"

// terminalWidth is how many columns a terminal has, as far as we know. It is false for a file that is no terminal.
func terminalWidth(f *os.File) (int, bool) { return 80, isTerminal(f) }
