package store

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// CheckpointTo makes dir, which does not exist, a store of what was flushed: its
// tables are linked, or copied to another file system. For a store opened by
// OpenUnlogged.
func (s *Store) CheckpointTo(dir string) error {
	if err := s.db.Checkpoint(dir); err != nil {
		return fmt.Errorf("store: copying to %s: %w", dir, err)
	}
	return nil
}

// Snapshot is what a store held at one moment.
type Snapshot struct {
	at  *pebble.Snapshot
	dir string
}

// Snapshot keeps what s holds now until it is closed.
func (s *Store) Snapshot() *Snapshot { return &Snapshot{s.db.NewSnapshot(), s.dir} }

// Close lets go of it.
func (s *Snapshot) Close() error { return s.at.Close() }

// CopyTo makes dir a logged store, with what the snapshot holds.
func (s *Snapshot) CopyTo(fs vfs.FS, dir string) (err error) {
	to, err := Open(fs, dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	const batch = 1000
	var keys [][]byte
	pairs := map[string][]byte{}
	flush := func() error {
		err := to.Apply(func(yield func([]byte, []byte) bool) {
			for _, k := range keys {
				if !yield(k, pairs[string(k)]) {
					return
				}
			}
		}, false)
		keys = keys[:0]
		clear(pairs)
		return err
	}
	err = rangeOver(s.at, s.dir, nil, func(key, value []byte) error {
		keys = append(keys, append([]byte(nil), key...))
		pairs[string(key)] = append([]byte{}, value...)
		if len(keys) == batch {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = to.Flush()
	}
	return err
}
