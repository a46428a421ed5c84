package journal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// replayResult is what reading all frames of a directory found.
type replayResult struct {
	old       []segmentFile // before what was to be read
	valid     []segmentFile
	blank     *segmentFile
	reports   []SegmentReport // one for each of valid
	end       int64           // where the frames of the last segment end
	tornBytes int64           // traces of frames behind end
	syncedTo  Pos             // the highest any frame knew
}

// replay reads the frames of d at and behind from in order into fn, and calls
// between after each segment. Damage comes back as a *DamageError. It changes
// nothing on disk.
func (d *directory) replay(fs vfs.FS, dir string, from Pos, fn func(pos Pos, payload []byte) error, between func()) (r replayResult, err error) {
	old, rest := d.split(from)
	valid, blank, damage := chain(rest)
	if damage == nil {
		damage = d.reaches(from, valid)
	}
	if damage != nil {
		return r, damage
	}
	r.old, r.valid, r.blank, r.syncedTo = old, valid, blank, from
	for i, s := range valid {
		limit, last := s.size, i == len(valid)-1
		if !last {
			limit = valid[i+1].prevEnd.Offset()
		}
		begin, take := int64(0), fn
		switch {
		case s.number == from.Segment():
			begin = from.Offset()
		case s.number < from.Segment(): // only to see where it ends
			take = func(Pos, []byte) error { return nil }
		}
		if err := r.replaySegment(fs, s, begin, limit, last, take); err != nil {
			return r, err
		}
		between()
	}
	got := Pos(0)
	if n := len(valid); n > 0 {
		got = MakePos(valid[n-1].number, r.end)
	}
	if damage := d.short(fs, dir, valid, got); damage != nil {
		return r, damage
	}
	return r, nil
}

// reaches finds the damage that the log, whose segments with a header are valid,
// does not hold the segment that from lies in.
func (d *directory) reaches(from Pos, valid []segmentFile) *DamageError {
	first := from.Segment()
	switch {
	case from == 0, len(valid) > 0 && valid[0].number == first:
		return nil
	case len(valid) > 0 && valid[0].number == first-1 && from.Offset() <= headerBytes:
		return nil // see split
	case len(valid) == 0 && from <= Beginning:
		return nil // what an empty journal begins with
	case len(d.segments) > 0:
		damage := d.segments[0].missing(first)
		damage.Reason = fmt.Sprintf("the file is missing, or empty, and held what was durable up to %s", from)
		return damage
	}
	return &DamageError{Segment: first, File: segmentName(first), Reason: fmt.Sprintf("the journal is empty, and was durable up to %s", from)}
}

func (r *replayResult) replaySegment(fs vfs.FS, s segmentFile, from, limit int64, last bool, fn func(pos Pos, payload []byte) error) error {
	scan, err := openScan(fs, s)
	if err != nil {
		return err
	}
	defer scan.close()
	begin, err := scan.begin(from, limit)
	if err != nil {
		return err
	}
	end, verdict, err := scan.replay(begin, limit, fn)
	if err != nil {
		return err
	}
	if !last && end != limit {
		return &DamageError{Segment: s.number, File: s.path, Offset: end,
			Reason: fmt.Sprintf("no intact frame, though the next segment says there are frames up to offset %d", limit)}
	}
	if last {
		torn, proof, err := scan.tail(end, verdict)
		if err != nil {
			return err
		}
		if proof != 0 {
			return &DamageError{Segment: s.number, File: s.path, Offset: end, Reason: "no intact frame", Proof: proof}
		}
		r.end, r.tornBytes = end, torn
	}
	r.syncedTo = max(r.syncedTo, scan.syncedTo)
	r.reports = append(r.reports, SegmentReport{
		Number: s.number, Bytes: end, Frames: scan.frames, PayloadBytes: scan.payloadBytes,
	})
	return nil
}

