//go:build !linux

package server

import "os"

// takeRoom makes a file that holds so many bytes of the disk.
func takeRoom(f *os.File, n int64) error { return fillRoom(f, n) }
