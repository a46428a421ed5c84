package store

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"bartleby.mq/internal/disk/journal"
)

// Reach says how far the log of a store was on disk at some moment. A Reach that is kept
// elsewhere shows later whether the log has lost its end; the log itself cannot show it.
type Reach struct {
	// Log is the random name of the log. It changes when the log starts anew, or when a
	// repair has accepted the end of the log.
	Log uint64 `json:"log"`
	// Pos is the last frame that was synced; 0: none.
	Pos journal.Pos `json:"pos"`
}

// Reached returns how far this process has written the store's log to disk.
// REQUIRES: s was opened by Open.
func (s *Store) Reached() Reach { return Reach{s.log.name, journal.Pos(s.log.synced.Load())} }

// Reaches says whether the log reached r when the store was opened. end is the end of the frames in the segment
// of r, if there is one. A Reach of another log always counts as reached. A process that opened and wrote to the
// store since has written to a later segment. REQUIRES: s was opened by Open.
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

// Rename gives the log a new name, so that earlier Reaches no longer apply to it. The name is on
// disk when Rename returns.
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

// raise sets the value to v if v is larger.
func raise(to *atomic.Uint64, v uint64) {
	for was := to.Load(); was < v; was = to.Load() {
		if to.CompareAndSwap(was, v) {
			return
		}
	}
}
