//go:build unix

package controlsocket

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxPath is how long a socket's path may be on every Unix, in bytes: sun_path has 104
// of them on some and 108 on others, the terminator included.
const maxPath = 103

// shorten is a path to the file in dir that a socket can be bound and found by, however
// long dir's own is; it is good until done is called. The kernel follows a link in a
// path without counting what it stands for.
func shorten(dir, file string) (path string, done func(), err error) {
	if path = filepath.Join(dir, file); len(path) <= maxPath {
		return path, func() {}, nil
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	short, err := os.MkdirTemp("", "ctl")
	if err != nil {
		return "", nil, fmt.Errorf("the path of data directory %s is too long for a socket: %w", dir, err)
	}
	done = func() { _ = os.RemoveAll(short) } // the link, not what it stands for
	link := filepath.Join(short, "d")
	if err = os.Symlink(dir, link); err == nil && len(link)+len("/")+len(file) > maxPath {
		err = fmt.Errorf("so is the path %s", link)
	}
	if err != nil {
		done()
		return "", nil, fmt.Errorf("the path of data directory %s is too long for a socket: %w", dir, err)
	}
	return filepath.Join(link, file), done, nil
}
