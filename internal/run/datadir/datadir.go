// Package datadir is the data directory of a node: parts that are whole together or of no use. It opens them in
// their order, refuses a directory that lacks one or has one of another day, makes backups, and closes them. The broker
// and repair call it. What the parts mean is not its business: declarations are the topology's, messages the partitions'.
package datadir

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/partition"
)

// Options say which directory it is, and what it is opened for.
type Options struct {
	FS           vfs.FS
	Dir          string
	SegmentBytes int64 // of the journal's files; 0 is its default
	Logger       *slog.Logger
	Failpoint    func(name string)
	OnFatal      func(error)
	Short        bool // there is little room on the disk: see journal.Options

	Stopped    bool // for an examination, which removes nothing and sets nothing aside
	Incomplete bool // parts may be missing, or of different age
}

// Directory is an open data directory. What is nil is not open yet.
type Directory struct {
	Options
	State   *store.Store // of declarations and accounts
	Journal *journal.Journal
	Index   *store.Store // of queues: pages and checkpoints
	Keep    *bodyfile.Keep
	Bodies  *bodies.Store
	Aside   *bodyfile.Aside // nil in an examination

	scratch   *bodyfile.Scratch
	backingUp sync.Mutex // one at a time
}

// The directories in it that may be missing: asideDir has messages that the node could not read, senselessDir frames and
// commands that make no sense.
const (
	scratchDir   = "scratch"
	asideDir     = "set-aside"
	senselessDir = "senseless"
)

// Open opens the directory, or makes it, as far as its declarations. Where it is not whole it changes nothing.
func Open(o Options) (*Directory, error) {
	if err := journal.MakeDirectory(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if !o.Incomplete {
		named, err := CheckWhole(o.FS, o.Dir)
		if err == nil && !named {
			err = Name(o.FS, o.Dir)
		}
		if err != nil {
			return nil, err
		}
	}
	state, err := store.Open(o.FS, filepath.Join(o.Dir, StateDir), o.Logger, o.OnFatal)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return &Directory{Options: o, State: state, Bodies: bodies.New()}, nil
}

// RecordPrefix begins the keys of what the store of declarations keeps beside declarations and accounts: the records of
// the Dead Letter Office.
const RecordPrefix = "office/"

// Declarations are all records of a store of declarations and accounts.
func Declarations(s *store.Store) (records []mutation.Change, err error) {
	err = s.Range(nil, func(key, value []byte) error {
		if bytes.HasPrefix(key, []byte(RecordPrefix)) {
			return nil
		}
		records = append(records, mutation.Change{Key: slices.Clone(key), Value: slices.Clone(value)})
		return nil
	})
	return records, err
}

// unreadEvery is how often it is logged at most that details of failures cannot be read: one search may want thousands.
const unreadEvery = time.Minute

// unread returns what logs that details cannot be read.
func (d *Directory) unread() func(error) {
	var mu sync.Mutex
	var last time.Time
	since := 0
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if since++; !last.IsZero() && time.Since(last) < unreadEvery {
			return
		}
		d.Logger.Error("what a consumer told of a failure cannot be read back from disk: its dead letter stays without it", "times", since, "error", err)
		last, since = time.Now(), 0
	}
}

// OpenMessages opens the rest of it, once the declarations are known to be good.
func (d *Directory) OpenMessages() (err error) {
	d.Journal, err = journal.Open(journal.Options{
		FS: d.FS, Dir: filepath.Join(d.Dir, JournalDir), KeepDir: filepath.Join(d.Dir, KeepDir), SegmentBytes: d.SegmentBytes,
		Logger: d.Logger, Failpoint: d.Failpoint, OnFatal: d.OnFatal, Short: d.Short && !d.Stopped,
	})
	if err != nil {
		return err
	}
	if d.Keep, err = bodyfile.OpenKeep(d.FS, filepath.Join(d.Dir, KeepDir), d.Failpoint); err != nil {
		return err
	}
	if d.scratch, err = bodyfile.OpenScratch(d.FS, filepath.Join(d.Dir, scratchDir), d.SegmentBytes); err != nil {
		return err
	}
	if d.Index, err = store.OpenUnlogged(d.FS, filepath.Join(d.Dir, IndexDir), d.Logger, d.OnFatal); err != nil {
		return fmt.Errorf("data directory %s: %w", d.Dir, err)
	}
	d.Bodies.Attach(bodies.Disk{Journal: d.Journal, Keep: d.Keep, Scratch: d.scratch, Unread: d.unread()})
	if !d.Incomplete {
		if err := d.checkGeneration(); err != nil {
			return err
		}
	}
	if !d.Stopped {
		d.Aside = bodyfile.NewAside(d.FS, filepath.Join(d.Dir, asideDir))
		if n := d.Aside.Count(); n > 0 {
			d.Logger.Warn("there are messages that could not be read, or used, and were set aside", "directory", d.Aside.Dir(), "files", n)
		}
	}
	return nil
}

// Close closes what is open, and gives up the memory of messages.
func (d *Directory) Close() (err error) {
	if d.Journal != nil {
		err = d.Journal.Close()
	}
	if d.Index != nil {
		err = errors.Join(err, d.Index.Close())
	}
	if d.Keep != nil {
		d.Keep.Close()
	}
	if d.scratch != nil {
		err = errors.Join(err, d.scratch.Close())
	}
	d.Bodies.Close()
	return errors.Join(err, d.State.Close())
}

// KeepSenseless keeps what makes no sense: its bytes, and a text beside them. It has the same name whenever it
// is met, since every start meets it until a checkpoint is behind it.
func (d *Directory) KeepSenseless(s partition.Senseless) (err error) {
	dir := filepath.Join(d.Dir, senselessDir)
	if err := d.FS.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("set aside: %w", err)
	}
	name := fmt.Sprintf("frame-%d-%d-%d", s.Pos.Segment(), s.Pos.Offset(), s.From)
	if s.Group != 0 {
		name = fmt.Sprintf("group-%d-%d", s.Group, s.Index)
	}
	text := fmt.Sprintf("%s\nposition %s, passed over: bytes %d to %d of %d\n\n%s", s.Why, s.Pos, s.From, s.To, len(s.Frame), hex.Dump(s.Frame[s.From:s.To]))
	err = errors.Join(journal.WriteSynced(d.FS, filepath.Join(dir, name+".bin"), s.Frame), journal.WriteSynced(d.FS, filepath.Join(dir, name+".txt"), []byte(text)),
		journal.SyncDirectory(d.FS, dir), journal.SyncDirectory(d.FS, d.Dir))
	if err != nil {
		return fmt.Errorf("set aside: %w", err)
	}
	return nil
}
