package bodies

import (
	"errors"
	"syscall"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/safety/held"
)

// Bytes that are needed seldom are put aside: they lie in a scratch file from the beginning. A base may stand on such bytes, and
// on other bases, as an allocation stands on a base: it holds a reference to what it stands on.

// PutAside keeps bytes on disk and returns the only reference to them. While they cannot be written, as on a full disk, or where
// there are no scratch files, they are in memory; ReadAside reads both.
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

// ReadAside returns the n bytes that PutAside was given. The caller must not write to them; they are valid as long as it holds a
// reference. It may be called while a partition is held: the file is written into the system's memory, as pages of the index are.
// A damaged record is a *DamageError. REQUIRES: the caller holds a reference.
func (s *Store) ReadAside(ref message.Ref, n int) ([]byte, error) {
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
