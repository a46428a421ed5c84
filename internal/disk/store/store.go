// Package store keeps pairs of key and value on disk, in Pebble. The broker keeps declarations and accounts there,
// partitions the index of queues; repair reads both.
//
// A Store is safe for use by several goroutines. It owns its directory. It never interprets keys and values, except its
// own keys, such as the one with the format of the whole store.
package store

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/safety/held"
)

// formatVersion is raised when older programs can no longer read the store.
const formatVersion = 1

// Our own keys sort before all others, because no caller's key begins with a zero byte. logKey has
// the first segment that the log may begin with: everything before it is in the tables. nameKey has
// the name of the log, see Reach.
var (
	formatKey = []byte("\x00format")
	logKey    = []byte("\x00log")
	nameKey   = []byte("\x00name")
)

// ErrFormat is the error for a store written by a newer version of this program.
var ErrFormat = errors.New("this version does not know the format of the store")

// Store is an open store.
type Store struct {
	db     *pebble.DB
	fs     vfs.FS
	dir    string
	log    *wal // nil: a crash loses changes since the last flush
	failed *failure
	pacing *pacing
	copied *atomic.Pointer[failure] // see watched
}

// Open opens the store in dir, or makes it. It locks the directory until Close. onFatal is called once if the disk has
// failed and the store can keep nothing more. It runs with locks of Pebble held, maybe before Open returns: it must not call
// the store, and should end the process. If onFatal is nil, Pebble may panic.
func Open(fs vfs.FS, dir string, logger *slog.Logger, onFatal func(error)) (*Store, error) {
	log := &wal{}
	// Declarations are few; Pebble's defaults are for much larger stores.
	s, err := openWith(fs, dir, logger, onFatal, &pebble.Options{MemTableSize: 4 << 20, CacheSize: 4 << 20, MaxOpenFiles: 128}, log.flushing)
	if err != nil {
		return nil, err
	}
	if err := log.open(s, fs, dir+logSuffix, logger); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", dir, err), s.db.Close())
	}
	s.log = log
	if _, err := s.checked(dir); err != nil {
		return nil, err
	}
	if err := s.name(); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", dir, err), s.Close())
	}
	return s, nil
}

// OpenUnlogged is Open without a log, for large data that can be restored from elsewhere. A
// crash loses changes since the last Flush, the latest first; Apply's sync has no effect.
func OpenUnlogged(fs vfs.FS, dir string, logger *slog.Logger, onFatal func(error)) (*Store, error) {
	s, err := openWith(fs, dir, logger, onFatal, &pebble.Options{
		// The caller of Put holds a partition's lock, and waits when all memtables are full.
		MemTableSize: 8 << 20, MemTableStopWritesThreshold: 4, CacheSize: 16 << 20, MaxOpenFiles: 256, L0CompactionThreshold: 4, L0StopWritesThreshold: 64,
	}, func() {})
	if err != nil {
		return nil, err
	}
	return s.checked(dir)
}

// checked returns the store if its format is known.
func (s *Store) checked(dir string) (*Store, error) {
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", dir, err), s.Close())
	}
	return s, nil
}

func openWith(fs vfs.FS, dir string, logger *slog.Logger, onFatal func(error), o *pebble.Options, flushing func()) (*Store, error) {
	pacing, copied := &pacing{after: paceAfter}, &atomic.Pointer[failure]{}
	quiet := quietLogger{logger, dir, newFailure(onFatal)}
	o.FS, o.Logger, o.FormatMajorVersion, o.DisableWAL = watched{fs, dir, quiet.failed, pacing, copied}, quiet, pebble.FormatVirtualSSTables, true
	o.EventListener = &pebble.EventListener{
		BackgroundError: quiet.backgroundError,
		// The reader of the table gets the error; by default Pebble ends the process.
		DataCorruption: func(pebble.DataCorruptionInfo) {},
		FlushBegin:     func(pebble.FlushInfo) { flushing() },
	}
	compactions := newScheduler()
	o.Experimental.CompactionScheduler = compactions
	err := whole(fs, dir)
	var db *pebble.DB
	if err == nil {
		db, err = pebble.Open(dir, o)
	}
	if err != nil {
		return nil, fmt.Errorf("store: opening %s: %w", dir, toldOpening(dir, err))
	}
	compactions.begin()
	return &Store{db: db, fs: fs, dir: dir, failed: quiet.failed, pacing: pacing, copied: copied}, nil
}

// checkFormat writes the version into a new store and refuses a store of another version.
func (s *Store) checkFormat() error {
	value, closer, err := s.db.Get(formatKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return errors.Join(s.db.Set(formatKey, []byte(strconv.Itoa(formatVersion)), pebble.NoSync), s.Flush())
	}
	if err != nil {
		return told(s.dir, err)
	}
	found := string(value)
	if err := closer.Close(); err != nil {
		return err
	}
	if found != strconv.Itoa(formatVersion) {
		return fmt.Errorf("%w: the store has version %q, this program reads version %d", ErrFormat, found, formatVersion)
	}
	return nil
}

