package bodies

import (
	"bytes"
	"hash/maphash"
	"sync"

	"bartleby.mq/internal/core/message"
)

// Many small allocations may have most of their bytes in common. These are kept
// once, as a base, and each of the others names its base and holds what is its own.
//
// The upper bits of a slot's size tell what it is. A slot that is on a base has
// the base's Ref where others have their location on disk.
const (
	onBase   = 1 << 31
	interned = 1 << 30 // a base that Intern finds
	sizeMask = interned - 1
)

// bases is where Intern looks: a place for each hash, so that its size is fixed. A
// base is there until another takes its place, or until it is gone.
type bases struct {
	mu    sync.Mutex
	seed  maphash.Seed
	found [1 << 12]message.Ref
	seen  [1 << 12]uint32 // other bits of the hash of what was asked for last
}

// Intern returns a new reference to an allocation with these bytes which others
// share. It makes one only when asked for the second time, so that what is never
// shared is not kept apart: else ok is false.
func (s *Store) Intern(b []byte) (ref message.Ref, ok bool) {
	t := &s.bases
	h := maphash.Bytes(t.seed, b)
	at, mark := h%uint64(len(t.found)), uint32(h>>32)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ref = t.found[at]; ref != 0 && bytes.Equal(s.Bytes(ref), b) && s.revive(ref) {
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

// revive adds a reference unless the last one has been given up.
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

// forget is called before a base goes.
func (s *Store) forget(ref message.Ref) {
	t := &s.bases
	at := maphash.Bytes(t.seed, s.Bytes(ref)) % uint64(len(t.found))
	t.mu.Lock()
	if t.found[at] == ref {
		t.found[at] = 0
	}
	t.mu.Unlock()
}

// AllocOn is Alloc for what has more bytes in common with others, in base. The
// reference to base passes to it. What it returns has no location on disk.
func (s *Store) AllocOn(base message.Ref, n int) (message.Ref, []byte) {
	ref, own := s.Alloc(n)
	h := s.slot(ref)
	h.size |= onBase
	h.at.Store(uint64(base))
	return ref, own
}

// Base is what ref was allocated on, 0 if on nothing. The reference is not the caller's.
func (s *Store) Base(ref message.Ref) message.Ref {
	if h := s.slot(ref); h.size&onBase != 0 {
		return message.Ref(h.at.Load())
	}
	return 0
}
