package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/datadir"
)

// Directories below a data directory.
const (
	journalDir  = datadir.JournalDir
	stateLogDir = datadir.StateLogDir
	stateDir    = datadir.StateDir
	indexDir    = datadir.IndexDir
	keepDir     = datadir.KeepDir

	examinationDir = "examination" // the tree of an examination; removed after it, and before the next
	quarantineDir  = "quarantine"
)

// tree makes a second data directory of links to files that never change, and of copies of
// the others.
type tree struct {
	fs       vfs.FS
	from, to string
}

// newTree makes the tree of an examination, empty.
func newTree(files vfs.FS, dir string) (*tree, error) {
	t := &tree{fs: files, from: dir, to: files.PathJoin(dir, examinationDir)}
	if err := t.remove(); err != nil {
		return t, err
	}
	return t, files.MkdirAll(t.to, 0o700)
}

func (t *tree) remove() error { return t.fs.RemoveAll(t.to) }

// add adds the files of a directory: copies of those for which changes is true, links to
// the others. It leaves out files for which skip is true.
func (t *tree) add(name string, changes, skip func(file string) bool) error {
	from, to := t.fs.PathJoin(t.from, name), t.fs.PathJoin(t.to, name)
	files, err := t.fs.List(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = t.fs.MkdirAll(to, 0o700)
	}
	for i := 0; err == nil && i < len(files); i++ {
		file := files[i]
		was, is := t.fs.PathJoin(from, file), t.fs.PathJoin(to, file)
		switch {
		case skip(file):
		case changes(file):
			err = vfs.Copy(t.fs, was, is)
		default:
			err = vfs.LinkOrCopy(t.fs, was, is)
		}
	}
	if err != nil {
		return fmt.Errorf("examination of %s: %w", from, err)
	}
	return nil
}

// addStore adds a directory of Pebble. It links tables, which never change.
func (t *tree) addStore(name string) error {
	return t.add(name, func(file string) bool { return !strings.HasSuffix(file, ".sst") }, func(file string) bool { return file == "LOCK" })
}

// addLog adds the directory of a journal. It copies the segments that may change: all from
// the one before the first hole on, and the newest, whose end a start writes again.
func (t *tree) addLog(name string, in *journal.Inspection) error {
	first := in.End.Segment()
	for i := range in.Holes {
		first = min(first, in.Holes[i].Segment)
	}
	return t.add(name, func(file string) bool { return segmentOf(file)+1 >= first }, func(file string) bool { return strings.HasSuffix(file, ".free") })
}

// segmentOf is the number in a segment's name, the largest number if there is none.
func segmentOf(file string) uint32 {
	n, err := strconv.ParseUint(strings.TrimSuffix(file, ".seg"), 10, 32)
	if err != nil {
		return 1<<32 - 2
	}
	return uint32(n)
}

func never(string) bool { return false }
