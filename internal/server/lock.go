package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
	if err := tryAgain(f, func() { time.Sleep(20 * time.Millisecond) }); err != nil {
		owner := "another process"
		if text, _ := io.ReadAll(io.LimitReader(f, 20)); len(text) > 0 {
			owner = "process " + strings.TrimSpace(string(text))
		}
		_ = f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("data directory %s is in use by %s", dir, owner)
		}
		return nil, fmt.Errorf("data directory %s: cannot lock: %w", dir, err)
	}
	if err := f.Truncate(0); err == nil { // the number is only for people, and for kill; the lock itself counts
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &dirLock{f}, nil
}

// tryAgain takes the lock, in ten tries: a command that looks whether it is free holds it for a moment.
func tryAgain(f *os.File, pause func()) error {
	err := tryLock(f)
	for tries := 1; errors.Is(err, errLocked) && tries < 10; tries++ {
		pause()
		err = tryLock(f)
	}
	return err
}

// upFile is there while a node runs on the data directory. A node that finds it was killed the last time.
const upFile = "up"

// markUp notes that a node runs on the directory, and says whether the last one did not stop in order.
func markUp(dir string) (killed bool) {
	f, err := os.OpenFile(filepath.Join(dir, upFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Is(err, fs.ErrExist) // another error only costs a line of the log
	}
	_ = f.Close()
	return false
}

// markStopped notes that the node has stopped in order.
func markStopped(dir string) { _ = os.Remove(filepath.Join(dir, upFile)) }

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
