// Package deathstore keeps the stored forms of death histories in the store of message
// bytes (internal/run/bodies). It stores the shared part of many histories once: a million
// dead letters of one queue differ only in times and counts. A long detail it puts aside, on
// disk (detail.go). Partitions call it. It owns no state: the store owns the bytes and the
// references. It does not interpret histories; internal/core/deadletter does.
package deathstore

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
)

// Keep copies a stored form into the store and returns the only reference to it.
func Keep(s *bodies.Store, stored []byte) message.Ref {
	var room [512]byte
	shared, own, ok := deadletter.Divide(stored, room[:0:256], room[256:256])
	if ok {
		if base, found := share(s, shared); found {
			return on(s, base, own)
		}
	}
	return alone(s, stored)
}

// share returns a reference to the shared part. At first sight of one ok is false, unless its detail is put aside.
func share(s *bodies.Store, shared []byte) (base message.Ref, ok bool) {
	if len(shared) > mostDetail {
		if text, from, to := deadletter.Detail(shared); len(text) > mostDetail {
			return aside(s, shared, text, from, to), true
		}
	}
	return s.Intern(shared)
}

// alone stores a stored form that shares nothing.
func alone(s *bodies.Store, stored []byte) message.Ref {
	ref, b := s.Alloc(len(stored))
	copy(b, stored)
	return ref
}

// on stores the own part of a history whose shared part is base. It takes over the caller's reference to base.
func on(s *bodies.Store, base message.Ref, own []byte) message.Ref {
	ref, b := s.AllocOn(base, len(own))
	copy(b, own)
	return ref
}

// KeepLike is Keep for a stored form from deadletter.DiedAlike: its last own bytes are its
// own part, and the bytes before them are the shared part of like.
func KeepLike(s *bodies.Store, like message.Ref, stored []byte, own int) message.Ref {
	base := s.Base(like)
	if base == 0 {
		return Keep(s, stored)
	}
	s.Retain(base, 1)
	return on(s, base, stored[len(stored)-own:])
}

// KeepParts is Keep for a shared part, which may be empty, and an own part; see Parts.
func KeepParts(s *bodies.Store, shared, own []byte) message.Ref {
	if len(shared) == 0 {
		return Keep(s, own)
	}
	base, found := share(s, shared)
	if !found {
		return alone(s, deadletter.Unite(nil, shared, own))
	}
	return on(s, base, own)
}

// Parts returns the shared part of ref's history, 0 if it shares nothing, and its own part.
// Both are valid as long as the caller holds ref.
func Parts(s *bodies.Store, ref message.Ref) (shared message.Ref, own []byte) {
	return s.Base(ref), s.Bytes(ref)
}

// Shared returns the whole bytes of a shared part.
func Shared(s *bodies.Store, base message.Ref) []byte { return whole(s, base, true) }

// KeepsTTL says whether the message of the history still has its own TTL: see deadletter.History.KeepsTTL.
func KeepsTTL(s *bodies.Store, ref message.Ref) bool {
	head := s.Base(ref)
	if head == 0 {
		head = ref
	}
	return deadletter.HeadMayKeepTTL(s.Bytes(head)) && deadletter.StoredKeepsTTL(Brief(s, ref))
}

// Sent returns the job that counts what becomes of the message of the history, 0 if none does: see deadletter.HeadSent.
func Sent(s *bodies.Store, ref message.Ref) (job uint64) {
	head := s.Base(ref)
	if head == 0 {
		head = ref
	}
	return deadletter.HeadSent(s.Bytes(head))
}

// Lost is why the last death has put the message of the history into the lost and found, Routed if it has not.
func Lost(s *bodies.Store, ref message.Ref) deadletter.Outcome {
	head := s.Base(ref)
	if head == 0 {
		head = ref
	}
	return deadletter.HeadLost(s.Bytes(head))
}

// Size is the approximate length of the stored form, in bytes.
func Size(s *bodies.Store, ref message.Ref) int {
	if ref == 0 {
		return 0
	}
	size := s.Size(ref)
	if base := s.Base(ref); base != 0 {
		size += s.Size(base)
	}
	return size + detail(s, ref)
}

// Bytes returns the stored form of ref, nil if ref is 0. It is valid as long as the caller
// holds a reference. The caller must not write to it. A detail that was put aside is read from disk.
func Bytes(s *bodies.Store, ref message.Ref) []byte { return read(s, ref, true) }

// Brief is Bytes without a detail that was put aside, so it reads nothing from disk.
func Brief(s *bodies.Store, ref message.Ref) []byte { return read(s, ref, false) }

func read(s *bodies.Store, ref message.Ref, detail bool) []byte {
	if ref == 0 {
		return nil
	}
	own := s.Bytes(ref)
	base := s.Base(ref)
	if base == 0 {
		return own
	}
	shared := whole(s, base, detail)
	return deadletter.Unite(make([]byte, 0, len(shared)+len(own)), shared, own)
}
