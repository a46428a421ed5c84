package bodies

import (
	"errors"
	"syscall"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/safety/held"
)

// Bytes that are needed seldom are put aside: they lie in a scratch file from the beginning. A base may stand on such bytes, and
// on other bases, as an allocation stands on a base: it holds a reference to what it stands on.

// PutAside keeps bytes on disk and returns the only reference to them, for InternOn. While they cannot be written, as on a full disk,
// or where there are no scratch files, they are in memory.
func (s *Store) PutAside(b []byte) message.Ref {
	e := message.Envelope{BodySize: len(b)}
	ref, r := s.Alloc(e.Size())
	copy(e.Put(r), b)
	message.Record(r).Seal()
	if s.disk.Scratch == nil || s.ToScratch(ref) != nil {
		return ref
	}
	cold, _ := s.Cool(ref)
	return cold
}

// ReadAside returns the n bytes that a base stands on. The caller must not write to them; they are valid as long as it holds a
// reference to the base. It may be called while a partition is held: the file is written into the system's memory, as pages of the
// index are. A damaged record is a *DamageError. REQUIRES: the caller holds a reference to the base.
func (s *Store) ReadAside(base message.Ref, n int) ([]byte, error) {
	for {
		at := s.Base(base)
		b, err := s.readAside(at, n)
		if err == nil {
			return b, nil
		}
		if s.Base(base) == at {
			if s.disk.Unread != nil {
				s.disk.Unread(err)
			}
			return nil, err
		}
		// CompactAside has moved it meanwhile, and the file is gone.
	}
}

func (s *Store) readAside(ref message.Ref, n int) ([]byte, error) {
	if !ref.OnDisk() {
		return message.Record(s.Bytes(ref)).Body(), nil
	}
	held.Nothing("scratch files")
	at, b := ref.Location(), make([]byte, message.RecordHead+n)
	got, err := s.readOnce(at, b)
	if errors.Is(err, syscall.EIO) {
		got, err = s.readOnce(at, b)
	}
	if err != nil {
		return nil, err
	}
	if err := message.Verify(b[:got]); err != nil {
		return nil, &DamageError{at, err.Error()}
	}
	return message.Record(b).Body(), nil
}

// Find returns a new reference to a base of InternOn with these bytes, if there is one.
func (s *Store) Find(b []byte) (ref message.Ref, ok bool) {
	t := &s.bases
	at, _ := t.place(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ref = t.found[at]; ref != 0 && s.Base(ref) != 0 && s.is(ref, b) {
		return ref, true
	}
	return 0, false
}

// InternOn makes a base with these bytes, which Find finds from then on, and returns the only reference to it. It takes over the
// caller's reference to what the base stands on.
func (s *Store) InternOn(on message.Ref, b []byte) message.Ref {
	ref, dst := s.AllocOn(on, len(b))
	copy(dst, b)
	s.slot(ref).size |= interned
	t := &s.bases
	at, _ := t.place(b)
	t.mu.Lock()
	t.found[at] = ref
	t.mu.Unlock()
	return ref
}

// sparseShare: a scratch file with less than a quarter of its records is sparse.
const sparseShare = 4

// CompactAside copies what was put aside out of sparse scratch files, so that they go: what somebody keeps for months would keep 64
// MiB with it. It finds what bases of n bytes stand on. stop ends it early. One goroutine at a time calls it, and holds no lock.
func (s *Store) CompactAside(n int, stop func() bool) {
	if s.disk.Scratch == nil {
		return
	}
	sparse, current := map[uint32]bool{}, s.disk.Scratch.Current()
	s.rangeSpace(message.InScratch, func(number uint32, live, placed int64) bool {
		if live > 0 && live*sparseShare < placed && number != current {
			sparse[number] = true
		}
		return true
	})
	if len(sparse) == 0 {
		return
	}
	class := s.classOf[(n+slotHead+unit-1)/unit]
	var w Window
	defer w.Free()
	var found []standing
	for number := uint32(1); !stop(); number++ {
		var more bool
		if found, more = s.standing(number, class, sparse, found[:0]); !more {
			return
		}
		for i := range found {
			s.recopy(&found[i], &w)
			s.Release(found[i].base)
		}
	}
}

// standing is a base, with a reference, and what it stands on.
type standing struct{ base, on message.Ref }

// standing appends the bases of a page of the class that stand on records in sparse files. more says whether there is a page of this
// number, or a later one.
func (s *Store) standing(number uint32, class uint8, sparse map[uint32]bool, found []standing) (_ []standing, more bool) {
	c := &s.classes[class]
	c.mu.Lock() // nobody takes slots of the class,
	defer c.mu.Unlock()
	s.mu.Lock() // and no page goes
	defer s.mu.Unlock()
	if number >= s.pages {
		return found, false
	}
	p := s.page(number)
	if p.mem == nil || p.class != class {
		return found, true
	}
	for off := uint32(0); off < p.fresh; off += c.units {
		base := message.Ref(number)<<offsetBits | message.Ref(off)
		on := message.Ref(s.slot(base).at.Load())
		if on.OnDisk() && on.Location().Space() == message.InScratch && sparse[on.Location().Segment()] && s.revive(base) {
			found = append(found, standing{base, on})
		}
	}
	return found, true
}

// recopy lets a base stand on a copy of its record. If that fails, nothing has changed.
func (s *Store) recopy(x *standing, w *Window) {
	b, err := s.Read(x.on, w)
	if err != nil {
		return
	}
	spare := s.PutAside(message.Record(b).Body())
	if spare.OnDisk() && s.slot(x.base).at.CompareAndSwap(uint64(x.on), uint64(spare)) {
		spare = x.on
	}
	s.Release(spare)
}
