package bodyfile

import (
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/safety/held"
)

// writeBytes is the size of the write buffer.
const writeBytes = 256 << 10

// Writer makes a dense file. One goroutine uses it. Its records may be read and referred
// to after Finish has returned.
type Writer struct {
	keep   *Keep
	number uint32
	path   string
	file   vfs.File
	buf    []byte
	size   int64 // bytes so far, header included
	err    error // the first; final
}

// bytesPerSync is the number of bytes after which the system starts to write them to disk.
const bytesPerSync = 1 << 20

// Create begins a dense file with a new number.
func (k *Keep) Create() (*Writer, error) {
	k.mu.Lock()
	number := k.next
	if number > maxNumber {
		k.mu.Unlock()
		return nil, fmt.Errorf("bodyfile: all %d kept file numbers are used", maxNumber)
	}
	k.next++
	k.mu.Unlock()
	w := &Writer{keep: k, number: number, path: k.path(Dense, number)}
	file, err := k.fs.Create(w.path, writeCategory)
	if err != nil {
		return nil, fmt.Errorf("bodyfile: make %s: %w", w.path, err)
	}
	// One sync of the whole file at its end would delay the journal's syncs.
	w.file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{NoSyncOnClose: true, BytesPerSync: bytesPerSync})
	w.buf = appendHeader(make([]byte, 0, writeBytes), number)
	w.size = headerBytes
	return w, nil
}

// Number is the file's number.
func (w *Writer) Number() uint32 { return w.number }

// Size is how many bytes the file has so far.
func (w *Writer) Size() int64 { return w.size }

// Append adds a record and returns its offset in the file. Errors are final: after one the
// writer can only be aborted.
func (w *Writer) Append(record []byte) (offset uint32, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.size > math.MaxUint32 {
		return 0, fmt.Errorf("bodyfile: %s is full", w.path)
	}
	offset = uint32(w.size)
	w.size += int64(len(record))
	// All bytes go through the buffer, because Write may change the bytes that it gets.
	for len(record) > 0 {
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
		n := min(len(record), cap(w.buf)-len(w.buf))
		w.buf, record = append(w.buf, record[:n]...), record[n:]
	}
	return offset, nil
}

func (w *Writer) flush() error {
	held.Nothing("kept bodies")
	if _, err := w.file.Write(w.buf); err != nil {
		w.err = fmt.Errorf("bodyfile: write %s: %w", w.path, err)
	}
	w.buf = w.buf[:0]
	return w.err
}

// Finish makes the file and its name durable; afterwards the file is only read. If Finish
// fails, nothing may refer to the file. After an ErrSync no file on the disk can be trusted.
func (w *Writer) Finish() error {
	held.Nothing("kept bodies")
	if w.err == nil {
		_ = w.flush()
	}
	w.keep.failpoint(FailFinishWritten)
	if w.err == nil {
		if err := w.file.Sync(); err != nil {
			w.err = fmt.Errorf("bodyfile: sync %s: %w: %w", w.path, ErrSync, err)
		}
	}
	if err := w.close(); w.err == nil && err != nil {
		w.err = err
	}
	w.keep.failpoint(FailFinishSynced)
	if w.err == nil {
		if err := syncDirectory(w.keep.fs, w.keep.dir); err != nil {
			w.err = fmt.Errorf("%w: %w", ErrSync, err)
		}
	}
	err := w.err
	if w.err == nil {
		w.err = errFinished
	}
	return err
}

// ErrSync is among the errors of a Finish that could not sync. Bytes of any file that the
// system counts as written may be lost, and a second sync would not report it.
var ErrSync = errors.New("not durable")

var errFinished = errors.New("bodyfile: the file is finished")

// Abort gives the file up and removes it.
func (w *Writer) Abort() error {
	err := w.close()
	if w.err == nil {
		w.err = errFinished
	}
	return errors.Join(err, w.keep.Drop(Dense, w.number))
}

func (w *Writer) close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return fmt.Errorf("bodyfile: close %s: %w", w.path, err)
	}
	return nil
}
