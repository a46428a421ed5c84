package store

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OwnerOnly is the operating system's file system, where what is made may be read by its
// owner only, whatever the process's umask: messages and the hashes of passwords are nobody
// else's. A file is open to others for as long as it takes to close it after it was made, in a
// directory that is not.
//
// Where the process, or the system, has too many files open, a file is asked for again for
// some seconds: a journal or a store that cannot have its next file ends the node, and
// others close some of theirs meanwhile.
var OwnerOnly vfs.FS = &ownerOnly{vfs.Default, time.Sleep}

type ownerOnly struct {
	vfs.FS
	pause func(time.Duration)
}

const (
	// openTries is how often a file is asked for: 2.5 s in all.
	openTries  = 9
	firstPause = 10 * time.Millisecond
)

// again opens a file, again where there are too many. Nothing has happened to the file then.
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

// OpenReadWrite implements vfs.FS. It makes a file that is not there.
func (o *ownerOnly) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := again(o, func() (vfs.File, error) { return o.FS.OpenReadWrite(name, c, opts...) })
	return restricted(name, f, err)
}

// ReuseForWrite implements vfs.FS. It cannot be asked again, since it renames first; only logs of Pebble's, which
// there are none of, need it.
func (o *ownerOnly) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := o.FS.ReuseForWrite(from, to, c)
	return restricted(to, f, err)
}

// restricted closes a file to others. Where that is not possible, on a file system that
// knows no owners or as somebody who is not the owner, the file is as it was made.
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
