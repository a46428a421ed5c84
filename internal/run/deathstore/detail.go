package deathstore

import (
	"crypto/sha256"
	"encoding/binary"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
)

// What a consumer says of a failure may be 64 KiB long, and another each time. So a detail of more than mostDetail bytes is not in
// memory: it lies in a scratch file, once for all histories that have it. This is how a history is kept, and no more: its stored
// form, which frames, commands and pages have, is whole, so nothing here outlives the process.
//
//	own part ─► shared part, a mark in place of the detail ─► mark ─► record in a scratch file
//
// An arrow is a reference from an allocation to its base (bodies.InternOn). The mark is of the detail's bytes alone, so a history
// that takes the detail of another along, as at a death after a note, finds it there.
const mostDetail = 1 << 10

// lostDetail takes the place of a detail that cannot be read from disk. The message and the rest of its history matter more.
const lostDetail = "(The detail was lost: it could not be read back from disk.)"

// A mark is the SHA-256 of a detail and its length. It begins with a byte that no text has.
const (
	markFirst = 0xff
	markSize  = 1 + sha256.Size + 4
)

func markOf(text []byte) (mark [markSize]byte) {
	mark[0] = markFirst
	sum := sha256.Sum256(text)
	copy(mark[1:], sum[:])
	binary.LittleEndian.PutUint32(mark[1+sha256.Size:], uint32(len(text)))
	return mark
}

// aside returns a reference to a shared part whose detail is put aside: see deadletter.Detail.
func aside(s *bodies.Store, shared, text []byte, from, to int) message.Ref {
	mark := markOf(text)
	small := deadletter.TakeDetail(make([]byte, 0, len(shared)-len(text)+2*markSize), shared, from, to, mark[:])
	if base, ok := s.Find(small); ok {
		return base
	}
	marked, ok := s.Find(mark[:])
	if !ok {
		marked = s.InternOn(s.PutAside(text), mark[:])
	}
	return s.InternOn(marked, small)
}

// whole returns the bytes of a shared part, with its detail or with an empty one if that was put aside.
func whole(s *bodies.Store, base message.Ref, detail bool) []byte {
	shared, marked := s.Bytes(base), s.Base(base)
	if marked == 0 {
		return shared
	}
	mark := s.Bytes(marked)
	var text []byte
	if detail {
		var err error
		if text, err = s.ReadAside(marked, detailSize(mark)); err != nil {
			text = []byte(lostDetail)
		}
	}
	return deadletter.PutDetail(make([]byte, 0, len(shared)+len(text)), shared, mark, text)
}

func detailSize(mark []byte) int { return int(binary.LittleEndian.Uint32(mark[1+sha256.Size:])) }

// detail is how many bytes of the history are put aside.
func detail(s *bodies.Store, ref message.Ref) int {
	if ref == 0 {
		return 0
	}
	base := s.Base(ref)
	if base == 0 {
		return 0
	}
	marked := s.Base(base)
	if marked == 0 {
		return 0
	}
	return detailSize(s.Bytes(marked))
}

// Compact gives back the disk space of details that nobody has any more: see bodies.Store.CompactAside.
func Compact(s *bodies.Store, stop func() bool) { s.CompactAside(markSize, stop) }
