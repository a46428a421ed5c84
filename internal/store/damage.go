package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

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

// told makes a *DamageError of an error of Pebble's that means damage.
func told(dir string, err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	file, reason := dir, err.Error()
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		file, reason = info.Path, info.Details.Error()
	}
	reason, _, _ = strings.Cut(reason, "\n")
	return &DamageError{file, reason}
}

// Check reads all tables of a store that nobody has open, and changes nothing. Damage is
// a *DamageError.
func Check(fs vfs.FS, dir string) error {
	o := &pebble.Options{
		FS: fs, ReadOnly: true, DisableWAL: true, FormatMajorVersion: pebble.FormatVirtualSSTables,
		Logger:        quietLogger{slog.New(slog.DiscardHandler), dir, newFailure(nil)},
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	}
	db, err := pebble.Open(dir, o)
	if err == nil {
		if err = db.CheckLevels(nil); err == nil {
			err = db.Close()
		} else {
			_ = db.Close()
		}
	}
	if err = told(dir, err); err != nil {
		return fmt.Errorf("store: reading %s: %w", dir, err)
	}
	return nil
}
