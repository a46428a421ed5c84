package bodies

import (
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/safety/held"
)

// Location is where the record lies on disk, 0 if it does not.
func (s *Store) Location(ref message.Ref) message.Location {
	if ref.OnDisk() {
		return ref.Location()
	}
	return message.Location(s.slot(ref).at.Load())
}

// SetLocation notes where the record, which is in memory, has been written to. Where it
// lies for good already it stays: copies of pages of others name that place, and rely
// on it being counted. REQUIRES: the caller holds a reference; at is somewhere.
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

// relocate notes that a record lies elsewhere from now on, and only there.
func (s *Store) relocate(ref message.Ref, at message.Location) {
	s.segments.add(at, 1)
	if old := message.Location(s.slot(ref).at.Swap(uint64(at))); old != 0 {
		s.leave(old)
	}
}

// leave takes a reference from the file that at lies in.
func (s *Store) leave(at message.Location) {
	if left := s.segments.add(at, -1); left == 0 && at.Space() == message.InScratch {
		s.scratching.Lock()
		s.dropScratch(at.Segment())
		s.scratching.Unlock()
	}
}

// Adopt returns a new reference to the record at a place on disk.
func (s *Store) Adopt(at message.Location) message.Ref {
	s.segments.add(at, 1)
	return at.Ref()
}

// Move gives up a reference to a record for one to a copy of it at another place.
// A record that is in memory stays there, and knows its new place.
func (s *Store) Move(ref message.Ref, to message.Location) message.Ref {
	if !ref.OnDisk() {
		s.relocate(ref, to)
		return ref
	}
	moved := s.Adopt(to)
	s.Release(ref)
	return moved
}

// Cool gives up a reference to a record in memory for one to its place on disk. ok
// is false, and nothing has changed, if it has none. A Ref on disk is cool already.
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
		s.leave(at) // it has been moved just now, and the file it was in may be gone
	}
}

// Warm gives up a reference to a record on disk for one to a copy in memory, which
// knows its place. If it fails the reference is still the caller's. It may wait for
// the disk. A Ref in memory is warm already.
func (s *Store) Warm(ref message.Ref) (message.Ref, error) {
	if !ref.OnDisk() {
		return ref, nil
	}
	// Whoever warms one record warms the next: mostly the pool has the window that
	// the last one was read with.
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

// ToScratch writes a record that is in memory only to a scratch file, so that it can
// be cooled. If it fails, such as on a full disk, nothing has changed. REQUIRES: the caller
// holds a reference.
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
	// A copy is sealed: others read the record meanwhile.
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
		s.segments.add(at, -1) // the journal has it since just now
	}
	if before != 0 && before != number {
		s.dropScratch(before)
	}
	return nil
}

// dropScratch removes a scratch file if nothing lives in it and it is not the one
// that is appended to. REQUIRES: s.scratching, under which alone a file is appended to.
func (s *Store) dropScratch(number uint32) {
	c := s.segments.of(message.InScratch, number)
	if live, _ := c.load(); live > 0 || s.disk.Scratch == nil || number == s.disk.Scratch.Current() {
		return
	}
	c.setPlaced(0)
	// If it cannot be removed it is discarded by the next start.
	_ = s.disk.Scratch.Drop(number)
}
