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

// DamageError means that a file of a store differs from what was written. It shortens
// Pebble's error, which has many lines and a stack.
type DamageError struct {
	File   string // or the store's directory if Pebble does not name the file
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %s", e.File, e.Reason) }

// IsDamage says whether an error means that a store's tables are damaged, or do not fit its
// log.
func IsDamage(err error) bool {
	var damage *DamageError
	return errors.As(err, &damage) || pebble.IsCorruptionError(err) || errors.Is(err, errOlder)
}

// named finds a manifest, or the number of a table, in an error of Pebble.
var named = regexp.MustCompile(`(MANIFEST-\d+)|\bL\d+: (\d+):`)

// errLocked means that another process has the store open.
var errLocked = errors.New("the store is in use")

// told turns an error of Pebble that means damage into a *DamageError.
func told(dir string, err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	return damageOf(dir, err)
}

// toldOpening is told for errors of opening a store. Pebble does not mark most of them as corruption, so every error that
// is not from the system counts as damage.
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

// refused says whether an error is from the system or from this program, so that the file may be intact.
func refused(err error) bool {
	if errors.Is(err, ErrFormat) || errors.Is(err, errLocked) || errors.Is(err, fs.ErrPermission) {
		return true
	}
	var number syscall.Errno
	return errors.As(err, &number) && number != syscall.ENOENT && number != syscall.ENOTDIR && number != syscall.EISDIR
}

// Check reads all tables of a closed store, and changes nothing. Damage is a *DamageError.
func Check(files vfs.FS, dir string) error {
	if err := toldOpening(dir, check(files, dir)); err != nil {
		return fmt.Errorf("store: reading %s: %w", dir, err)
	}
	return nil
}

func check(files vfs.FS, dir string) error {
	s, err := openTables(files, dir)
	if errors.Is(err, pebble.ErrDBDoesNotExist) {
		return nil // the first start was interrupted: the next one makes the store
	}
	if err != nil {
		return err
	}
	if err := s.db.CheckLevels(nil); err != nil {
		_ = s.db.Close()
		return err
	}
	return s.db.Close()
}

// openTables opens the tables of a closed store for reading.
func openTables(files vfs.FS, dir string) (*Store, error) {
	if err := whole(files, dir); err != nil {
		return nil, err
	}
	failed := newFailure(nil)
	o := &pebble.Options{
		FS: files, ReadOnly: true, DisableWAL: true, FormatMajorVersion: pebble.FormatVirtualSSTables,
		Logger:        quietLogger{slog.New(slog.DiscardHandler), dir, failed},
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, fs: files, dir: dir, failed: failed}, nil
}
