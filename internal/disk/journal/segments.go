package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxIdleFiles bounds the files kept open for reading.
const maxIdleFiles = 128

// SegmentInfo describes a segment that is on disk.
type SegmentInfo struct {
	Number uint32
	Bytes  int64 // used, header included
}

// segment is one that is on disk, its header durable.
type segment struct {
	number     uint32
	path       string
	end        int64    // of the bytes written
	file       vfs.File // nil until read; of the newest, the leader writes to it
	readers    int      // using file now
	recyclable bool
	moving     bool // its file may have another name already
	gone       bool // out of the table; the last reader closes file
}

// table holds the segments on disk, oldest first. Positions and buffers are none of
// its business.
type table struct {
	fs     vfs.FS
	mu     sync.Mutex
	live   []*segment
	files  int // open ones
	closed bool
}

// add appends the newest segment.
func (t *table) add(s *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = append(t.live, s)
	if s.file != nil {
		t.files++
	}
}

// grown notes how far the newest segment is written.
func (t *table) grown(end int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[len(t.live)-1].end = end
}

// use returns the segment of that number with its file open, and how far it is
// written. done must follow.
func (t *table) use(number uint32) (s *segment, end int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, 0, ErrClosed
	}
	i := sort.Search(len(t.live), func(i int) bool { return t.live[i].number >= number })
	if i == len(t.live) || t.live[i].number != number {
		return nil, 0, ErrNotHeld
	}
	s = t.live[i]
	if s.file == nil {
		f, err := t.fs.Open(s.path)
		if s.moving && errors.Is(err, fs.ErrNotExist) {
			return nil, 0, ErrNotHeld // no longer
		}
		if err != nil {
			return nil, 0, fmt.Errorf("journal: open %s: %w", s.path, err)
		}
		s.file = f
		t.files++
		t.evict(s)
	}
	s.readers++
	return s, s.end, nil
}

// evict closes an idle file if too many are open, of the oldest segment that has
// one. The newest belongs to the leader and used is about to be read.
func (t *table) evict(used *segment) {
	if t.files <= maxIdleFiles {
		return
	}
	for _, s := range t.live[:len(t.live)-1] {
		if s != used && s.file != nil && s.readers == 0 {
			_ = s.file.Close()
			s.file = nil
			t.files--
			return
		}
	}
}

// done ends a use.
func (t *table) done(s *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.readers--
	t.closeGone(s)
}

// closeGone closes the file of a segment that left the table, when the last reader has.
func (t *table) closeGone(s *segment) {
	if s.gone && s.readers == 0 && s.file != nil {
		_ = s.file.Close()
		s.file = nil
		t.files--
	}
}

// oldest returns the oldest segment if its number is below before and it is not
// the newest, else nil. Only whoever holds dirMu takes it out.
func (t *table) oldest(before uint32) *segment {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) < 2 || t.live[0].number >= before {
		return nil
	}
	return t.live[0]
}

// takeOldest takes the oldest segment out; read reports whether somebody still
// reads it. REQUIRES: t.mu.
func (t *table) takeOldest() (read bool) {
	s := t.live[0]
	t.live = t.live[1:]
	s.gone = true
	t.closeGone(s)
	return s.readers > 0
}

// removeOldest takes the oldest segment out, so that nobody begins to read it. ok
// is false if the table was closed meanwhile.
func (t *table) removeOldest() (read, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, false
	}
	return t.takeOldest(), true
}

// moveOldest takes the oldest segment out once move has moved its file: whoever
// does not find it here any more finds it there. A file system may take its time to
// move a file: others read meanwhile. REQUIRES: dirMu.
func (t *table) moveOldest(move func(s *segment) error) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	s := t.live[0]
	s.moving = true
	t.mu.Unlock()
	err := move(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		s.moving = false
		return err
	case t.closed:
		return ErrClosed
	}
	t.takeOldest()
	return nil
}

// putBack undoes removeOldest.
func (t *table) putBack(s *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		s.gone = false
		t.live = slices.Insert(t.live, 0, s)
	}
}

// close closes all files, those being read when their readers are done.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, s := range t.live {
		s.gone = true
		t.closeGone(s)
	}
	t.live = nil
}

// Segments lists the segments on disk, oldest first.
func (j *Journal) Segments() []SegmentInfo {
	j.segments.mu.Lock()
	defer j.segments.mu.Unlock()
	infos := make([]SegmentInfo, len(j.segments.live))
	for i, s := range j.segments.live {
		infos[i] = SegmentInfo{Number: s.number, Bytes: s.end}
	}
	return infos
}
