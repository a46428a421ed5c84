package store

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failure is the first error after which a store cannot keep data: a table, the manifest
// or the log could not be written or synced. Pebble would try again, but success after a
// failed sync proves nothing. So the store's owner ends the process instead.
type failure struct {
	tell func(error)
	c    chan struct{} // closed once err is set

	once sync.Once
	err  error // set before c is closed
}

func newFailure(tell func(error)) *failure {
	if tell == nil {
		tell = func(error) {}
	}
	return &failure{tell: tell, c: make(chan struct{})}
}

// set notes the error and reports it, if it is the first.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.c)
		f.tell(err)
	})
}

// get is the error, nil if there is none.
func (f *failure) get() error {
	select {
	case <-f.c:
		return f.err
	default:
		return nil
	}
}

// watched is the file system that Pebble uses. Pebble panics if the directory of its store
// cannot be synced; watched reports the failure to the owner first. It also paces writers of
// tables.
type watched struct {
	vfs.FS
	dir    string // the store's
	failed *failure
	pacing *pacing
	copied *atomic.Pointer[failure] // of the copy that is being made; nil: none is
}

// Create implements vfs.FS.
func (w watched) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	isBehind := behind[category]
	if err != nil || isBehind == nil {
		return f, err
	}
	return &paced{File: f, pacing: w.pacing, isBehind: isBehind, since: time.Now()}, nil
}

// OpenDir implements vfs.FS.
func (w watched) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if name == w.dir {
		return watchedDir{f, name, w.failed}, nil
	}
	if copied := w.copied.Load(); copied != nil {
		return copiedDir{watchedDir{f, name, copied}}, nil
	}
	return f, nil
}

// Lock implements vfs.FS.
func (w watched) Lock(name string) (io.Closer, error) {
	c, err := w.FS.Lock(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLocked, err)
	}
	return c, nil
}

// Unwrap returns the file system below, see vfs.Root.
func (w watched) Unwrap() vfs.FS { return w.FS }

type watchedDir struct {
	vfs.File
	name   string
	failed *failure
}

// Sync implements vfs.File.
func (d watchedDir) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.failed.set(fmt.Errorf("store: sync directory %s: %w", d.name, err))
	}
	return err
}

// copiedDir is the directory of a copy, or its parent. Pebble would panic if its sync failed, as for the store's own
// directory. So Sync hides the failure from Pebble and reports it to the caller of the copy.
type copiedDir struct{ watchedDir }

// Sync implements vfs.File.
func (d copiedDir) Sync() error {
	_ = d.watchedDir.Sync()
	return nil
}
