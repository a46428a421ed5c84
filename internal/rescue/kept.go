package rescue

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/bodyfile"
	"bartleby.mq/internal/message"
)

// kept reads the dense files record by record. Whether a queue needs what is
// damaged there is found when the queues are read.
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
			e.found(Damage{File: path, Offset: offset, What: bad.Error(), Harmless: true})
		} else if err != nil {
			return err
		}
	}
	return nil
}

// recordError says what is wrong with a record.
type recordError struct{ reason error }

func (e *recordError) Error() string { return e.reason.Error() }

// walkDense reads the records of a dense file and returns where the first bad one is.
func walkDense(files vfs.FS, path string) (offset int64, err error) {
	f, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	var record []byte
	for offset = bodyfile.FirstRecord; offset < end; offset += int64(len(record)) {
		record = append(record[:0], make([]byte, min(message.RecordHead, end-offset))...)
		if n, err := f.ReadAt(record, offset); n < len(record) {
			return offset, fmt.Errorf("read %s at offset %d: %w", path, offset, err)
		}
		size := int64(0)
		if len(record) == message.RecordHead {
			size = int64(message.RecordSize(record))
		}
		if size == 0 || size > end-offset {
			return offset, &recordError{errors.New("the file ends within the record")}
		}
		record = append(record, make([]byte, size-int64(len(record)))...)
		if n, err := f.ReadAt(record, offset); n < len(record) {
			return offset, fmt.Errorf("read %s at offset %d: %w", path, offset, err)
		}
		if err := message.Verify(record); err != nil {
			return offset, &recordError{err}
		}
	}
	return offset, nil
}

// fileOf is the file that a place lies in.
func (e *examination) fileOf(at message.Location) string {
	name := fmt.Sprintf("%010d.seg", at.Segment())
	if at.Space() == message.InKeep {
		return e.fs.PathJoin(e.dir, keepDir, fmt.Sprintf("%010d.keep", at.Segment()))
	}
	path := e.fs.PathJoin(e.dir, journalDir, name)
	if _, err := e.fs.Stat(path); err == nil {
		return path
	}
	kept := e.fs.PathJoin(e.dir, keepDir, name) // it has been retired
	if _, err := e.fs.Stat(kept); err != nil && e.lacks(journalDir) {
		return path
	}
	return kept
}
