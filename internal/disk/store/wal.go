package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
)

// wal is the log of a store, in place of Pebble's own. A declaration waits for one sync of
// a recycled file, made by the waiting goroutine, which is a third faster. A frame is a
// batch in Pebble's form. A change that is too large for one frame has several parts. The
// first 8 bytes of a batch, otherwise 0, then say which part it is:
//
//	0xff | index, 3 bytes | number of parts, 4 bytes, both little endian | rest of a batch
//
// A change without its last part was cut short by a crash, and is ignored.
//
// A start applies all frames again, in order, to the tables of Pebble. Invariant: the tables
// never have more than the log; see flushing.
type wal struct {
	journal *journal.Journal
	store   *Store

	mu     sync.Mutex            // guards the order of frames and batches
	last   atomic.Uint64         // position of the last frame; flushes read it, and apply may wait for them
	synced atomic.Uint64         // position of the last frame that apply has synced
	found  []journal.SegmentInfo // at start
	name   uint64                // see Reach

	shortening sync.Mutex // held by shorten: the last note must be about the last freed segment
}

const (
	walSegment = 1 << 20
	logSuffix  = "-log"   // appended to the store's name
	partBytes  = 16 << 20 // size of a frame beyond which a change has several parts
	walKeep    = 4        // number of segments beyond which Pebble must flush
)

// open reads the log in dir into the store.
func (w *wal) open(s *Store, fs vfs.FS, dir string, logger *slog.Logger) error {
	j, err := journal.Open(journal.Options{FS: fs, Dir: dir, SegmentBytes: walSegment, Prefill: true, Logger: logger, OnFatal: s.failed.set})
	if err != nil {
		return err
	}
	begins, err := s.logBegins()
	if err == nil && j.First() > begins {
		err = fmt.Errorf("%w: they cover everything before segment %d, and the log begins with %d", errOlder, begins, j.First())
	}
	if err != nil {
		_ = j.Close()
		return fmt.Errorf("%s: %w", dir, err)
	}
	var parts []*pebble.Batch // parts so far of the change being read, which has want parts
	want := 0
	begun := false // before the first whole change: the tables have it, and its first parts are freed, see shorten
	err = j.Recover(journal.MakePos(begins, journal.FirstFrame), func(_ journal.Pos, payload []byte) error {
		b := s.db.NewBatch()
		index, of, repr := partOf(payload)
		if err := b.SetRepr(repr); err != nil {
			return err
		}
		if err := checkBatch(b); err != nil {
			return errors.Join(err, b.Close())
		}
		begun = begun || index == 0
		switch {
		case !begun:
			return b.Close()
		case index == 0:
			parts, want = parts[:0], of
		case index != len(parts) || of != want: // a repair has skipped a part: ignore the change
			logger.Error("ignoring an incomplete change of declarations in the log", "part", index+1, "parts", of)
			parts = parts[:0]
			return b.Close()
		}
		if parts = append(parts, b); len(parts) < of {
			return nil
		}
		all := parts
		parts = nil
		return commit(all)
	})
	if err != nil {
		_ = j.Close()
		return err
	}
	w.journal, w.store, w.found = j, s, j.Segments()
	return nil
}

// partHead replaces the first 8 bytes of a batch.
func partHead(index, of int) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0xff|uint32(index)<<8), uint32(of))
}

// partOf reads which part of a change a frame is, and its batch.
func partOf(payload []byte) (index, of int, repr []byte) {
	repr = slices.Clone(payload)
	if len(repr) < 8 || repr[0] != 0xff {
		return 0, 1, repr
	}
	index, of = int(binary.LittleEndian.Uint32(repr)>>8), int(binary.LittleEndian.Uint32(repr[4:]))
	clear(repr[:8])
	return index, of, repr
}

// commit gives all parts of a change to Pebble.
func commit(parts []*pebble.Batch) error {
	for _, b := range parts {
		if err := b.Commit(pebble.NoSync); err != nil {
			return err
		}
	}
	return nil
}

// checkBatch says whether apply can have written a batch. Pebble ends the process over any other batch.
func checkBatch(b *pebble.Batch) error {
	count := uint32(0)
	for r := b.Reader(); ; count++ {
		kind, _, _, ok, err := r.Next()
		switch {
		case err != nil:
			return fmt.Errorf("a batch in the log: %w", err)
		case !ok && count != b.Count():
			return fmt.Errorf("a batch in the log has %d changes, but its header says %d", count, b.Count())
		case !ok:
			return nil
		case kind != pebble.InternalKeyKindSet && kind != pebble.InternalKeyKindDelete:
			return fmt.Errorf("a batch in the log has a change of kind %d", kind)
		}
	}
}

