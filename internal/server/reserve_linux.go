package server

import (
	"os"
	"syscall"
)

// takeRoom makes a file occupy n bytes of the disk.
func takeRoom(f *os.File, n int64) error {
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, n); err == nil {
		return nil
	}
	return fillRoom(f, n) // the file system cannot allocate
}
