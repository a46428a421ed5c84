//go:build unix

package ctl

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is how many columns a terminal has; 80 if it does not say. It is false for a file that is no terminal.
func terminalWidth(f *os.File) (int, bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	if size.Col == 0 {
		return 80, true
	}
	return int(size.Col), true
}
