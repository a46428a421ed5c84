package bodies

import (
	"errors"
	"io/fs"
	"syscall"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/journal"
)

// Lost says whether an error of Read or Warm means that the record is damaged or gone, so
// that reading it again will not help. Other errors, such as too many open files, may be
// temporary.
func Lost(err error) bool {
	var damage *DamageError
	return errors.As(err, &damage) || errors.Is(err, journal.ErrNotHeld) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO)
}

const (
	// rawBlock is the size of a block that a disk may fail to read while it reads its neighbours.
	rawBlock = 4 << 10
	// rawExtra is how much longer than its body a record may claim to be for Raw to believe it.
	rawExtra = 1 << 20
)

// Raw returns what is left of a record that Read has failed on, with zeros for unreadable
// blocks. size is the size in the index, at least the size of the body. REQUIRES: the caller
// holds a reference.
func (s *Store) Raw(ref message.Ref, size int) []byte {
	if !ref.OnDisk() {
		return append([]byte(nil), s.Bytes(ref)...)
	}
	at := ref.Location()
	want := size + rawBlock
	var head [message.RecordHead]byte
	if n, err := s.readAt(at, head[:]); err == nil && n == len(head) {
		if says := message.RecordSize(head[:]); says >= size && says-size <= rawExtra {
			want = says
		}
	}
	b := make([]byte, want)
	if n, err := s.readAt(at, b); err == nil {
		return b[:n]
	}
	end := 0
	for from := 0; from < want; from += rawBlock {
		to := min(from+rawBlock, want)
		if n, err := s.readAt(at+message.Location(from), b[from:to]); err == nil {
			end = from + n
		}
	}
	return b[:end]
}
