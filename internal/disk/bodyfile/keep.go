package bodyfile

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Kind is the origin of a kept file.
type Kind uint8

// The kinds. Each has its own numbers.
const (
	Retired Kind = iota // a segment that the journal moved here, under its number
	Dense               // a file that a Writer made
)

// suffixes of the files of a Keep, by kind. The first is the journal's own.
var suffixes = [...]string{Retired: ".seg", Dense: ".keep"}

// File is a file of a Keep.
type File struct {
	Kind   Kind
	Number uint32
	Bytes  int64 // its size
}

// Keep is the directory of records that outlived their segment of the journal.
// Its methods may be called from any goroutine.
type Keep struct {
	fs        vfs.FS
	dir       string
	handles   *handles
	failpoint func(name string)

	mu   sync.Mutex
	next uint32 // number of the next dense file
}

// OpenKeep opens the directory, or makes it. It removes no file: the caller calls Retain
// when it knows which files are needed. It fails on I/O errors and on dense files of an
// unknown format. failpoint, which may be nil, is called at the steps in Failpoints.
func OpenKeep(fs vfs.FS, dir string, failpoint func(name string)) (*Keep, error) {
	if err := makeDirectory(fs, dir); err != nil {
		return nil, err
	}
	if failpoint == nil {
		failpoint = func(string) {}
	}
	k := &Keep{fs: fs, dir: dir, failpoint: failpoint, next: 1}
	k.handles = newHandles(fs, k.path)
	files, err := k.List()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Kind != Dense {
			continue
		}
		k.next = max(k.next, f.Number+1)
		head := make([]byte, headerBytes)
		n, err := k.ReadAt(Dense, f.Number, head, 0)
		if err != nil {
			return nil, err
		}
		if _, err := checkHeader(head[:n], f.Number); err != nil {
			return nil, fmt.Errorf("bodyfile: %s: %w", k.path(Dense, f.Number), err)
		}
	}
	return k, nil
}

func (k *Keep) path(kind Kind, number uint32) string {
	return k.fs.PathJoin(k.dir, fileName(number, suffixes[kind]))
}

// Name is the file's name in its directory.
func (f File) Name() string { return fileName(f.Number, suffixes[f.Kind]) }

// List lists the files in the directory, by kind and number. It includes segments that the
// journal has just moved here, and files of writers that have not finished.
func (k *Keep) List() ([]File, error) { return Files(k.fs, k.dir) }

// Files lists the files of the Keep in a directory, by kind and number. The Keep need not be open.
func Files(fs vfs.FS, dir string) ([]File, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("bodyfile: list %s: %w", dir, err)
	}
	slices.Sort(names)
	var files []File
	for kind := range Kind(len(suffixes)) {
		for _, name := range names {
			number, ok := parseName(name, suffixes[kind])
			if !ok {
				continue
			}
			info, err := fs.Stat(fs.PathJoin(dir, name))
			if err != nil {
				return nil, fmt.Errorf("bodyfile: stat %s: %w", name, err)
			}
			files = append(files, File{kind, number, info.Size()})
		}
	}
	return files, nil
}

// Retain removes the files that are not needed. It is called at start, before any file is
// written.
func (k *Keep) Retain(needed func(File) bool) error {
	files, err := k.List()
	if err != nil {
		return err
	}
	for _, f := range files {
		if needed(f) {
			continue
		}
		if err := k.Drop(f.Kind, f.Number); err != nil {
			return err
		}
	}
	return nil
}

// ReadAt reads a file from off on into dst and returns the number of bytes: fewer than
// len(dst) at the end of the file.
func (k *Keep) ReadAt(kind Kind, number uint32, dst []byte, off int64) (int, error) {
	return k.handles.readAt(fileKey{kind, number}, dst, off)
}

// Drop removes a file. Reads that have begun still get its bytes. A crash may bring the
// file back; Retain then removes it.
func (k *Keep) Drop(kind Kind, number uint32) error {
	path := k.path(kind, number)
	err := remove(k.fs, path)
	k.handles.forget(fileKey{kind, number})
	return err
}

// Close closes the files. It does not close Writers.
func (k *Keep) Close() { k.handles.close() }
