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

// CheckpointTo makes dir a store with the flushed content: it links the tables, or copies
// them to another file system. An error does not affect s. REQUIRES: dir does not exist, s
// was opened by OpenUnlogged, and there is one call at a time.
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

// Snapshot is the content of a store at one moment.
type Snapshot struct {
	at  *pebble.Snapshot
	dir string
}

// Snapshot keeps the present content of s until it is closed.
func (s *Store) Snapshot() *Snapshot {
	if s.log != nil {
		s.log.mu.Lock() // so that no change is there only in part
		defer s.log.mu.Unlock()
	}
	return &Snapshot{s.db.NewSnapshot(), s.dir}
}

// Close releases the snapshot.
func (s *Snapshot) Close() error { return s.at.Close() }

// CopyTo makes dir a logged store with the content of the snapshot, except for one key. It builds the store in memory and
// then writes its files, because a store on a failing disk would end the process, and the copy may be on another disk.
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

// copyFiles makes a directory on another file system and copies all files to it. It does not sync the directory's name.
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
