package bodyfile

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const scratchSuffix = ".scratch"

// defaultScratchBytes is the size at which a scratch file is full.
const defaultScratchBytes = 64 << 20

// Scratch is the directory of records that are on disk only to save memory. Its files are
// never synced, and OpenScratch deletes them. Its methods may be called from any goroutine.
//
// Records are appended to one file at a time. The owner removes a full file with Drop when
// it needs none of its records.
type Scratch struct {
	fs      vfs.FS
	dir     string
	limit   int64
	handles *handles

	mu      sync.Mutex // guards what follows
	number  uint32     // of the file appended to; 0 before the first
	file    vfs.File
	flushed int64  // bytes that are written to the file
	buf     []byte // the bytes after them
	closed  bool
}

// OpenScratch makes the directory, or empties it. limit is the size in bytes at which a
// file is full; 0 means 64 MiB.
func OpenScratch(fs vfs.FS, dir string, limit int64) (*Scratch, error) {
	if err := makeDirectory(fs, dir); err != nil {
		return nil, err
	}
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("bodyfile: list %s: %w", dir, err)
	}
	for _, name := range names {
		if _, ok := parseName(name, scratchSuffix); !ok {
			continue
		}
		if err := remove(fs, fs.PathJoin(dir, name)); err != nil {
			return nil, err
		}
	}
	if limit == 0 {
		limit = defaultScratchBytes
	}
	s := &Scratch{fs: fs, dir: dir, limit: limit}
	s.handles = newHandles(fs, func(_ Kind, number uint32) string { return s.path(number) })
	return s, nil
}

func (s *Scratch) path(number uint32) string {
	return s.fs.PathJoin(s.dir, fileName(number, scratchSuffix))
}

// Append adds a record and returns its file and its offset. After a failure, for example
// on a full disk, nothing has changed, and a later call may succeed.
func (s *Scratch) Append(record []byte) (number, offset uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0, errClosed
	}
	if s.number == 0 || s.flushed+int64(len(s.buf)) >= s.limit {
		if err := s.roll(); err != nil {
			return 0, 0, err
		}
	}
	if len(s.buf) > 0 && len(s.buf)+len(record) > writeBytes {
		if err := s.flush(); err != nil {
			return 0, 0, err
		}
	}
	offset = uint32(s.flushed) + uint32(len(s.buf))
	s.buf = append(s.buf, record...)
	return s.number, offset, nil
}

// roll begins another file. REQUIRES: s.mu.
func (s *Scratch) roll() error {
	if err := s.flush(); err != nil {
		return err
	}
	if s.number == maxNumber {
		return fmt.Errorf("bodyfile: all %d scratch file numbers are used", maxNumber)
	}
	path := s.path(s.number + 1)
	f, err := s.fs.OpenReadWrite(path, writeCategory)
	if err != nil {
		return fmt.Errorf("bodyfile: make %s: %w", path, err)
	}
	if s.file != nil {
		_ = s.file.Close() // its bytes need not be durable
	}
	s.file, s.flushed = f, 0
	s.number++
	return nil
}

// flush writes the buffer. REQUIRES: s.mu.
func (s *Scratch) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	if _, err := s.file.WriteAt(s.buf, s.flushed); err != nil {
		return fmt.Errorf("bodyfile: write %s: %w", s.path(s.number), err)
	}
	s.flushed += int64(len(s.buf))
	s.buf = s.buf[:0]
	if cap(s.buf) > 4*writeBytes {
		s.buf = nil
	}
	return nil
}

// Current is the number of the file that Append writes to; 0 before the first.
func (s *Scratch) Current() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number
}

// ReadAt reads a file from off on into dst and returns the number of bytes: the whole
// record at off if dst is long enough.
func (s *Scratch) ReadAt(number uint32, dst []byte, off int64) (int, error) {
	s.mu.Lock()
	if number == s.number && off >= s.flushed {
		n := 0
		if at := off - s.flushed; at < int64(len(s.buf)) {
			n = copy(dst, s.buf[at:])
		}
		s.mu.Unlock()
		return n, nil
	}
	s.mu.Unlock()
	// The buffer is written in whole records, so a record that begins in the file ends there.
	return s.handles.readAt(fileKey{number: number}, dst, off)
}

// Drop removes a file that is full. Reads that have begun still get its bytes.
func (s *Scratch) Drop(number uint32) error {
	if number == s.Current() {
		return fmt.Errorf("bodyfile: %s is being appended to", s.path(number))
	}
	path := s.path(number)
	err := remove(s.fs, path)
	s.handles.forget(fileKey{number: number})
	return err
}

// Close closes the files. The next OpenScratch deletes them.
func (s *Scratch) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles.close()
	s.closed = true
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
