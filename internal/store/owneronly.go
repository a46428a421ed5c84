package store

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OwnerOnly is the operating system's file system, where what is made may be read by its
// owner only, whatever the process's umask: messages and the hashes of passwords are nobody
// else's. A file is open to others for as long as it takes to close it after it was made, in a
// directory that is not.
var OwnerOnly vfs.FS = ownerOnly{vfs.Default}

type ownerOnly struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (o ownerOnly) Unwrap() vfs.FS { return o.FS }

// Create implements vfs.FS.
func (o ownerOnly) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := o.FS.Create(name, c)
	return restricted(name, f, err)
}

// OpenReadWrite implements vfs.FS. It makes a file that is not there.
func (o ownerOnly) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := o.FS.OpenReadWrite(name, c, opts...)
	return restricted(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (o ownerOnly) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
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
func (o ownerOnly) MkdirAll(dir string, _ os.FileMode) error { return o.FS.MkdirAll(dir, 0o700) }

// Lock implements vfs.FS.
func (o ownerOnly) Lock(name string) (l io.Closer, err error) {
	if l, err = o.FS.Lock(name); err == nil {
		_ = os.Chmod(name, 0o600)
	}
	return l, err
}
