package journal

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// write puts the frames of b into their segments' files, rolling where a span
// begins a new one. Only the leader calls it.
func (j *Journal) write(b *batch) error {
	if len(b.buf) == 0 {
		return nil
	}
	j.opts.Failpoint(FailBeforeWrite)
	for i := range b.spans {
		s, part := &b.spans[i], b.part(i)
		if s.key.segment != j.out.number {
			if err := j.roll(&s.tail); err != nil {
				return err
			}
		}
		j.out.dirty = true
		if _, err := j.out.file.WriteAt(part, s.offset); err != nil {
			return fmt.Errorf("journal: write %s at offset %d: %w", segmentName(j.out.number), s.offset, err)
		}
		j.segments.grown(s.offset + int64(len(part)))
	}
	j.opts.Failpoint(FailAfterWrite)
	return nil
}

// sync makes what was written durable. Segments before the one at hand are durable
// since it was begun.
func (j *Journal) sync() error {
	if !j.out.dirty {
		return nil
	}
	if err := j.out.file.SyncData(); err != nil {
		return fmt.Errorf("journal: sync %s: %w", segmentName(j.out.number), err)
	}
	j.out.dirty = false
	j.opts.Failpoint(FailAfterSync)
	return nil
}

// roll begins the segment of t. The order is what recovery rests on: the frames of
// the old segment are durable before the header that bounds them is written, the
// file's name before its header, the header before the note that the log has reached the
// segment, and the note before any frame: a file without header never held one, and the
// file of a segment that held one is missed when it is lost.
func (j *Journal) roll(t *tail) error {
	if err := j.sync(); err != nil {
		return err
	}
	s, err := j.makeFile(t.key.segment)
	if err != nil {
		return err
	}
	j.opts.Failpoint(FailRollBeforeHeader)
	h := header{segment: t.key.segment, epoch: t.key.epoch, prevEnd: t.prevEnd}
	if _, err := s.file.WriteAt(h.encode(), 0); err != nil {
		_ = s.file.Close()
		return fmt.Errorf("journal: write header of %s: %w", s.path, err)
	}
	if err := s.file.Sync(); err != nil {
		_ = s.file.Close()
		return fmt.Errorf("journal: sync header of %s: %w", s.path, err)
	}
	j.opts.Failpoint(FailRollAfterHeader)
	if err := writeEnd(j.opts.FS, j.opts.Dir, MakePos(s.number, headerBytes)); err != nil {
		_ = s.file.Close()
		return fmt.Errorf("journal: note the beginning of %s: %w", s.path, err)
	}
	j.segments.add(s)
	j.out.file, j.out.number = s.file, s.number
	return nil
}

// makeFile makes the file of a segment, of a recycled one if there is any, and
// makes its name durable.
func (j *Journal) makeFile(number uint32) (*segment, error) {
	j.dirMu.Lock()
	defer j.dirMu.Unlock()
	fs, path := j.opts.FS, j.opts.FS.PathJoin(j.opts.Dir, segmentName(number))
	recycled := len(j.free) > 0
	if recycled {
		old := fs.PathJoin(j.opts.Dir, j.free[len(j.free)-1])
		j.opts.Failpoint(FailRecycleBeforeRename)
		if err := fs.Rename(old, path); err != nil {
			return nil, fmt.Errorf("journal: rename %s to %s: %w", old, path, err)
		}
		j.free = j.free[:len(j.free)-1]
	}
	f, err := fs.OpenReadWrite(path, writeCategory)
	if err != nil {
		return nil, fmt.Errorf("journal: make %s: %w", path, err)
	}
	if !recycled && (!j.short.Load() || j.opts.Prefill) {
		// Not every file system can; a full disk shows when it is written to.
		_ = f.Preallocate(0, j.opts.SegmentBytes)
		if j.opts.Prefill {
			if err := prefill(f, j.opts.SegmentBytes); err != nil {
				_ = f.Close()
				return nil, fmt.Errorf("journal: make %s: %w", path, err)
			}
		}
	}
	if err := j.syncDir(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &segment{number: number, path: path, end: headerBytes, recyclable: true, file: f}, nil
}

// prefill writes n zeros, durably; a page at a time, since a system that caches
// large writes as large pieces counts a whole piece for each frame written into it.
func prefill(f vfs.File, n int64) error {
	zeros := make([]byte, min(n, 4096))
	for at := int64(0); at < n; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), n-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}
