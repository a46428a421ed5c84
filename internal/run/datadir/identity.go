package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/partition"
)

// A data directory is whole or nothing: the journal says what happened since a checkpoint
// that is in the index, whose bodies are in the keep, to queues that are in the state. To
// start without one of them would be to start with some of the messages, and to throw
// the rest away as nobody's. So each of these directories has a file that names the data
// directory it belongs to; a start compares them before it touches anything.
//
// A directory of the same name may still be of another day. A checkpoint has a number, its
// generation, which the state gets before the checkpoint counts: they differ by one at most.

// The directories that a data directory is made of.
const (
	JournalDir  = "journal"
	KeepDir     = "keep" // records that outlived their segment of the journal
	IndexDir    = "index"
	StateDir    = "state"
	StateLogDir = "state-log"
)

// Parts are the directories that make a data directory, by what they are called in it.
var Parts = []string{JournalDir, KeepDir, IndexDir, StateDir, StateLogDir}

// IdentityFile is in each of them.
const IdentityFile = "identity"

// identity is what it says.
type identity struct {
	Directory string `json:"data_directory"` // the same in all parts, and in no other data directory
	Check     string `json:"check"`          // the CRC-32C of Directory, in hex
}

func checkOf(directory string) string {
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(directory), crc32.MakeTable(crc32.Castagnoli)))
}

// mutilated says whether a name is the other one but for a few characters: names are random, and so no two
// directories' are alike. Some bits of it have rotted.
func mutilated(id, other string) bool {
	const few = 4
	n := 0
	for i := range min(len(id), len(other)) {
		if id[i] != other[i] {
			n++
		}
	}
	return len(id) == len(other) && n <= few
}

// maxIdentity is how much of such a file is read.
const maxIdentity = 4 << 10

// generationKey is the key in the state of the generation of the newest checkpoint.
var generationKey = []byte("node/generation")

// IncompleteError says that parts of a data directory are missing, or not its own. Nothing
// was changed.
type IncompleteError struct {
	Dir     string
	Missing []string // parts that are not there, or empty
	Foreign []string // parts that belong to another data directory
	Unnamed []string // parts whose identity has rotted, or is not there: they may well be its own
	// Stale says of parts of the same directory how they differ in age; "" if they do not.
	Stale string
}

// Error names the parts.
func (e *IncompleteError) Error() string {
	var what []string
	for _, p := range e.Missing {
		what = append(what, p+"/ is missing or empty")
	}
	for _, p := range e.Foreign {
		what = append(what, p+"/ belongs to another data directory")
	}
	for _, p := range e.Unnamed {
		what = append(what, p+"/ does not say which data directory it belongs to: its identity is damaged or missing")
	}
	if e.Stale != "" {
		what = append(what, e.Stale)
	}
	return fmt.Sprintf("data directory %s is not whole: %s. Nothing was changed: a start would lose messages. Put back what a copy has left out, or see what a repair can bring back without it",
		e.Dir, strings.Join(what, "; "))
}

// part is one of Parts as it was found.
type part struct {
	name  string
	there bool   // and holds something beside its identity
	named bool   // it has an identity, readable or not
	id    string // "" if it has none, or one that is damaged
}

