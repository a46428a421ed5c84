package store

import (
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// crowded is a file system of a process that has too many files open: so many calls that open one fail.
type crowded struct {
	vfs.FS
	left int
	err  error
}

func (c *crowded) fail() error {
	if c.left--; c.left >= 0 {
		return c.err
	}
	return nil
}

func (c *crowded) Create(name string, k vfs.DiskWriteCategory) (vfs.File, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return c.FS.Create(name, k)
}

func (c *crowded) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return c.FS.Open(name, o...)
}

func (c *crowded) OpenReadWrite(name string, k vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return c.FS.OpenReadWrite(name, k, o...)
}

func (c *crowded) OpenDir(name string) (vfs.File, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return c.FS.OpenDir(name)
}

func (c *crowded) List(dir string) ([]string, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return c.FS.List(dir)
}

// A file for which there is no descriptor is asked for again: what cannot open its file ends the node.
func TestTooManyOpenFilesPass(t *testing.T) {
	dir := t.TempDir()
	name := dir + "/a"
	closed := func(f vfs.File, err error) error {
		if err == nil {
			err = f.Close()
		}
		return err
	}
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EIO} {
		for what, do := range map[string]func(vfs.FS) error{
			"create":          func(fs vfs.FS) error { return closed(fs.Create(name, vfs.WriteCategoryUnspecified)) },
			"open":            func(fs vfs.FS) error { return closed(fs.Open(dir)) },
			"open read-write": func(fs vfs.FS) error { return closed(fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)) },
			"open directory":  func(fs vfs.FS) error { return closed(fs.OpenDir(dir)) },
			"list":            func(fs vfs.FS) error { _, err := fs.List(dir); return err },
		} {
			var waited time.Duration
			under := &crowded{vfs.Default, openTries - 1, errno}
			fs := &ownerOnly{under, func(d time.Duration) { waited += d }}
			err := do(fs)
			if passes := errno != syscall.EIO; passes != (err == nil) || passes != (waited > 0) {
				t.Errorf("%s, %v: %v after %v", what, errno, err, waited)
			}
			under.left, waited = openTries, 0
			if err := do(fs); err == nil || waited > 5*time.Second {
				t.Errorf("%s, %v, without end: %v after %v", what, errno, err, waited)
			}
		}
	}
}
