//go:build !windows

package server

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// tighten makes a data directory accessible only for its owner. An earlier release, or a copy
// with cp, may have left it open. It logs files that it cannot change, for example because of
// another owner.
func tighten(dir string, logger *slog.Logger) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	changed := 0
	var failed error
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			failed = err
			return nil // other files may succeed
		}
		info, err := d.Info()
		if err != nil {
			failed = err
			return nil
		}
		mode := info.Mode()
		if !mode.IsRegular() && !mode.IsDir() || mode.Perm()&0o077 == 0 {
			return nil // the target of a symbolic link is elsewhere
		}
		if err := os.Chmod(path, mode.Perm()&0o700); err != nil {
			failed = err
			return nil
		}
		changed++
		return nil
	})
	if changed > 0 {
		logger.Warn("other users of this machine could read the data directory; its permissions were corrected", "data_dir", dir, "files", changed)
	}
	if failed != nil {
		logger.Warn("other users of this machine may be able to read the data directory", "data_dir", dir, "error", failed)
	}
}
