//go:build unix

package controlsocket

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxPath is the maximal length of a socket's path on every Unix, in bytes: sun_path has 104
// bytes on some and 108 on others, including the terminator.
const maxPath = 103

// shorten returns a path to the file in dir that is short enough for a socket, however long
// the path of dir is. It is valid until done is called. It leads through a symbolic link,
// whose target does not count.
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
	done = func() { _ = os.RemoveAll(short) } // the link, not its target
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
