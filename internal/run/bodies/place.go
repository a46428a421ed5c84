package bodies

import (
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/safety/held"
)

// Location is the record's place on disk, 0 if it has none.
func (s *Store) Location(ref message.Ref) message.Location {
	if ref.OnDisk() {
		return ref.Location()
	}
	return message.Location(s.slot(ref).at.Load())
}

// SetLocation notes the place that a record in memory has been written to. A record that
// already has a durable place, not in a scratch file, keeps it: saved pages of other queues
// name that place, and rely on it being counted. REQUIRES: the caller holds a reference; at
// is not 0.
func (s *Store) SetLocation(ref message.Ref, at message.Location) {
	if at.Space() == message.InJournal {
		s.segments.of(message.InJournal, at.Segment()).place(1)
	} else {
		s.segments.add(at, 1)
	}
	known := &s.slot(ref).at
	for {
		old := message.Location(known.Load())
		if old != 0 && old.Space() != message.InScratch {
			s.leave(at)
			return
		}
		if known.CompareAndSwap(uint64(old), uint64(at)) {
			if old != 0 {
				s.leave(old)
			}
			return
		}
	}
}

// relocate replaces the place of a record.
func (s *Store) relocate(ref message.Ref, at message.Location) {
	s.segments.add(at, 1)
	if old := message.Location(s.slot(ref).at.Swap(uint64(at))); old != 0 {
		s.leave(old)
	}
}

// leave gives up a reference to the file of at.
func (s *Store) leave(at message.Location) {
	if left := s.segments.add(at, -1); left == 0 && at.Space() == message.InScratch {
		s.scratching.Lock()
		s.dropScratch(at.Segment())
		s.scratching.Unlock()
	}
}

// Adopt returns a new reference to the record at the place.
func (s *Store) Adopt(at message.Location) message.Ref {
	s.segments.add(at, 1)
	return at.Ref()
}

// Move exchanges a reference to a record for a reference to its copy at another place. A
// record in memory stays there and gets the new place.
func (s *Store) Move(ref message.Ref, to message.Location) message.Ref {
	if !ref.OnDisk() {
		s.relocate(ref, to)
		return ref
	}
	moved := s.Adopt(to)
	s.Release(ref)
	return moved
}

// Cool exchanges a reference to a record in memory for a reference to its place on disk. If
// the record has no place, ok is false and nothing has changed. A Ref on disk is returned as
// it is.
func (s *Store) Cool(ref message.Ref) (cool message.Ref, ok bool) {
	if ref.OnDisk() {
		return ref, true
	}
	h := s.slot(ref)
	for {
		at := message.Location(h.at.Load())
		if at == 0 {
			return ref, false
		}
		s.segments.add(at, 1)
		if message.Location(h.at.Load()) == at {
			s.Release(ref)
			return at.Ref(), true
		}
		s.leave(at) // the record has just moved, and its old file may be gone
	}
}

// Warm exchanges a reference to a record on disk for a reference to a copy in memory, which
// knows its place. If it fails, the caller keeps its reference. It may wait for the disk. A
// Ref in memory is returned as it is.
func (s *Store) Warm(ref message.Ref) (message.Ref, error) {
	if !ref.OnDisk() {
		return ref, nil
	}
	// A caller that warms one record usually warms the next one too. Then the pool mostly
	// returns the window with which the last record was read.
	w := s.windows.Get().(*Window)
	defer s.windows.Put(w)
	b, err := s.Read(ref, w)
	if err != nil {
		return ref, err
	}
	warm, dst := s.Alloc(len(b))
	copy(dst, b)
	s.relocate(warm, ref.Location())
	s.Release(ref)
	return warm, nil
}

// ToScratch writes a record that is only in memory to a scratch file, so that Cool can
// release its memory. If it fails, for example on a full disk, nothing has changed.
// REQUIRES: the caller holds a reference.
func (s *Store) ToScratch(ref message.Ref) error {
	if s.Location(ref) != 0 {
		return nil
	}
	if s.disk.Scratch == nil {
		return fmt.Errorf("message record: there are no scratch files")
	}
	held.Nothing("scratch files")
	s.scratching.Lock()
	defer s.scratching.Unlock()
	// Seal a copy: other goroutines may be reading the record.
	record := message.Record(append(s.sealing[:0], s.Bytes(ref)...))
	if cap(record) <= windowBytes {
		s.sealing = record
	}
	if !record.Sealed() {
		record.Seal()
	}
	before := s.disk.Scratch.Current()
	number, offset, err := s.disk.Scratch.Append(record)
	if err != nil {
		return err
	}
	at := message.MakeLocation(message.InScratch, number, offset)
	s.segments.of(message.InScratch, number).place(1)
	if !s.slot(ref).at.CompareAndSwap(0, uint64(at)) {
		s.segments.add(at, -1) // meanwhile the journal has written it
	}
	if before != 0 && before != number {
		s.dropScratch(before)
	}
	return nil
}

// dropScratch removes a scratch file without references, unless records are still appended
// to it. REQUIRES: s.scratching, which guards appending.
func (s *Store) dropScratch(number uint32) {
	c := s.segments.of(message.InScratch, number)
	if live, _ := c.load(); live > 0 || s.disk.Scratch == nil || number == s.disk.Scratch.Current() {
		return
	}
	c.setPlaced(0)
	// If this fails, the next start removes the file.
	_ = s.disk.Scratch.Drop(number)
}
