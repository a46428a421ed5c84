package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// dirLock keeps other processes out of a data directory. The kernel releases it when
// the process ends, however it ends.
type dirLock struct {
	f *os.File
	// killed says that the last node on the directory did not stop in order: it has left upMark.
	killed bool
}

// upMark stands behind the number of a node's process while the node runs.
const upMark = "up"

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
		if said := saidIn(f); len(said) > 0 {
			owner = "process " + said[0]
		}
		_ = f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("data directory %s is in use by %s", dir, owner)
		}
		return nil, fmt.Errorf("data directory %s: cannot lock: %w", dir, err)
	}
	said := saidIn(f)
	l := &dirLock{f, len(said) > 1 && said[1] == upMark}
	l.write(l.killed) // a command beside a node that was killed leaves the mark to the next node
	return l, nil
}

// saidIn are the words in the file: the number of the process and, of a node, upMark.
func saidIn(f *os.File) []string {
	text, _ := io.ReadAll(io.LimitReader(f, 40))
	return strings.Fields(string(text))
}

// write writes the words, which are only for people; the lock itself counts.
func (l *dirLock) write(up bool) {
	words := strconv.Itoa(os.Getpid())
	if up {
		words += " " + upMark
	}
	if err := l.f.Truncate(0); err == nil {
		_, _ = l.f.WriteAt([]byte(words+"\n"), 0)
	}
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
