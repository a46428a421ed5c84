//go:build !unix

package ctl

import "os"

// terminalWidth is how many columns a terminal has, as far as we know. It is false for a file that is no terminal.
func terminalWidth(f *os.File) (int, bool) {
	info, err := f.Stat()
	return 80, err == nil && info.Mode()&os.ModeCharDevice != 0
}
