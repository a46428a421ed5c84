//go:build !linux

package server

import "os"

// takeRoom makes a file occupy n bytes of the disk.
func takeRoom(f *os.File, n int64) error { return fillRoom(f, n) }
