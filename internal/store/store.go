// Package store keeps pairs of key and value on disk, in Pebble: the declarations and accounts of a broker, and what other
// packages put under prefixes of their own.
//
// A Store is safe for use by several goroutines. It gives no meaning to keys and values, but for one key that says in
// which format the whole store is written.
package store

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatVersion is raised when older programs could no longer read what newer ones write.
const formatVersion = 1

// formatKey sorts before all others; no caller's key begins with a zero byte.
var formatKey = []byte("\x00format")

// ErrFormat is the error for a store written by a newer version of this program.
var ErrFormat = errors.New("the store is in a format this version does not know")

// Store is an open store.
type Store struct {
	db *pebble.DB
}

// Open opens the store in dir, made if it is missing. It holds a lock on the directory until Close. Failures in the
// background, after which nothing can be written any more, are logged as errors.
func Open(fs vfs.FS, dir string, logger *slog.Logger) (*Store, error) {
	quiet := quietLogger{logger}
	db, err := pebble.Open(dir, &pebble.Options{
		FS:                 fs,
		Logger:             quiet,
		EventListener:      &pebble.EventListener{BackgroundError: quiet.backgroundError},
		FormatMajorVersion: pebble.FormatVirtualSSTables,
		// Declarations are few; Pebble's defaults are for much larger stores.
		MemTableSize: 4 << 20,
		CacheSize:    4 << 20,
		MaxOpenFiles: 128,
	})
	if err != nil {
		return nil, fmt.Errorf("store: opening %s: %w", dir, err)
	}
	s := &Store{db: db}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", dir, err), db.Close())
	}
	return s, nil
}

// checkFormat writes the version into a new store and refuses another one's.
func (s *Store) checkFormat() error {
	value, closer, err := s.db.Get(formatKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return s.db.Set(formatKey, []byte(strconv.Itoa(formatVersion)), pebble.Sync)
	}
	if err != nil {
		return err
	}
	found := string(value)
	if err := closer.Close(); err != nil {
		return err
	}
	if found != strconv.Itoa(formatVersion) {
		return fmt.Errorf("%w: version %q, this program reads version %d", ErrFormat, found, formatVersion)
	}
	return nil
}

// Apply writes pairs, where a nil value deletes the key, all or none of them. With sync they are on disk when it returns;
// without, a crash may lose them, but never a part of them or something older.
func (s *Store) Apply(changes iter.Seq2[[]byte, []byte], sync bool) error {
	batch := s.db.NewBatch()
	for key, value := range changes {
		var err error
		if value == nil {
			err = batch.Delete(key, nil)
		} else {
			err = batch.Set(key, value, nil)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("store: key %q: %w", key, err), batch.Close())
		}
	}
	options := pebble.NoSync
	if sync {
		options = pebble.Sync
	}
	err := batch.Commit(options)
	if err != nil {
		err = fmt.Errorf("store: committing: %w", err)
	}
	return errors.Join(err, batch.Close())
}

// Range calls f for every pair whose key begins with prefix, in the order of the keys, until f returns an error, which is
// then returned. Key and value are valid during the call only. It sees the store as it was when Range was called.
func (s *Store) Range(prefix []byte, f func(key, value []byte) error) (err error) {
	lower := prefix
	if len(lower) == 0 {
		lower = []byte{0} // before every key; Pebble built with -race cannot seek to an empty one
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("store: reading: %w", err)
	}
	defer func() {
		if closeErr := it.Close(); err == nil {
			err = closeErr
		}
	}()
	for it.First(); it.Valid(); it.Next() {
		if bytes.Equal(it.Key(), formatKey) {
			continue
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

// after returns the first key behind all that begin with prefix; nil if there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// Close waits for Pebble's background work and gives the directory free. No other method may be called any more.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store: closing: %w", err)
	}
	return nil
}
