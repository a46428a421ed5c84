package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
)

// CheckpointTo makes dir, which does not exist, a store of what was flushed: its
// tables are linked, or copied to another file system. An error means nothing to s. For a store opened by
// OpenUnlogged. REQUIRES: one call at a time.
func (s *Store) CheckpointTo(dir string) error {
	copied := newFailure(nil)
	s.copied.Store(copied)
	err := s.db.Checkpoint(dir)
	s.copied.Store(nil)
	if err == nil {
		err = copied.get()
	}
	if err != nil {
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
func (s *Store) Snapshot() *Snapshot {
	if s.log != nil {
		s.log.mu.Lock() // no change is there in part
		defer s.log.mu.Unlock()
	}
	return &Snapshot{s.db.NewSnapshot(), s.dir}
}

// Close lets go of it.
func (s *Snapshot) Close() error { return s.at.Close() }

// CopyTo makes dir a logged store, with what the snapshot holds except for one key. It is made in memory and
// then written: a store whose disk fails ends the process, and that disk may be nobody's but the copy's.
func (s *Snapshot) CopyTo(fs vfs.FS, dir string, except []byte) error {
	memory := vfs.NewMem()
	const name = "copy"
	if err := s.fill(memory, name, except); err != nil {
		return err
	}
	for _, suffix := range []string{"", logSuffix} {
		if err := copyFiles(memory, name+suffix, fs, dir+suffix); err != nil {
			return fmt.Errorf("store: copying to %s: %w", dir+suffix, err)
		}
	}
	return nil
}

// copyFiles copies the files of a directory to one on another file system, which is made; its name is not synced.
func copyFiles(from vfs.FS, dir string, to vfs.FS, toDir string) error {
	names, err := from.List(dir)
	if err != nil {
		return err
	}
	if err := to.MkdirAll(toDir, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if err := vfs.CopyAcrossFS(from, from.PathJoin(dir, name), to, to.PathJoin(toDir, name)); err != nil {
			return err
		}
	}
	return journal.SyncDirectory(to, toDir)
}

func (s *Snapshot) fill(fs vfs.FS, dir string, except []byte) (err error) {
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
		if bytes.Equal(key, except) {
			return nil
		}
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
