//go:build !windows

package ctl

import "os"

// Arguments are the program's path and its arguments.
func Arguments() []string { return os.Args }