// apply writes the parts of a change to the log and to Pebble; with sync the change is on disk when it returns.
// Pebble gets the first part only when the log has the last, so after a crash there are all parts or none.
func (w *wal) apply(parts []*pebble.Batch, sync bool) error {
	if parts[0].Empty() {
		return nil
	}
	w.mu.Lock()
	var pos journal.Pos
	for i, b := range parts {
		if len(parts) == 1 {
			pos = w.journal.Append(b.Repr())
			break
		}
		head := partHead(i, len(parts))
		pos = w.journal.AppendParts(head, b.Repr()[len(head):])
	}
	w.last.Store(uint64(pos))
	err := commit(parts)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if sync {
		if err = w.journal.Commit(pos); err == nil {
			raise(&w.synced, uint64(pos))
			// Declarations are rare. Without a later frame, damage to the last one would look like the work of a crash.
			// So a mark follows that says that it was synced; nobody waits for the mark.
			err = w.journal.Flush()
		}
	}
	if err == nil && len(w.journal.Segments()) > walKeep {
		err = w.shorten()
	}
	return err
}

// shorten makes Pebble flush, and frees the log before that.
func (w *wal) shorten() error {
	w.shortening.Lock()
	defer w.shortening.Unlock()
	if len(w.journal.Segments()) <= walKeep {
		return nil // another goroutine has done it
	}
	w.mu.Lock()
	pos := journal.Pos(w.last.Load()) // and Pebble has all of it
	w.mu.Unlock()
	if err := w.store.Put(logKey, strconv.AppendUint(nil, uint64(pos.Segment()), 10)); err != nil {
		return err
	}
	if err := w.store.Flush(); err != nil {
		return err
	}
	return w.journal.Retire(pos.Segment(), nil)
}

// errOlder means that the tables lack changes that the log no longer has.
var errOlder = errors.New("the tables are older than the log that belongs to them")

// logBegins returns the first segment that the log must have: the tables have everything before it.
func (s *Store) logBegins() (uint32, error) {
	value, ok, err := s.Get(nil, logKey)
	if err != nil || !ok {
		return 1, err // no segment was freed yet
	}
	begins, err := strconv.ParseUint(string(value), 10, 32)
	if err != nil || begins == 0 {
		return 0, fmt.Errorf("%w: they say that the log begins with segment %q", errOlder, value)
	}
	return uint32(begins), nil
}

// LogBegins returns where a start begins to read the log of the closed store in dir.
func LogBegins(fs vfs.FS, dir string) (journal.Pos, error) {
	if names, err := fs.List(dir); errors.Is(err, iofs.ErrNotExist) || err == nil && marked(names, manifestMarker) == "" {
		return journal.Beginning, nil // the first start was interrupted, or the tables are lost
	}
	s, err := openTables(fs, dir)
	if err != nil {
		return 0, err
	}
	begins, err := s.logBegins()
	return journal.MakePos(begins, journal.FirstFrame), errors.Join(err, s.db.Close())
}

// Adopt makes tables in dir, empty, for a log that has lost its own: the next Open reads all that the log has.
func Adopt(fs vfs.FS, dir string, logger *slog.Logger, onFatal func(error)) error {
	names, err := fs.List(dir + logSuffix)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	first, ok := journal.First(names)
	if !ok {
		return nil // a new store
	}
	s, err := OpenUnlogged(fs, dir, logger, onFatal)
	if err != nil {
		return err
	}
	err = s.Put(logKey, strconv.AppendUint(nil, uint64(first), 10))
	if err == nil {
		err = s.Flush()
	}
	return errors.Join(err, s.Close())
}

// flushing is called before Pebble writes a table. It makes the log durable up to there:
// otherwise a start would apply old frames over newer tables.
func (w *wal) flushing() {
	// Until open has returned, last is 0 and w.journal is not set yet: all that open reads is in the log.
	if pos := journal.Pos(w.last.Load()); pos != 0 {
		_ = w.journal.Commit(pos) // a failure ends the process before the table is written, see failure
	}
}

func (w *wal) close() error { return w.journal.Close() }
