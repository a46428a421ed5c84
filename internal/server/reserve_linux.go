package server

import (
	"os"
	"syscall"
)

// takeRoom makes a file that holds so many bytes of the disk.
func takeRoom(f *os.File, n int64) error {
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, n); err == nil {
		return nil
	}
	return fillRoom(f, n) // there are file systems that cannot
}
