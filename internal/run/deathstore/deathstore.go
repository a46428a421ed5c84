// Package deathstore keeps the stored forms of death histories among the bytes of
// messages (internal/run/bodies), what many have in common once: a million dead letters of
// one queue differ in times and counts. It owns no state; the bytes, their
// references and what is shared are the store's. It knows nothing of what a history
// means (internal/core/deadletter).
package deathstore

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
)

// Keep puts a stored form into the store and returns the one reference to it. The
// bytes are not kept.
func Keep(s *bodies.Store, stored []byte) message.Ref {
	var room [512]byte
	shared, own, ok := deadletter.Divide(stored, room[:0:256], room[256:256])
	if ok {
		if base, found := s.Intern(shared); found {
			return on(s, base, own)
		}
	}
	return alone(s, stored)
}

// alone puts bytes into the store that have nothing in common with others.
func alone(s *bodies.Store, stored []byte) message.Ref {
	ref, b := s.Alloc(len(stored))
	copy(b, stored)
	return ref
}

// on is the same for the own bytes of what has the others in base, a reference to which passes to it.
func on(s *bodies.Store, base message.Ref, own []byte) message.Ref {
	ref, b := s.AllocOn(base, len(own))
	copy(b, own)
	return ref
}

// KeepLike is Keep for a stored form whose last own bytes are its own, and the others
// those that like has in common with others (deadletter.DiedAlike).
func KeepLike(s *bodies.Store, like message.Ref, stored []byte, own int) message.Ref {
	base := s.Base(like)
	if base == 0 {
		return Keep(s, stored)
	}
	s.Retain(base, 1)
	return on(s, base, stored[len(stored)-own:])
}

// KeepParts is Keep for the bytes that Parts told of, in common with others, none if
// nothing was, and its own.
func KeepParts(s *bodies.Store, shared, own []byte) message.Ref {
	if len(shared) == 0 {
		return Keep(s, own)
	}
	base, found := s.Intern(shared)
	if !found {
		return alone(s, deadletter.Unite(nil, shared, own))
	}
	return on(s, base, own)
}

// Parts are what ref's history has in common with others, 0 if nothing is shared, and
// the bytes of its own. They are valid as long as the caller holds ref.
func Parts(s *bodies.Store, ref message.Ref) (shared message.Ref, own []byte) {
	return s.Base(ref), s.Bytes(ref)
}

// Size is about how many bytes the stored form has.
func Size(s *bodies.Store, ref message.Ref) int {
	if ref == 0 {
		return 0
	}
	size := s.Size(ref)
	if base := s.Base(ref); base != 0 {
		size += s.Size(base)
	}
	return size
}

// Bytes is the stored form that ref refers to, nil if ref is 0. It is valid as long
// as the caller holds a reference, and not to be written to.
func Bytes(s *bodies.Store, ref message.Ref) []byte {
	if ref == 0 {
		return nil
	}
	own := s.Bytes(ref)
	base := s.Base(ref)
	if base == 0 {
		return own
	}
	shared := s.Bytes(base)
	return deadletter.Unite(make([]byte, 0, len(shared)+len(own)), shared, own)
}