// readParts looks at the parts of a data directory.
func readParts(files vfs.FS, dir string) (parts []part, err error) {
	for _, name := range Parts {
		p := part{name: name}
		path := files.PathJoin(dir, name)
		names, err := files.List(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("data directory: list %s: %w", path, err)
		}
		p.there = slices.ContainsFunc(names, func(n string) bool { return n != IdentityFile && n != IdentityFile+backupSuffix })
		if p.named = slices.Contains(names, IdentityFile); p.named {
			if p.id, err = readIdentity(files, files.PathJoin(path, IdentityFile)); err != nil {
				return nil, err
			}
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func readIdentity(files vfs.FS, path string) (string, error) {
	f, err := files.Open(path)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxIdentity))
	if err != nil {
		return "", fmt.Errorf("data directory: read %s: %w", path, err)
	}
	var id identity
	// What cannot be read, or has rotted, names no directory.
	if json.Unmarshal(text, &id) != nil || id.Check != checkOf(id.Directory) {
		return "", nil
	}
	return id.Directory, nil
}

// naming is there while Name is at work: what it names was found whole.
const naming = IdentityFile + backupSuffix

// CheckWhole says by an *IncompleteError what a data directory lacks, and changes nothing.
// One that has nothing is whole. named says that its parts say whose they are: those of a
// directory that has nothing need not.
func CheckWhole(files vfs.FS, dir string) (named bool, err error) {
	parts, err := readParts(files, dir)
	if err != nil {
		return false, err
	}
	if _, err := files.Stat(files.PathJoin(dir, naming)); err == nil {
		return false, nil // a crash came before all were named
	}
	e := &IncompleteError{Dir: dir}
	count := map[string]int{}
	anything, all := false, true
	for _, p := range parts {
		anything, all = anything || p.there, all && p.id != ""
		if p.id != "" {
			count[p.id]++
		}
	}
	switch {
	case !anything:
		return false, nil // also where a first start got no further than to name some
	default:
		own := "" // the name that most have
		for id, n := range count {
			if n > count[own] || n == count[own] && id < own {
				own = id
			}
		}
		for _, p := range parts {
			switch {
			case p.id == own && own != "":
			case p.id == "" && !p.there && !p.named:
				e.Missing = append(e.Missing, p.name)
			case p.id == "" || mutilated(p.id, own):
				e.Unnamed = append(e.Unnamed, p.name)
			default:
				e.Foreign = append(e.Foreign, p.name)
			}
		}
	}
	if len(e.Missing)+len(e.Foreign)+len(e.Unnamed) > 0 {
		return false, e
	}
	return all, nil
}

// Name gives all parts of a data directory, which are made if they are not there, one name that no
// other has: from now on they belong together.
func Name(files vfs.FS, dir string) error {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	name := hex.EncodeToString(random[:])
	text, err := json.Marshal(identity{name, checkOf(name)})
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := journal.WriteSynced(files, files.PathJoin(dir, naming), text); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := journal.SyncDirectory(files, dir); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, name := range Parts {
		path := files.PathJoin(dir, name)
		if err := files.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		file := files.PathJoin(path, IdentityFile)
		if err := journal.WriteSynced(files, file+backupSuffix, text); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := files.Rename(file+backupSuffix, file); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := journal.SyncDirectory(files, path); err != nil {
			return err
		}
	}
	if err := journal.SyncDirectory(files, dir); err != nil {
		return err
	}
	if err := files.Remove(files.PathJoin(dir, naming)); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return journal.SyncDirectory(files, dir)
}

// checkGeneration compares the age of the index with that of the state. REQUIRES: both
// are open, and nothing was written to them.
func (d *Directory) checkGeneration() error {
	value, ok, err := d.State.Get(nil, generationKey)
	if err != nil || !ok {
		return err // the copy of a backup or of a repair, whose age nobody noted
	}
	state, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return fmt.Errorf("data directory: generation %q of state/: %w", value, err)
	}
	index, err := partition.Generation(d.Index)
	if err != nil {
		return err
	}
	e := &IncompleteError{Dir: d.Dir}
	switch {
	case index > state:
		e.Stale = fmt.Sprintf("state/ is older than index/ (generation %d and %d)", state, index)
	case index+1 < state:
		e.Stale = fmt.Sprintf("index/ is older than state/ (generation %d and %d)", index, state)
	default:
		return nil
	}
	return e
}

// SetGeneration notes the generation of the checkpoint that is about to count.
func (d *Directory) SetGeneration(generation uint64) error {
	return d.State.Apply(mutation.All([]mutation.Change{{Key: generationKey, Value: strconv.AppendUint(nil, generation, 10)}}), true)
}

// startedKey is the key in the state that says that the node has had its first start.
var startedKey = []byte("node/started")

// Started says whether the node has had its first start.
func (d *Directory) Started() (bool, error) {
	_, ok, err := d.State.Get(nil, startedKey)
	return ok, err
}

// SetStarted notes that it has had it, for ever.
func (d *Directory) SetStarted() error {
	return d.State.Apply(mutation.All([]mutation.Change{started}), true)
}

var started = mutation.Change{Key: startedKey, Value: []byte("yes")}

// Repaired notes that a directory was repaired. It has had its first start, even if no declaration is left. If it lacked
// parts, the next start takes the state as being as old as the index, because an operator has said so.
func Repaired(files vfs.FS, dir string, incomplete bool) error {
	s, err := store.Open(files, filepath.Join(dir, StateDir), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	changes := []mutation.Change{started}
	if incomplete {
		changes = append(changes, mutation.Change{Key: generationKey})
	}
	return errors.Join(s.Apply(mutation.All(changes), true), s.Close())
}
