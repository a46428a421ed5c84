package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// These functions change a stopped node's journal where it is damaged, because an
// operator has said so. Each may be repeated after a crash.

// Fill puts one frame into a hole, so that what is behind it can be read again. Its
// payload begins with head, and the rest of it is what lay there: records in it that are
// intact can still be read by their place. An empty head, or a hole too small for
// it, makes a mark, which nobody is told of.
func Fill(fs vfs.FS, dir string, h *Hole, head []byte) error {
	if h.Proof {
		if err := noteEnd(fs, dir); err != nil {
			return fmt.Errorf("journal: note the end of %s: %w", dir, err)
		}
		return nil
	}
	path := fs.PathJoin(dir, segmentName(h.Segment))
	key := h.key
	var f vfs.File
	var err error
	if h.Header {
		if f, key, err = newHeader(fs, path, h); err == nil {
			err = SyncDirectory(fs, dir)
		}
	} else {
		f, err = fs.OpenReadWrite(path, writeCategory)
	}
	if err != nil {
		return fmt.Errorf("journal: fill %s: %w", path, err)
	}
	if err = fill(f, key, h, head); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: fill %s at offset %d: %w", path, h.From, err)
	}
	return nil
}

// newHeader gives a segment a header, and its file if that is missing.
func newHeader(fs vfs.FS, path string, h *Hole) (vfs.File, frameKey, error) {
	f, err := fs.OpenReadWrite(path, writeCategory)
	if err != nil {
		return nil, frameKey{}, err
	}
	head := header{segment: h.Segment, epoch: newEpoch(), prevEnd: h.prevEnd}
	if head.prevEnd.Segment() != h.Segment-1 {
		head.prevEnd = MakePos(h.Segment-1, headerBytes) // the first there is
	}
	b := head.encode()
	b = append(b, make([]byte, frameHeaderBytes)...) // room for a frame: a shorter file counts as never used
	if h.To > h.From {
		b = b[:headerBytes]
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return nil, frameKey{}, errors.Join(err, f.Close())
	}
	return f, head.key(), nil
}

func fill(f vfs.File, key frameKey, h *Hole, head []byte) error {
	n := h.To - h.From
	switch {
	case n == 0:
		return nil
	case n < frameHeaderBytes:
		return fmt.Errorf("%d bytes are not room enough for a frame", n)
	case n > MaxPayload:
		return fmt.Errorf("%d bytes are more than a frame has", n)
	}
	kind := kindPayload
	if len(head) == 0 || n < frameHeaderBytes+int64(len(head)) {
		kind, head = kindMark, nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, n) // at most what a frame has, and a segment
	if there := min(n, info.Size()-h.From); there > 0 {
		if _, err := f.ReadAt(b[:there], h.From); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	key.put(b, h.From, kind, 0, head, b[frameHeaderBytes+len(head):])
	_, err = f.WriteAt(b, h.From)
	return err
}

// Cut ends the journal where the hole begins: the segments behind it are removed,
// newest first, and what follows in its own is overwritten. Nothing of it can be
// had back.
func Cut(fs vfs.FS, dir string, h *Hole) error {
	d, err := readDirectory(fs, dir)
	if err != nil {
		return err
	}
	for i := len(d.segments) - 1; i >= 0; i-- {
		s := &d.segments[i]
		switch {
		case s.number > h.Segment || s.number == h.Segment && h.Header:
			err = fs.Remove(s.path)
		case s.number == h.Segment:
			err = erase(fs, s.path, h.From)
		case s.number == h.Segment-1 && h.Header:
			err = erase(fs, s.path, max(h.prevEnd.Offset(), headerBytes))
		}
		if err == nil && s.number >= h.Segment {
			err = SyncDirectory(fs, dir)
		}
		if err != nil {
			return fmt.Errorf("journal: cut at %s: %w", h.Pos(), err)
		}
	}
	// Last: until then it tells that the log is cut short.
	if err := noteEnd(fs, dir); err != nil {
		return fmt.Errorf("journal: cut at %s: %w", h.Pos(), err)
	}
	return nil
}

// erase overwrites what a file holds from an offset on.
func erase(fs vfs.FS, path string, from int64) (err error) {
	f, err := fs.OpenReadWrite(path, writeCategory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// From the end to the beginning: a crash leaves the damage to be found again.
	const step = 1 << 20
	for end := info.Size(); end > from; {
		n := min(step, end-from)
		zeros := make([]byte, n) // vfs may change the bytes it is given
		if _, err := f.WriteAt(zeros, end-n); err != nil {
			return err
		}
		end -= n
	}
	return f.Sync()
}

// WriteSynced makes a file with the text, which is on disk when it returns; its name is not yet.
func WriteSynced(fs vfs.FS, path string, text []byte) error {
	f, err := fs.Create(path, writeCategory)
	if err != nil {
		return err
	}
	if _, err = f.Write(slices.Clone(text)); err == nil { // vfs may change the bytes it is given
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Replace gives the file of that name the text, whole or not at all, whatever crashes meanwhile.
func Replace(fs vfs.FS, path string, text []byte) error {
	err := WriteSynced(fs, path+".new", text)
	if err == nil {
		err = fs.Rename(path+".new", path)
	}
	if err == nil {
		err = SyncDirectory(fs, fs.PathDir(path))
	}
	return err
}

// SyncDirectory makes the names in a directory durable.
func SyncDirectory(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
