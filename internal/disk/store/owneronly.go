package store

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OwnerOnly is the operating system's file system. Only the owner may read the files and
// directories that it makes, whatever the process's umask, because they contain messages and
// password hashes. A new file may be readable for a moment, but its directory is not.
//
// If the process or the system has too many open files, it tries again for some seconds: a
// journal or a store that cannot open its next file ends the node, and other goroutines may
// close files meanwhile.
var OwnerOnly vfs.FS = &ownerOnly{vfs.Default, time.Sleep}

type ownerOnly struct {
	vfs.FS
	pause func(time.Duration)
}

const (
	// openTries is the number of attempts to open a file: 2.5 s in total.
	openTries  = 9
	firstPause = 10 * time.Millisecond
)

// again opens a file, and tries again if there are too many open files. A failed attempt has
// not changed the file.
func again[T any](o *ownerOnly, open func() (T, error)) (f T, err error) {
	pause := firstPause
	for range openTries - 1 {
		if f, err = open(); !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return f, err
		}
		o.pause(pause)
		pause *= 2
	}
	return open()
}

// Unwrap implements vfs.FS.
func (o *ownerOnly) Unwrap() vfs.FS { return o.FS }

// Create implements vfs.FS.
func (o *ownerOnly) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := again(o, func() (vfs.File, error) { return o.FS.Create(name, c) })
	return restricted(name, f, err)
}

// Open implements vfs.FS.
func (o *ownerOnly) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return again(o, func() (vfs.File, error) { return o.FS.Open(name, opts...) })
}

// OpenDir implements vfs.FS.
func (o *ownerOnly) OpenDir(name string) (vfs.File, error) {
	return again(o, func() (vfs.File, error) { return o.FS.OpenDir(name) })
}

// List implements vfs.FS.
func (o *ownerOnly) List(dir string) ([]string, error) {
	return again(o, func() ([]string, error) { return o.FS.List(dir) })
}

// OpenReadWrite implements vfs.FS. It makes a missing file.
func (o *ownerOnly) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := again(o, func() (vfs.File, error) { return o.FS.OpenReadWrite(name, c, opts...) })
	return restricted(name, f, err)
}

// ReuseForWrite implements vfs.FS. It does not try again, because it renames first. Only Pebble's own log, which we
// do not use, needs it.
func (o *ownerOnly) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := o.FS.ReuseForWrite(from, to, c)
	return restricted(to, f, err)
}

// restricted makes a file readable only for its owner. If that is not possible, because the
// file system has no owners or the process is not the owner, the file stays as it is.
func restricted(name string, f vfs.File, err error) (vfs.File, error) {
	if err == nil {
		_ = os.Chmod(name, 0o600)
	}
	return f, err
}

// MkdirAll implements vfs.FS.
func (o *ownerOnly) MkdirAll(dir string, _ os.FileMode) error { return o.FS.MkdirAll(dir, 0o700) }

// Lock implements vfs.FS.
func (o *ownerOnly) Lock(name string) (l io.Closer, err error) {
	if l, err = o.FS.Lock(name); err == nil {
		_ = os.Chmod(name, 0o600)
	}
	return l, err
}
