package bodyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/safety/held"
)

// Aside is the directory of damaged data that the node cannot use and does not throw away.
// Each file has a line that says what it is and why it is there, followed by the bytes as
// they were found on disk. Its name begins with its kind: "message-". Only an operator
// removes files. The methods may be called from any goroutine.
type Aside struct {
	fs  vfs.FS
	dir string
}

// unfinished is the end of the name of a file that is being written.
const unfinished = ".unfinished"

// maxNote is the maximal length of a file's first line.
const maxNote = 64 << 10

// NewAside returns the directory. Put makes it with the first file.
func NewAside(files vfs.FS, dir string) *Aside { return &Aside{files, dir} }

// Dir is the path of the directory.
func (a *Aside) Dir() string { return a.dir }

// Put stores data under a name, with a note of one line. When it returns nil, both are on
// disk. It replaces a file of that name: after a crash the caller puts it there again.
func (a *Aside) Put(name string, note, data []byte) error {
	held.Nothing("what is set aside")
	if err := makeDirectory(a.fs, a.dir); err != nil {
		return err
	}
	path := a.fs.PathJoin(a.dir, name)
	f, err := a.fs.Create(path+unfinished, writeCategory)
	if err != nil {
		return fmt.Errorf("bodyfile: make %s: %w", path, err)
	}
	// Write may change the bytes, so pass copies.
	if _, err = f.Write(append(slices.Clone(note), '\n')); err == nil {
		_, err = f.Write(slices.Clone(data))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = a.fs.Rename(path+unfinished, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("bodyfile: write %s: %w", path, err), remove(a.fs, path+unfinished))
	}
	return syncDirectory(a.fs, a.dir)
}

// PutAside describes a file in the directory.
type PutAside struct {
	Name  string
	Note  []byte // its line
	Bytes int64  // number of bytes after the line
}

// Count is the number of files, 0 if the directory cannot be read.
func (a *Aside) Count() int {
	names, _ := a.names()
	return len(names)
}

// List reads the notes of at most limit files, by name; 0 means all.
func (a *Aside) List(limit int) (list []PutAside, err error) {
	names, err := a.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if limit > 0 && len(list) == limit {
			break
		}
		one, err := a.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // an operator has just removed it
		}
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

func (a *Aside) names() ([]string, error) {
	names, err := a.fs.List(a.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bodyfile: list %s: %w", a.dir, err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, unfinished) }), nil
}

func (a *Aside) read(name string) (one PutAside, err error) {
	path := a.fs.PathJoin(a.dir, name)
	f, err := a.fs.Open(path)
	if err != nil {
		return one, fmt.Errorf("bodyfile: open %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return one, fmt.Errorf("bodyfile: stat %s: %w", path, err)
	}
	one = PutAside{Name: name, Bytes: info.Size()}
	note, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err != nil {
		return one, fmt.Errorf("bodyfile: read %s: %w", path, err)
	}
	if line, _, ok := bytes.Cut(note, []byte{'\n'}); ok {
		one.Note = line
		one.Bytes -= int64(len(line)) + 1
	}
	return one, nil
}
