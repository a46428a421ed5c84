package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"bartleby.mq/internal/safety/held"
)

// ReadAt reads n bytes that begin at pos, a position inside a frame's payload,
// into dst, which is grown if it is too small, and returns them. They come from
// the buffer if they are not yet written. They are not checked: a record that is
// read on its own carries its own checksum.
//
// It fails with ErrNotHeld where the journal does not have all n bytes, with
// ErrClosed, or with the disk's error.
func (j *Journal) ReadAt(pos Pos, n int, dst []byte) ([]byte, error) {
	if n < 0 {
		return nil, fmt.Errorf("journal: read of %d bytes", n)
	}
	if n == 0 {
		return dst[:0], nil
	}
	if got, ok := j.readBuffered(pos, n, dst); ok {
		return got, nil
	}
	held.Nothing("a file of the journal")
	// Not in the buffer: then it is in a file, wholly. Frames leave the buffer only
	// after they were written.
	s, end, err := j.segments.use(pos.Segment())
	if err != nil {
		return nil, fmt.Errorf("journal: read %d bytes at %s: %w", n, pos, err)
	}
	defer j.segments.done(s)
	if pos.Offset() < headerBytes || pos.Offset()+int64(n) > end {
		return nil, fmt.Errorf("journal: read %d bytes at %s: %w", n, pos, ErrNotHeld)
	}
	dst = slices.Grow(dst[:0], n)[:n]
	if got, err := s.file.ReadAt(dst, pos.Offset()); got < n {
		return nil, fmt.Errorf("journal: read %s at offset %d: %w", s.path, pos.Offset(), err)
	}
	return dst, nil
}

// readBuffered serves ReadAt from the frames that are not in a file yet.
func (j *Journal) readBuffered(pos Pos, n int, dst []byte) (got []byte, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range [...]*batch{&j.active, &j.writing} {
		if part := b.find(pos); len(part) >= n {
			return append(dst[:0], part[:n]...), true
		}
	}
	return nil, false
}

// ReadSome reads what the journal holds from pos on into dst, at most to the end of
// pos's segment, and returns how many bytes that is: all of the frame that pos lies
// in, if dst is long enough. Otherwise it is as ReadAt.
func (j *Journal) ReadSome(pos Pos, dst []byte) (int, error) {
	if n, ok := j.copyBuffered(pos, dst); ok {
		return n, nil
	}
	held.Nothing("a file of the journal")
	s, end, err := j.segments.use(pos.Segment())
	if err != nil {
		return 0, err // as it is: who reads bodies meets ErrNotHeld at each that was retired
	}
	defer j.segments.done(s)
	if pos.Offset() < headerBytes || pos.Offset() >= end {
		return 0, ErrNotHeld
	}
	dst = dst[:min(int64(len(dst)), end-pos.Offset())]
	got, err := s.file.ReadAt(dst, pos.Offset())
	if got < len(dst) && !errors.Is(err, io.EOF) {
		return got, fmt.Errorf("journal: read %s at offset %d: %w", s.path, pos.Offset(), err)
	}
	return got, nil
}

// copyBuffered serves ReadSome from the frames that are not in a file yet.
func (j *Journal) copyBuffered(pos Pos, dst []byte) (n int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range [...]*batch{&j.active, &j.writing} {
		if part := b.find(pos); len(part) > 0 {
			return copy(dst, part), true
		}
	}
	return 0, false
}
