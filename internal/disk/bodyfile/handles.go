package bodyfile

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxOpen is how many files one directory keeps open for reading, beside those
// being read.
const maxOpen = 64

// handles are the open files of a directory, opened when they are read.
type handles struct {
	fs   vfs.FS
	path func(kind Kind, number uint32) string

	mu     sync.Mutex
	open   map[fileKey]*handle
	closed bool
}

// fileKey names a file: what is read a million times is not asked for by its path.
type fileKey struct {
	kind   Kind
	number uint32
}

type handle struct {
	file    vfs.File
	readers int
	gone    bool // out of the map: the last reader closes file
}

var errClosed = errors.New("bodyfile: closed")

// readAt reads what the file holds from off on, up to len(dst) bytes.
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
	f := h.open[key]
	if f == nil {
		path := h.path(key.kind, key.number)
		file, err := h.fs.Open(path)
		if err != nil {
			return nil, fmt.Errorf("bodyfile: open %s: %w", path, err)
		}
		idle = h.evict()
		f = &handle{file: file}
		if h.open == nil {
			h.open = map[fileKey]*handle{}
		}
		h.open[key] = f
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

// idle returns the file if it is to be closed.
func (f *handle) idle() vfs.File {
	if f.gone && f.readers == 0 {
		return f.file
	}
	return nil
}

// shut closes a file, if there is one. To close one that was removed takes as long as
// it takes to give back its place on disk, so nothing is locked meanwhile.
func shut(file vfs.File) {
	if file != nil {
		_ = file.Close()
	}
}

// evict gives up an idle file if too many are open: any, since which one is needed
// next is up to clients. It returns what is to be closed. REQUIRES: h.mu.
func (h *handles) evict() vfs.File {
	if len(h.open) < maxOpen {
		return nil
	}
	for key, f := range h.open {
		if f.readers == 0 {
			return h.drop(key, f)
		}
	}
	return nil
}

// drop gives up a file and returns what is to be closed now. REQUIRES: h.mu.
func (h *handles) drop(key fileKey, f *handle) vfs.File {
	delete(h.open, key)
	f.gone = true
	return f.idle()
}

// forget closes a file that is removed, when its last reader is done.
func (h *handles) forget(key fileKey) {
	var idle vfs.File
	h.mu.Lock()
	if f := h.open[key]; f != nil {
		idle = h.drop(key, f)
	}
	h.mu.Unlock()
	shut(idle)
}

// close closes all files, those being read when their readers are done.
func (h *handles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for key, f := range h.open {
		shut(h.drop(key, f))
	}
}
