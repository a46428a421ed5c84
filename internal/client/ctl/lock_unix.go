//go:build unix

package ctl

import (
	"errors"
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

// takeTurn lets one command at a time change whether a node's application runs. done ends the turn.
func takeTurn(dir string) (mine bool, done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, func() {}, err
	}
	done = func() { _ = f.Close() } // and with it the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		done()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return false, func() {}, err
	}
	return true, done, nil
}
