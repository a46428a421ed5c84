package bodyfile

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const scratchSuffix = ".scratch"

// defaultScratchBytes is the size from which a scratch file is not added to.
const defaultScratchBytes = 64 << 20

// Scratch is the directory of records that are on disk only to save memory.
// Nothing in it is ever synced, and opening it discards what is there. Its methods
// may be called from any goroutine.
//
// Records are appended to one file at a time. A file that is not appended to any
// more is removed by Drop, once its owner has no use for it.
type Scratch struct {
	fs      vfs.FS
	dir     string
	limit   int64
	handles *handles

	mu      sync.Mutex // guards what follows
	number  uint32     // of the file appended to; 0 before the first
	file    vfs.File
	flushed int64  // bytes of it that are in the file
	buf     []byte // what follows them
	closed  bool
}

// OpenScratch makes the directory, or empties it. limit is the size in bytes from
// which a file is not added to; 0 is 64 MiB.
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

// Append adds a record and says in which file it is, and at which offset. A failure, such
// as of a full disk, leaves everything as it was; a later call may succeed.
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
		_ = s.file.Close() // nothing in it is asked to be durable
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

// Current is the number of the file that is appended to; 0 before the first.
func (s *Scratch) Current() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number
}

// ReadAt reads what a file holds from off on into dst and returns how many bytes
// that is: all of the record at off, if dst is long enough.
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
	// Records leave the buffer whole, so one that begins in the file ends there.
	return s.handles.readAt(fileKey{number: number}, dst, off)
}

// Drop removes a file that is not appended to any more. Whoever is reading it still
// gets its bytes.
func (s *Scratch) Drop(number uint32) error {
	if number == s.Current() {
		return fmt.Errorf("bodyfile: %s is being appended to", s.path(number))
	}
	path := s.path(number)
	err := remove(s.fs, path)
	s.handles.forget(fileKey{number: number})
	return err
}

// Close closes the files. What is in them is discarded by the next OpenScratch.
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
