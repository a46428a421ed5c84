package bodies

import (
	"slices"
	"sync"

	"bartleby.mq/internal/core/message"
)

const (
	// windowBytes is how much a window reads at once if records are read in order.
	windowBytes = 128 << 10
	// Otherwise it reads about two records of the last record's size: too little costs a
	// second read, too much costs copying.
	firstAhead = 1 << 10 // without a last record
	leastAhead = 1 << 8
	mostAhead  = 1 << 12
)

// Window is a read buffer for records on disk. One read returns records that are close to
// each other. The zero value is ready; it gets its memory at the first read, and Free gives
// it back. One goroutine at a time uses it.
type Window struct {
	buf   *[windowBytes]byte
	at    message.Location // of the first byte of buf
	n     int              // valid bytes in buf
	ahead int              // how much to read next
	last  int              // the size of the last record
	long  []byte           // a record that is larger than buf
}

var windowBuffers = sync.Pool{New: func() any { return new([windowBytes]byte) }}

// Free gives the window's memory back. The window can be used again.
func (w *Window) Free() {
	if w.buf != nil {
		windowBuffers.Put(w.buf)
	}
	*w = Window{}
}

// have returns the window's bytes from at on.
func (w *Window) have(at message.Location) []byte {
	if w.n == 0 || at < w.at || at >= w.at+message.Location(w.n) {
		return nil
	}
	return w.buf[at-w.at : w.n]
}

// follows says whether a sequential reader would come to at next.
func (w *Window) follows(at message.Location) bool {
	switch {
	case w.n == 0 || at.Space() != w.at.Space():
		return false
	case at.Segment() == w.at.Segment():
		return at >= w.at && at-w.at <= message.Location(w.n+windowBytes)
	}
	return at.Segment() == w.at.Segment()+1
}

// fill reads at least n bytes from at on. It doubles the amount while reads are sequential,
// so that a long run takes few reads and a single record is not read too far.
func (w *Window) fill(s *Store, at message.Location, n int) ([]byte, error) {
	if w.buf == nil {
		w.buf = windowBuffers.Get().(*[windowBytes]byte)
	}
	if w.follows(at) {
		w.ahead = min(2*w.ahead, windowBytes)
	} else {
		w.ahead = firstAhead
		if w.last > 0 {
			w.ahead = min(max(2*w.last, leastAhead), mostAhead)
		}
	}
	w.n = 0 // if the read fails, the window is empty
	got, err := s.readAt(at, w.buf[:max(n, w.ahead)])
	if err != nil {
		return nil, err
	}
	w.at, w.n = at, got
	return w.buf[:got], nil
}

// readLong reads a record that is larger than the window and begins with b. The size comes
// from a head that is not verified yet, so memory grows only as bytes arrive.
func (w *Window) readLong(s *Store, at message.Location, size int, b []byte) ([]byte, error) {
	long := slices.Clone(b)
	for len(long) < size {
		have := len(long)
		want := min(size, max(2*have, windowBytes))
		long = slices.Grow(long, want-have)[:want]
		n, err := s.readAt(at+message.Location(have), long[have:])
		if err != nil {
			return nil, err
		}
		if n < want-have {
			return nil, &DamageError{at, "the file ends within it"}
		}
	}
	w.long = long
	return long, nil
}

// Read returns the record of ref, from memory or disk. The bytes are valid until the next
// Read with the window, or as long as the caller holds the reference, whichever ends first.
// A damaged record on disk is a *DamageError. Read may wait for the disk. REQUIRES: the
// caller holds a reference and no lock of a partition.
func (s *Store) Read(ref message.Ref, w *Window) ([]byte, error) {
	if !ref.OnDisk() {
		return s.Bytes(ref), nil
	}
	w.long = nil
	at := ref.Location()
	b := w.have(at)
	var err error
	if len(b) < message.RecordHead {
		if b, err = w.fill(s, at, message.RecordHead); err != nil {
			return nil, err
		}
		if len(b) < message.RecordHead {
			return nil, &DamageError{at, "the file ends within its head"}
		}
	}
	size := message.RecordSize(b)
	w.last = size
	if len(b) < size {
		if b, err = w.fill(s, at, min(size, windowBytes)); err != nil {
			return nil, err
		}
		if len(b) < min(size, windowBytes) {
			return nil, &DamageError{at, "the file ends within it"}
		}
	}
	if len(b) < size {
		if b, err = w.readLong(s, at, size, b); err != nil {
			return nil, err
		}
	}
	b = b[:size:size]
	if err := message.Verify(b); err != nil {
		return nil, &DamageError{at, err.Error()}
	}
	return b, nil
}