// waits checks that the caller may wait for the disk.
func (s *Store) waits() {
	if s.log != nil {
		held.Nothing("the store of declarations")
	} else {
		held.Nothing("the store of the index")
	}
}

// Apply writes pairs atomically; a nil value deletes the key. With sync they are on disk when it returns. Without it a
// crash may lose them, but never only a part of them, or an older change. Their total size is not limited; each pair is
// smaller than journal.MaxPayload.
func (s *Store) Apply(changes iter.Seq2[[]byte, []byte], sync bool) error {
	s.waits()
	parts, err := s.split(changes)
	if err == nil {
		if s.log != nil {
			err = s.log.apply(parts, sync)
		} else {
			err = commit(parts)
		}
		if err != nil {
			err = fmt.Errorf("store: committing: %w", err)
		}
	}
	for _, batch := range parts {
		err = errors.Join(err, batch.Close())
	}
	return err
}

// split makes batches of changes: several for a log, because its frames have a maximal size.
func (s *Store) split(changes iter.Seq2[[]byte, []byte]) (parts []*pebble.Batch, err error) {
	parts = append(parts, s.db.NewBatch())
	for key, value := range changes {
		batch := parts[len(parts)-1]
		if s.log != nil && batch.Len() >= partBytes {
			batch = s.db.NewBatch()
			parts = append(parts, batch)
		}
		if value == nil {
			err = batch.Delete(key, nil)
		} else {
			err = batch.Set(key, value, nil)
		}
		if err != nil {
			return parts, fmt.Errorf("store: key %q: %w", key, err)
		}
	}
	return parts, nil
}

// Put writes one pair to a store opened by OpenUnlogged.
func (s *Store) Put(key, value []byte) error {
	s.waits()
	if err := s.db.Set(key, value, pebble.NoSync); err != nil {
		return fmt.Errorf("store: key %q: %w", key, err)
	}
	return nil
}

// Get appends the value of key to dst. ok is false if the key does not exist.
func (s *Store) Get(dst, key []byte) (value []byte, ok bool, err error) {
	s.waits()
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, fmt.Errorf("store: key %q: %w", key, told(s.dir, err))
	}
	dst = append(dst, v...)
	return dst, true, closer.Close()
}

// DeletePrefix deletes every key that begins with prefix, which is not empty.
func (s *Store) DeletePrefix(prefix []byte) error {
	s.waits()
	if err := s.db.DeleteRange(prefix, after(prefix), pebble.NoSync); err != nil {
		return fmt.Errorf("store: prefix %q: %w", prefix, err)
	}
	return nil
}

// Flush makes all changes durable. A store opened by OpenUnlogged has no other way. On a
// failed store it returns the failure, where Pebble would try again.
func (s *Store) Flush() error {
	held.Nothing("the flush of a store")
	done, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("store: flushing: %w", err)
	}
	select {
	case <-done:
		// Pebble may have succeeded at the second try.
	case <-s.failed.c:
	}
	return s.failed.get()
}

// DiskBytes is the store's size on disk.
func (s *Store) DiskBytes() int64 { return int64(s.db.Metrics().DiskSpaceUsage()) }

// Range calls f for every pair whose key begins with prefix, in the order of the keys, until f returns an error, and
// returns that error. Key and value are valid only during the call. Range sees the store as it was when it was called.
func (s *Store) Range(prefix []byte, f func(key, value []byte) error) error {
	s.waits()
	return rangeOver(s.db, s.dir, prefix, f)
}

func rangeOver(db pebble.Reader, dir string, prefix []byte, f func(key, value []byte) error) (err error) {
	lower := prefix
	if len(lower) == 0 {
		lower = []byte{0} // before every key; Pebble built with -race cannot seek to an empty one
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("store: reading: %w", told(dir, err))
	}
	defer func() {
		if closeErr := it.Close(); err == nil {
			err = told(dir, closeErr)
		}
	}()
	for it.First(); it.Valid(); it.Next() {
		if it.Key()[0] == 0 {
			continue // ours
		}
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return told(dir, it.Error())
}

// after returns the first key after all keys that begin with prefix; nil if there is none.
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

// Close waits for Pebble's background work and unlocks the directory. No method may be called after it.
func (s *Store) Close() error {
	var err error
	if s.log != nil {
		err = s.log.close()
	}
	if err = errors.Join(err, s.db.Close()); err != nil {
		return fmt.Errorf("store: closing: %w", err)
	}
	_ = writeClosed(s.fs, s.dir) // without this file the store looks as after a crash
	return nil
}
