//go:build unix

package ctl

import (
	"os"
	"path/filepath"
	"syscall"
)

// seesLocks says whether isFree knows.
const seesLocks = true

// isFree says whether no node holds the lock of a data directory any longer. A node answers no more requests a while before
// it has written everything and releases the lock.
func isFree(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return true // nothing to wait for
	}
	defer func() { _ = f.Close() }() // and with it the lock
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}
