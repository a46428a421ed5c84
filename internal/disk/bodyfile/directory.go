package bodyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeCategory is the category under which vfs counts our writes.
const writeCategory = vfs.WriteCategoryUnspecified

// maxNumber is the largest number of a file; 29 bits, as in the journal.
const maxNumber = 1<<29 - 1

const nameDigits = 10

func fileName(number uint32, suffix string) string {
	return fmt.Sprintf("%0*d%s", nameDigits, number, suffix)
}

// parseName returns the number in a file name with the suffix.
func parseName(name, suffix string) (number uint32, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != nameDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 || n > maxNumber {
		return 0, false
	}
	return uint32(n), true
}

// makeDirectory makes a directory if needed and makes its name durable.
func makeDirectory(fs vfs.FS, dir string) error {
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("bodyfile: make directory %s: %w", dir, err)
	}
	return syncDirectory(fs, fs.PathDir(dir))
}

func syncDirectory(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("bodyfile: open directory %s: %w", dir, err)
	}
	err = f.Sync()
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("bodyfile: sync directory %s: %w", dir, err)
	}
	return nil
}

// remove removes a file, if it is there.
func remove(files vfs.FS, path string) error {
	if err := files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bodyfile: remove %s: %w", path, err)
	}
	return nil
}
