package bodies

import (
	"errors"
	"io/fs"
	"syscall"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/journal"
)

// Lost says whether an error of Read or Warm means that the record is not there any more
// as it was written: to read it again will not help. All else, such as too many open
// files, may pass.
func Lost(err error) bool {
	var damage *DamageError
	return errors.As(err, &damage) || errors.Is(err, journal.ErrNotHeld) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO)
}

const (
	// rawBlock is what a disk may refuse to read while it still reads what lies beside it.
	rawBlock = 4 << 10
	// rawExtra is how much more a record may have than its body, for Raw to believe what it says.
	rawExtra = 1 << 20
)

// Raw reads what is left of a record that Read has failed on, as it is; what cannot be
// read is zeros. size is what the index knows of it: bytes of the body at least. REQUIRES: the
// caller holds a reference.
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
