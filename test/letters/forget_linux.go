package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget asks the system to drop the pages of a file from its memory.
func forget(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
