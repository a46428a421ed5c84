package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
)

// wal is the log of a store, in the place of Pebble's own: a declaration waits for
// one sync of a file that is used again and again, made by the goroutine that
// waits, which is a third faster. Its frames are batches as Pebble writes them. What is too much for
// one is several, of which each says in the first 8 bytes, which are 0 elsewhere, which part it is:
//
//	0xff | index, 3 bytes | number of parts, 4 bytes, both little endian | rest of a batch
//
// Parts of which the last is missing were cut short by a crash, and are nothing.
//
// At start all frames there are are applied again, in order, to whatever Pebble has
// on disk. Pebble never has more than the log: flushing sees to it.
type wal struct {
	journal *journal.Journal
	store   *Store

	mu     sync.Mutex            // guards the order of frames and batches
	last   atomic.Uint64         // position of the last frame; read by flushes, for which apply may wait
	synced atomic.Uint64         // position of the last frame that apply has synced
	found  []journal.SegmentInfo // at start
	name   uint64                // see Reach

	shortening sync.Mutex // held by shorten: what is noted last must be the last that was given back
}

const (
	walSegment = 1 << 20
	logSuffix  = "-log"   // of the name of a store's log, behind the store's own
	partBytes  = 16 << 20 // of a frame, beyond which what is applied at once has several
	walKeep    = 4        // segments, beyond which what Pebble has not flushed is flushed
)

// open reads the log in dir into the store.
func (w *wal) open(s *Store, fs vfs.FS, dir string, logger *slog.Logger) error {
	j, err := journal.Open(journal.Options{FS: fs, Dir: dir, SegmentBytes: walSegment, Prefill: true, Logger: logger, OnFatal: s.failed.set})
	if err != nil {
		return err
	}
	if err := s.reaches(j.First()); err != nil {
		_ = j.Close()
		return fmt.Errorf("%s: %w", dir, err)
	}
	var parts []*pebble.Batch // of the change being read, which has want
	want := 0
	begun := false // of what comes before, the tables have all: its first parts were given back, see shorten
	err = j.Recover(0, func(_ journal.Pos, payload []byte) error {
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
		case index != len(parts) || of != want: // a repair has passed over one: what is not whole is nothing
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

// partHead stands in the place of a batch's first 8 bytes.
func partHead(index, of int) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0xff|uint32(index)<<8), uint32(of))
}

// partOf reads which part of a change a frame has, and the batch in it.
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

// checkBatch says whether a batch is one that apply may have been given: Pebble ends the process over others.
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

// apply writes a change, which has one part or more, to the log and to Pebble; with sync it is on disk then.
// Pebble gets the first part when the log has the last: so all or none of them are there after a crash.
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
			// Declarations come seldom. Nothing may follow that says of the last one that it was synced: were it to
			// rot, it would look like one that a crash cut short. A mark says so, and nobody waits for it.
			err = w.journal.Flush()
		}
	}
	if err == nil && len(w.journal.Segments()) > walKeep {
		err = w.shorten()
	}
	return err
}

// shorten lets Pebble write what it has, after which the log before is not needed.
func (w *wal) shorten() error {
	w.shortening.Lock()
	defer w.shortening.Unlock()
	if len(w.journal.Segments()) <= walKeep {
		return nil // somebody else has done so meanwhile
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

// errOlder is the error for tables that lack what the log does not have any more.
var errOlder = errors.New("the tables are older than the log that belongs to them")

// reaches demands that the tables have what was in the log before its first segment.
func (s *Store) reaches(first uint32) error {
	value, ok, err := s.Get(nil, logKey)
	if err != nil || !ok {
		return err // nothing was given back yet, or by a release before this one
	}
	begins, err := strconv.ParseUint(string(value), 10, 32)
	if err != nil || uint64(first) > begins {
		return fmt.Errorf("%w: they cover everything before segment %s, and the log begins with %d", errOlder, value, first)
	}
	return nil
}

// flushing is called before Pebble writes a table: what is in it must be in the
// log, or frames applied again would mix with what came after them.
func (w *wal) flushing() {
	// Before open has returned there is no last, and w.journal is being set: what it reads is in the log already.
	if pos := journal.Pos(w.last.Load()); pos != 0 {
		_ = w.journal.Commit(pos) // a failure ends the process before the table is begun, see failure
	}
}

func (w *wal) close() error { return w.journal.Close() }
