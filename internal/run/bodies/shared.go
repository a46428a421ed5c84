package bodies

import (
	"bytes"
	"hash/maphash"
	"sync"

	"bartleby.mq/internal/core/message"
)

// Many small allocations may have most of their bytes in common. The common bytes are kept
// once, as a base. Each allocation on a base holds one reference to the base and its own
// bytes:
//
//	base          interned | references: the holders, and each allocation on it; onBase too if it stands on another (InternOn)
//	allocation    onBase   | at: the base's Ref, where other slots have their location
const (
	onBase   = 1 << 31
	interned = 1 << 30 // a base that Intern finds
	sizeMask = interned - 1
)

// bases is the table of Intern. It has one entry for each hash value, so its size is fixed.
// A base stays there until another base replaces it, or until its last reference is gone.
type bases struct {
	mu    sync.Mutex
	seed  maphash.Seed
	found [1 << 12]message.Ref
	seen  [1 << 12]uint32 // other bits of the hash of the last request
}

// Intern returns a new reference to a base with these bytes. It makes a base only at the
// second request for the same bytes, so that bytes that are never shared get no base; at the
// first request ok is false.
func (s *Store) Intern(b []byte) (ref message.Ref, ok bool) {
	t := &s.bases
	at, mark := t.place(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ref = t.found[at]; ref != 0 && s.Base(ref) == 0 && s.is(ref, b) {
		return ref, true
	}
	if t.seen[at] != mark {
		t.seen[at] = mark
		return 0, false
	}
	ref, dst := s.Alloc(len(b))
	copy(dst, b)
	s.slot(ref).size |= interned
	t.found[at] = ref
	return ref, true
}

// place is where the table has a base with these bytes, and other bits of their hash.
func (t *bases) place(b []byte) (at uint64, mark uint32) {
	h := maphash.Bytes(t.seed, b)
	return h % uint64(len(t.found)), uint32(h >> 32)
}

// is says whether a base has these bytes, and adds a reference then. REQUIRES: s.bases.mu.
func (s *Store) is(ref message.Ref, b []byte) bool {
	return bytes.Equal(s.Bytes(ref), b) && s.revive(ref)
}

// revive adds a reference unless the last one is gone.
func (s *Store) revive(ref message.Ref) bool {
	h := s.slot(ref)
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// forget removes a base from the table before its memory is freed.
func (s *Store) forget(ref message.Ref) {
	t := &s.bases
	at, _ := t.place(s.Bytes(ref))
	t.mu.Lock()
	if t.found[at] == ref {
		t.found[at] = 0
	}
	t.mu.Unlock()
}

// AllocOn is Alloc on a base. It takes over the caller's reference to base. The allocation
// has no location on disk.
func (s *Store) AllocOn(base message.Ref, n int) (message.Ref, []byte) {
	ref, own := s.Alloc(n)
	h := s.slot(ref)
	h.size |= onBase
	h.at.Store(uint64(base))
	return ref, own
}

// Base returns the base of ref, 0 if it has none. The caller gets no reference to it.
func (s *Store) Base(ref message.Ref) message.Ref {
	if h := s.slot(ref); h.size&onBase != 0 {
		return message.Ref(h.at.Load())
	}
	return 0
}
