package journal

import (
	"fmt"
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

// takeOldest takes the oldest segment out if its number is below before and it is
// not the newest, else it returns nil. read reports whether somebody still reads it.
func (t *table) takeOldest(before uint32) (s *segment, read bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) < 2 || t.live[0].number >= before {
		return nil, false
	}
	s, t.live = t.live[0], t.live[1:]
	s.gone = true
	t.closeGone(s)
	return s, s.readers > 0
}

// putBack undoes takeOldest.
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

// DropBefore frees the segments with a number below seg, oldest first, each
// durably before the next, so that a crash never leaves a hole. Their files are
// kept for new segments, up to Options.KeepRecycled, or removed. The newest segment on
// disk always stays: its number is the log's memory of how far numbers are used.
//
// The caller must have no use for their frames any more; a ReadAt under way still
// gets the old bytes. A file that cannot be renamed or removed is an error, and its
// segment stays; a directory that cannot be synced is final, as a failed Commit.
func (j *Journal) DropBefore(seg uint32) error {
	for {
		more, final, err := j.dropOldest(seg)
		if final {
			j.fail(err)
		}
		if err != nil || !more {
			return err
		}
	}
}

// dropOldest frees one segment. more is false when there is none to free.
func (j *Journal) dropOldest(before uint32) (more, final bool, err error) {
	j.dirMu.Lock()
	defer j.dirMu.Unlock()
	s, read := j.segments.takeOldest(before)
	if s == nil {
		return false, false, nil
	}
	j.opts.Failpoint(FailDropBeforeRemove)
	// A file somebody reads is removed, not recycled: it keeps its bytes until closed.
	recycle := s.recyclable && !read && len(j.free) < j.opts.KeepRecycled
	fs, name := j.opts.FS, freeName(s.number)
	if recycle {
		err = fs.Rename(s.path, fs.PathJoin(j.opts.Dir, name))
	} else {
		err = fs.Remove(s.path)
	}
	if err != nil {
		j.segments.putBack(s)
		return false, false, fmt.Errorf("journal: free %s: %w", s.path, err)
	}
	if err := j.dir.Sync(); err != nil {
		return false, true, fmt.Errorf("journal: sync directory %s: %w", j.opts.Dir, err)
	}
	if recycle && !slices.Contains(j.free, name) {
		j.free = append(j.free, name)
	}
	return true, false, nil
}
