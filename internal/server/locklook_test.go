//go:build unix

package server

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A command that looks whether a data directory is free holds its lock for a moment (ctl's isFree). No start fails of that.
func TestAStartWaitsForWhoeverLooksAtTheLock(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	looked := false
	err = tryAgain(lock, func() {
		looked = true
		_ = f.Close() // it has seen enough
	})
	if err != nil {
		t.Error(err)
	}
	if !looked {
		t.Error("it did not meet the lock")
	}
}
