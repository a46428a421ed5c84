package store

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"bartleby.mq/internal/disk/journal"
)

// Reach says how far the log of a store was on disk at some moment. Whoever keeps one
// elsewhere can tell later whether the log has lost its end, which the log itself cannot.
type Reach struct {
	// Log is the name of the log: random, and another one where the log was begun
	// anew, or where somebody has said that it may end where it does.
	Log uint64 `json:"log"`
	// Pos is the last frame that was synced; 0: none.
	Pos journal.Pos `json:"pos"`
}

// Reached is how far the store's log is on disk, as far as this process has written it.
// REQUIRES: s was opened by Open.
func (s *Store) Reached() Reach { return Reach{s.log.name, journal.Pos(s.log.synced.Load())} }

// Reaches says whether the log had all of r when the store was opened, and where its frames end, of the
// segment that should have it if there is one. What is said of another log is nothing to this one. Whoever has
// opened the store since, and written to it, has written to a later segment. REQUIRES: s was opened by Open.
func (s *Store) Reaches(r Reach) (end journal.Pos, ok bool) {
	ok = r.Log != s.log.name || r.Pos == 0
	for i, segment := range s.log.found {
		end = journal.MakePos(segment.Number, segment.Bytes)
		switch {
		case segment.Number == r.Pos.Segment():
			return end, ok || end > r.Pos
		case i == 0 && segment.Number > r.Pos.Segment():
			ok = true // it was given back: the tables have it, see Store.reaches
		}
	}
	return end, ok
}

// Rename gives the log another name: nothing that was said of it before counts any more. It is
// on disk when Rename returns.
func (s *Store) Rename() error {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	if err := s.Put(nameKey, b[:]); err != nil {
		return err
	}
	s.log.name = binary.LittleEndian.Uint64(b[:])
	return s.Flush()
}

// name reads the name of the log, or gives it one.
func (s *Store) name() error {
	value, closer, err := s.db.Get(nameKey)
	if err == nil && len(value) == 8 {
		s.log.name = binary.LittleEndian.Uint64(value)
		return closer.Close()
	}
	if err == nil {
		err = closer.Close()
	}
	if err != nil && err != pebble.ErrNotFound {
		return told(s.dir, err)
	}
	return s.Rename()
}

// raise makes v the value if that is less.
func raise(to *atomic.Uint64, v uint64) {
	for was := to.Load(); was < v; was = to.Load() {
		if to.CompareAndSwap(was, v) {
			return
		}
	}
}
