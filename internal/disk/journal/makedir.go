package journal

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MakeDirectory makes a directory if needed, and those above it, with their names durable: what
// is synced below a name that a crash takes back is gone with it. The name of one that is there
// is made durable too, for a process that died before it could; unless the directory above
// is one that we may not read, which somebody else has made.
func MakeDirectory(files vfs.FS, dir string) error {
	var missing []string // the lowest first
	for at := dir; ; {
		_, err := files.Stat(at)
		if err == nil {
			break
		}
		up := files.PathDir(at)
		if !errors.Is(err, fs.ErrNotExist) || up == at {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
		missing, at = append(missing, at), up
	}
	if len(missing) == 0 {
		if err := SyncDirectory(files, files.PathDir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("make directory %s: sync the one above: %w", dir, err)
		}
		return nil
	}
	if err := files.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	for _, name := range missing {
		if err := SyncDirectory(files, files.PathDir(name)); err != nil {
			return fmt.Errorf("make directory %s: sync the one above %s: %w", dir, name, err)
		}
	}
	return nil
}
