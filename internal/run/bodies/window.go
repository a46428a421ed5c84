package bodies

import (
	"slices"
	"sync"

	"bartleby.mq/internal/core/message"
)

const (
	// windowBytes is how much a window reads at once when it is read in order.
	windowBytes = 128 << 10
	// Where it is not, it reads about two records, as far as the last one tells: too
	// little costs a second read, and too much the copying.
	firstAhead = 1 << 10 // there was none
	leastAhead = 1 << 8
	mostAhead  = 1 << 12
)

// Window is what a reader of records on disk reads through. Records that lie near
// each other come with one read. The zero value is ready; it takes its memory when
// it first needs it, and Free gives that back. It is used by one goroutine at a time.
type Window struct {
	buf   *[windowBytes]byte
	at    message.Location // of the first byte of buf
	n     int              // bytes of it that are there
	ahead int              // how much to read next
	last  int              // the size of the last record
	long  []byte           // a record that is larger than buf
}

var windowBuffers = sync.Pool{New: func() any { return new([windowBytes]byte) }}

// Free gives the window's memory back, and with it what was read. The window can be
// used again.
func (w *Window) Free() {
	if w.buf != nil {
		windowBuffers.Put(w.buf)
	}
	*w = Window{}
}

// have returns what the window holds from at on.
func (w *Window) have(at message.Location) []byte {
	if w.n == 0 || at < w.at || at >= w.at+message.Location(w.n) {
		return nil
	}
	return w.buf[at-w.at : w.n]
}

// follows says whether at lies where somebody who reads forwards comes next.
func (w *Window) follows(at message.Location) bool {
	switch {
	case w.n == 0 || at.Space() != w.at.Space():
		return false
	case at.Segment() == w.at.Segment():
		return at >= w.at && at-w.at <= message.Location(w.n+windowBytes)
	}
	return at.Segment() == w.at.Segment()+1
}

// fill reads from at on: further each time if reads go forwards, so that a long
// run takes few reads and a single record no more than it must. At least n bytes.
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
	w.n = 0 // if it fails, there is nothing
	got, err := s.readAt(at, w.buf[:max(n, w.ahead)])
	if err != nil {
		return nil, err
	}
	w.at, w.n = at, got
	return w.buf[:got], nil
}

// readLong reads a record that is larger than the window, whose beginning is b. The
// head that says so is not checked yet: memory is taken as bytes arrive.
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

// Read returns the record that ref names, in memory or on disk. The bytes are valid
// until the next Read with the window, or as long as the caller holds the
// reference, whichever ends first. A record on disk that is not what was written is a
// *DamageError. It may wait for the disk: not to be called with a partition locked.
// REQUIRES: the caller holds a reference.
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
