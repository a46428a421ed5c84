package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// dirLock keeps other processes out of a data directory. The kernel releases it when
// the process ends, however it ends.
type dirLock struct{ f *os.File }

// errLocked means that another process has the lock.
var errLocked = errors.New("locked")

// lockDir takes the lock or says which process has it.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := tryLock(f); err != nil {
		owner := "another process"
		if pid, _ := io.ReadAll(io.LimitReader(f, 20)); len(pid) > 0 {
			owner = "process " + strings.TrimSpace(string(pid))
		}
		_ = f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("data directory %s is in use by %s", dir, owner)
		}
		return nil, fmt.Errorf("data directory %s: cannot lock: %w", dir, err)
	}
	// The number is only for people; the lock itself counts.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return &dirLock{f}, nil
}

// release releases the lock. The file stays: if it were removed, two processes could
// lock two files of that name.
func (l *dirLock) release() error { return l.f.Close() }

// LockDataDir keeps nodes out of a data directory until release is called. If a process has
// the lock, the error names it.
func LockDataDir(dir string) (release func() error, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	l, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return l.release, nil
}
