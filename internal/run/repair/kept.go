package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/bodyfile"
)

// kept reads the dense files record by record. Whether a queue needs a damaged record is
// known later, when the queues are read.
func (e *examination) kept() error {
	dir := e.fs.PathJoin(e.dir, keepDir)
	files, err := e.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		if !strings.HasSuffix(file, ".keep") {
			continue
		}
		path := e.fs.PathJoin(dir, file)
		offset, err := walkDense(e.fs, path)
		var bad *recordError
		if errors.As(err, &bad) {
			e.found(Damage{File: path, Offset: offset, What: bad.Error(), Harmless: !e.salvaging})
		} else if err != nil {
			return err
		}
	}
	return nil
}

// recordError is the fault of a record.
type recordError struct{ reason error }

func (e *recordError) Error() string { return e.reason.Error() }

// walkDense reads the records of a dense file and returns the offset of the first bad one.
func walkDense(files vfs.FS, path string) (offset int64, err error) {
	bad := int64(-1)
	var reason error
	end, err := eachDense(files, path, func(int64, message.Record) error { return nil }, func(at int64, why error) bool {
		bad, reason = at, &recordError{why}
		return false
	})
	if err == nil && reason != nil {
		return bad, reason
	}
	return end, err
}

// eachDense calls f for each intact record of a dense file and bad for each bad one. If bad returns true, it looks for the
// next record after it. It returns the offset at which it stopped.
func eachDense(files vfs.FS, path string, f func(offset int64, r message.Record) error, bad func(offset int64, why error) (more bool)) (offset int64, err error) {
	file, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	d := denseReader{file: file, path: path, end: info.Size()}
	for offset = bodyfile.FirstRecord; offset < d.end; {
		record, why, err := d.record(offset)
		if err != nil {
			return offset, err
		}
		if why == nil {
			if err := f(offset, record); err != nil {
				return offset, err
			}
			offset += int64(len(record))
			continue
		}
		if !bad(offset, why) {
			return offset, nil
		}
		if offset, err = d.next(offset); err != nil {
			return offset, err
		}
	}
	return offset, nil
}

// denseReader reads a dense file.
type denseReader struct {
	file vfs.File
	path string
	end  int64
	buf  []byte
}

func (d *denseReader) read(offset, n int64) ([]byte, error) {
	d.buf = slices.Grow(d.buf[:0], int(n))[:n]
	if got, err := d.file.ReadAt(d.buf, offset); int64(got) < n {
		return nil, fmt.Errorf("read %s at offset %d: %w", d.path, offset, err)
	}
	return d.buf, nil
}

// record reads the record at an offset. why is the fault of the record; err means that it could not be read.
func (d *denseReader) record(offset int64) (r message.Record, why, err error) {
	b, err := d.read(offset, min(message.RecordHead, d.end-offset))
	if err != nil {
		return nil, nil, err
	}
	size := int64(0)
	if len(b) == message.RecordHead {
		size = int64(message.RecordSize(b))
	}
	if size == 0 || size > d.end-offset {
		return nil, errors.New("the file ends within the record"), nil
	}
	if b, err = d.read(offset, size); err != nil {
		return nil, nil, err
	}
	return b, message.Verify(b), nil
}

// next finds the next record after a bad one, or the end of the file. Bytes count as a record if they have a plausible
// time, lengths that add up and a matching check of 16 bits.
func (d *denseReader) next(bad int64) (int64, error) {
	const step = 1 << 16
	for from := bad + 1; from+message.RecordHead <= d.end; from += step {
		b, err := d.read(from, min(step+message.RecordHead, d.end-from))
		if err != nil {
			return d.end, err
		}
		heads := slices.Clone(b)
		for i := 0; i < step && i+message.RecordHead <= len(heads); i++ {
			head := message.Record(heads[i : i+message.RecordHead])
			at := head.Serial().UnixMilli()
			if at < earliest || at > latest || !head.Sealed() || int64(message.RecordSize(head)) > d.end-from-int64(i) {
				continue
			}
			_, why, err := d.record(from + int64(i))
			if err != nil {
				return d.end, err
			}
			if why == nil {
				return from + int64(i), nil
			}
		}
	}
	return d.end, nil
}

// A plausible time of a publish is between 2020 and 2100, in milliseconds since 1970.
const (
	earliest = 1_577_836_800_000
	latest   = 4_102_444_800_000
)

// fileOf returns the file of a place.
func (e *examination) fileOf(at message.Location) string {
	name := fmt.Sprintf("%010d.seg", at.Segment())
	if at.Space() == message.InKeep {
		return e.fs.PathJoin(e.dir, keepDir, fmt.Sprintf("%010d.keep", at.Segment()))
	}
	path := e.fs.PathJoin(e.dir, journalDir, name)
	if _, err := e.fs.Stat(path); err == nil {
		return path
	}
	kept := e.fs.PathJoin(e.dir, keepDir, name) // the segment is retired
	if _, err := e.fs.Stat(kept); err != nil && e.lacks(journalDir) {
		return path
	}
	return kept
}
