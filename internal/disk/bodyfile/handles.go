package bodyfile

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxOpen is how many files one directory keeps open for reading, beside those that it gave up while they were read.
const maxOpen = 64

// handles are the open files of a directory. A file is opened when it is read.
type handles struct {
	fs   vfs.FS
	path func(kind Kind, number uint32) string

	mu     sync.Mutex // guards what follows
	open   *simplelru.LRU[fileKey, *handle]
	idle   vfs.File // what open has just given up and nobody reads; to be closed
	closed bool
}

func newHandles(fs vfs.FS, path func(kind Kind, number uint32) string) *handles {
	h := &handles{fs: fs, path: path}
	h.open, _ = simplelru.NewLRU(maxOpen, func(_ fileKey, f *handle) { // fails only for a size below 1
		f.gone = true
		h.idle = f.idle()
	})
	return h
}

// fileKey names a file without building its path for each read.
type fileKey struct {
	kind   Kind
	number uint32
}

type handle struct {
	file    vfs.File
	readers int
	gone    bool // out of open: the last reader closes file
}

var errClosed = errors.New("bodyfile: closed")

// readAt reads up to len(dst) bytes of a file from off on.
func (h *handles) readAt(key fileKey, dst []byte, off int64) (int, error) {
	f, err := h.use(key)
	if err != nil {
		return 0, err
	}
	n, err := f.file.ReadAt(dst, off)
	h.done(f)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("bodyfile: read %s at offset %d: %w", h.path(key.kind, key.number), off, err)
	}
	return n, nil
}

func (h *handles) use(key fileKey) (*handle, error) {
	var idle vfs.File
	defer func() { shut(idle) }() // when nothing is locked
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed
	}
	f, ok := h.open.Get(key)
	if !ok {
		path := h.path(key.kind, key.number)
		file, err := h.fs.Open(path)
		if err != nil {
			return nil, fmt.Errorf("bodyfile: open %s: %w", path, err)
		}
		f = &handle{file: file}
		h.open.Add(key, f)
		idle = h.takeIdle()
	}
	f.readers++
	return f, nil
}

func (h *handles) done(f *handle) {
	h.mu.Lock()
	f.readers--
	idle := f.idle()
	h.mu.Unlock()
	shut(idle)
}

// idle returns the file if it must be closed.
func (f *handle) idle() vfs.File {
	if f.gone && f.readers == 0 {
		return f.file
	}
	return nil
}

// shut closes a file, if there is one. Closing a removed file takes as long as freeing its
// disk space, so no lock may be held.
func shut(file vfs.File) {
	if file != nil {
		_ = file.Close()
	}
}

// takeIdle returns the file to be closed for the one that open has given up, if any. REQUIRES: h.mu.
func (h *handles) takeIdle() vfs.File {
	idle := h.idle
	h.idle = nil
	return idle
}

// forget closes a removed file after its last reader.
func (h *handles) forget(key fileKey) {
	h.mu.Lock()
	h.open.Remove(key)
	idle := h.takeIdle()
	h.mu.Unlock()
	shut(idle)
}

// close closes all files; a file that is being read is closed by its last reader.
func (h *handles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for h.open.Len() > 0 {
		h.open.RemoveOldest()
		shut(h.takeIdle())
	}
}
