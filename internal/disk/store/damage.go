package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// DamageError says that a file of a store is not what was written. What Pebble says of it
// has many lines, and the stack of whoever came to it.
type DamageError struct {
	File   string // or the store's directory, where Pebble does not name the file
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %s", e.File, e.Reason) }

// IsDamage says whether an error means that a store's tables are not what was
// written, or not what its log goes on from.
func IsDamage(err error) bool {
	var damage *DamageError
	return errors.As(err, &damage) || pebble.IsCorruptionError(err) || errors.Is(err, errOlder)
}

// named finds the file in what Pebble says of one that it cannot open: a manifest, or the number of a table.
var named = regexp.MustCompile(`(MANIFEST-\d+)|\bL\d+: (\d+):`)

// errLocked is the error for a store that somebody else has open.
var errLocked = errors.New("the store is in use")

// told makes a *DamageError of an error of Pebble's that means damage.
func told(dir string, err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	return damageOf(dir, err)
}

// toldOpening is told for what stands in the way of opening a store: most of what Pebble finds wrong then it does not
// call corruption. Whatever the system has not refused is.
func toldOpening(dir string, err error) error {
	if err == nil || refused(err) || IsDamage(err) && !pebble.IsCorruptionError(err) {
		return err
	}
	return damageOf(dir, err)
}

func damageOf(dir string, err error) *DamageError {
	file, reason := dir, err.Error()
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		file, reason = info.Path, info.Details.Error()
	} else if found := named.FindStringSubmatch(reason); found != nil && found[1] != "" {
		file = filepath.Join(dir, found[1])
	} else if found != nil {
		file = filepath.Join(dir, found[2]+tableSuffix)
	}
	reason, _, _ = strings.Cut(reason, "\n")
	return &DamageError{file, reason}
}

// refused says whether an error is of the system, or of this program: the file may be what was written.
func refused(err error) bool {
	if errors.Is(err, ErrFormat) || errors.Is(err, errLocked) || errors.Is(err, fs.ErrPermission) {
		return true
	}
	var number syscall.Errno
	return errors.As(err, &number) && number != syscall.ENOENT && number != syscall.ENOTDIR && number != syscall.EISDIR
}

// Check reads all tables of a store that nobody has open, and changes nothing. Damage is
// a *DamageError.
func Check(files vfs.FS, dir string) error {
	if err := toldOpening(dir, check(files, dir)); err != nil {
		return fmt.Errorf("store: reading %s: %w", dir, err)
	}
	return nil
}

func check(files vfs.FS, dir string) error {
	if err := whole(files, dir); err != nil {
		return err
	}
	o := &pebble.Options{
		FS: files, ReadOnly: true, DisableWAL: true, FormatMajorVersion: pebble.FormatVirtualSSTables,
		Logger:        quietLogger{slog.New(slog.DiscardHandler), dir, newFailure(nil)},
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	}
	db, err := pebble.Open(dir, o)
	if errors.Is(err, pebble.ErrDBDoesNotExist) {
		return nil // a first start got no further: the next makes it
	}
	if err != nil {
		return err
	}
	if err := db.CheckLevels(nil); err != nil {
		_ = db.Close()
		return err
	}
	return db.Close()
}
