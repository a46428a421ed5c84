package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Retire gives up the segments with a number below before, oldest first, each
// durably before the next, so that a crash never leaves a hole. A segment of
// which live says that nothing in it is needed is freed: its file is kept for new
// segments, up to Options.KeepRecycled, or removed. Any other is moved to
// Options.KeepDir under its number and is a file of bytes from then on, which the
// journal knows nothing of; without a KeepDir it stays, and those behind it too. The
// newest segment on disk always stays: its number is the log's memory of how far
// numbers are used.
//
// The caller must have no use for their frames any more: a checkpoint that ends at
// or behind the start of segment before is durable, and live goes by what is in it. A
// nil live means that nothing is needed. live must not call the journal. A ReadAt under
// way still gets the old bytes. A file that cannot be moved or removed is an error, and
// its segment stays; a directory that cannot be synced is final, as a failed Commit.
func (j *Journal) Retire(before uint32, live func(segment uint32) bool) error {
	for {
		more, final, err := j.retireOldest(before, live)
		if final {
			j.fail(err)
		}
		if err != nil || !more {
			return err
		}
	}
}

// retireOldest retires one segment. more is false when there is none to retire,
// final is true if err is.
func (j *Journal) retireOldest(before uint32, live func(segment uint32) bool) (more, final bool, err error) {
	j.dirMu.Lock()
	defer j.dirMu.Unlock()
	s := j.segments.oldest(before)
	if s == nil {
		return false, false, nil
	}
	if live == nil || !live(s.number) {
		final, err = j.freeOldest(s)
		return err == nil, final, err
	}
	if j.keep == nil {
		return false, false, nil
	}
	final, err = j.keepOldest()
	return err == nil, final, err
}

// keepOldest moves the file of the oldest segment to the other directory. Its new
// name is durable before the old one is gone; a crash in between may leave both,
// and then the journal's counts. REQUIRES: dirMu.
func (j *Journal) keepOldest() (final bool, err error) {
	j.opts.Failpoint(FailRetireBefore)
	err = j.segments.moveOldest(func(s *segment) error {
		to := j.opts.FS.PathJoin(j.opts.KeepDir, segmentName(s.number))
		// One that a crash left is the same file, for which rename would do nothing.
		if err := j.opts.FS.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("journal: remove %s: %w", to, err)
		}
		if err := j.opts.FS.Rename(s.path, to); err != nil {
			return fmt.Errorf("journal: move %s to %s: %w", s.path, to, err)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	j.opts.Failpoint(FailRetireMoved)
	if err := j.keep.Sync(); err != nil {
		return true, fmt.Errorf("journal: sync directory %s: %w", j.opts.KeepDir, err)
	}
	j.opts.Failpoint(FailRetireKept)
	err = j.syncDir()
	return err != nil, err
}

// freeOldest recycles or removes the file of s, the oldest segment. REQUIRES: dirMu.
func (j *Journal) freeOldest(s *segment) (final bool, err error) {
	read, ok := j.segments.removeOldest()
	if !ok {
		return false, ErrClosed
	}
	j.opts.Failpoint(FailRetireBefore)
	// A file somebody reads is removed, not recycled: it keeps its bytes until closed.
	recycle := s.recyclable && !read && !j.short.Load() && len(j.free) < j.opts.KeepRecycled
	name := freeName(s.number)
	if recycle {
		err = j.opts.FS.Rename(s.path, j.opts.FS.PathJoin(j.opts.Dir, name))
	} else {
		err = j.opts.FS.Remove(s.path)
	}
	if err != nil {
		j.segments.putBack(s)
		return false, fmt.Errorf("journal: free %s: %w", s.path, err)
	}
	if err := j.syncDir(); err != nil {
		return true, err
	}
	if recycle && !slices.Contains(j.free, name) {
		j.free = append(j.free, name)
	}
	return false, nil
}

// shortSegments is how many segments share the size of one while room is short: the newest
// cannot be given back.
const shortSegments = 8

// ShortOfRoom says whether there is little room on the disk. While there is, the journal holds
// no more of it than its frames need: files of segments that were freed are removed, those
// there are at once, new ones grow as they are written, and a smaller part of a segment's size
// goes into each. What was taken in advance for the segment at hand goes with it: frames
// appended from now on go to the next. An error is of a file that stays.
func (j *Journal) ShortOfRoom(short bool) error {
	j.dirMu.Lock()
	defer j.dirMu.Unlock()
	if j.short.Swap(short) == short || !short {
		return nil
	}
	j.mu.Lock()
	j.fresh = true
	j.mu.Unlock()
	for len(j.free) > 0 {
		path := j.opts.FS.PathJoin(j.opts.Dir, j.free[len(j.free)-1])
		if err := j.opts.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("journal: remove %s: %w", path, err)
		}
		j.free = j.free[:len(j.free)-1]
	}
	// Nothing counts on it: a file that a crash brings back is removed then.
	return j.syncDir()
}

// syncDir makes the names in the journal's directory durable.
func (j *Journal) syncDir() error {
	if err := j.dir.Sync(); err != nil {
		return fmt.Errorf("journal: sync directory %s: %w", j.opts.Dir, err)
	}
	return nil
}