// Recover hands every whole frame at from and behind it to fn in the order it was
// appended, and makes the journal ready for Append. It is called once, after Open.
// payload is valid only during the call of fn.
//
// from is Beginning for all that ever was, 0 for all there is, or what Committed said
// once (or the position of a frame committed then): where the caller's checkpoint ends. Segments before it
// are not read; those that are there can be read by ReadAt and are freed by Retire. A
// journal that does not reach from is damaged.
//
// A tail that a crash cut short is logged and left behind: what follows goes to a
// new segment, whose header bounds the old one. All that was handed to fn is
// durable when Recover returns. It fails with *DamageError where bytes once
// durable are not intact, or with fn's error: then nothing on disk has changed. Or
// with the disk's error. After an error the journal can only be closed.
func (j *Journal) Recover(from Pos, fn func(pos Pos, payload []byte) error) error {
	if j.recovered {
		return errors.New("journal: recovered already")
	}
	r, err := j.found.replay(j.opts.FS, j.opts.Dir, from, fn, func() { j.opts.Failpoint(FailRecoverMid) })
	if err != nil {
		return err
	}
	j.opts.Failpoint(FailRecoverMid)
	for _, s := range r.valid {
		if !s.intact {
			j.opts.Logger.Warn("one copy of a segment header is damaged", "file", s.path)
		}
	}
	if r.tornBytes > 0 {
		j.opts.Logger.Warn("dropped a torn tail", "file", r.valid[len(r.valid)-1].path, "offset", r.end, "bytes", r.tornBytes)
	}
	if r.blank != nil {
		j.opts.Logger.Info("removed a segment that a crash left without a header", "file", r.blank.path)
		if err := j.opts.FS.Remove(r.blank.path); err != nil {
			return fmt.Errorf("journal: remove %s: %w", r.blank.path, err)
		}
	}
	var end Pos
	if n := len(r.valid); n > 0 {
		last := r.valid[n-1]
		end = MakePos(last.number, r.end)
		from := resyncFrom(r.syncedTo, last.number)
		if from == headerBytes {
			// Then nothing proves the header either.
			if err := rewriteHeader(j.opts.FS, &last); err != nil {
				return err
			}
		}
		if err := resync(j.opts.FS, last.path, from, r.end); err != nil {
			return err
		}
	}
	if j.found.end == 0 && end != 0 { // a crash came before the first segment was noted
		if err := writeEnd(j.opts.FS, j.opts.Dir, end); err != nil {
			return fmt.Errorf("journal: note the end of %s: %w", j.opts.Dir, err)
		}
	}
	// Also for a process that died between making a file and syncing its name.
	if err := j.syncDir(); err != nil {
		return err
	}
	j.start(&r, end)
	return nil
}

// resyncFrom is the offset in the segment up to which a frame proves durability.
func resyncFrom(syncedTo Pos, segment uint32) int64 {
	if syncedTo.Segment() != segment {
		return headerBytes
	}
	return max(headerBytes, syncedTo.Offset())
}

// rewriteHeader writes a segment's header again, both copies, for resync to make it durable.
// One sector has a copy, so that whatever a crash leaves of it is what was there.
func rewriteHeader(fs vfs.FS, s *segmentFile) error {
	f, err := fs.OpenReadWrite(s.path, writeCategory)
	if err != nil {
		return fmt.Errorf("journal: open %s: %w", s.path, err)
	}
	_, err = f.WriteAt(s.header.encode(), 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: write header of %s: %w", s.path, err)
	}
	return nil
}

// resync makes the bytes of a file between two offsets durable. It writes them again,
// as they are, first: if the process before us stopped on a failed sync, the kernel may
// hold them in its cache, marked clean, without having them on disk, and a sync
// alone would succeed and do nothing.
func resync(fs vfs.FS, path string, from, to int64) (err error) {
	f, err := fs.OpenReadWrite(path, writeCategory)
	if err != nil {
		return fmt.Errorf("journal: open %s: %w", path, err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("journal: close %s: %w", path, cerr)
		}
	}()
	buf := make([]byte, min(windowBytes, max(0, to-from)))
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
		if n, err := f.ReadAt(b, from); n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("journal: read %s at offset %d: %w", path, from, err)
		}
		if _, err := f.WriteAt(b, from); err != nil {
			return fmt.Errorf("journal: write %s at offset %d: %w", path, from, err)
		}
		from += int64(len(b))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("journal: sync %s: %w", path, err)
	}
	return nil
}
