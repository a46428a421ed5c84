package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/partition"
)

// The files of a backup that are not the node's own.
const (
	backupNote   = "backup.json"
	backupSuffix = ".unfinished"
)

// Backup is what a backup says of itself.
type Backup struct {
	Node  string    `json:"node"`
	Began time.Time `json:"began"` // all that was confirmed before is in it
	Ended time.Time `json:"ended"`
}

// ErrBackupThere is the error for a backup to a directory that exists.
var ErrBackupThere = errors.New("there is something already")

// ErrBackupInside is the error for a backup to a directory in the data directory.
var ErrBackupInside = errors.New("that is inside of the data directory, which is no place for a copy of it")

// ErrBackupNowhere is the error for a backup to a directory in one that is not there: where a
// disk is not mounted the copy would fill another.
var ErrBackupNowhere = errors.New("there is no such directory to put it in")

// ErrBackupUnderWay is the error for a backup while there is another.
var ErrBackupUnderWay = errors.New("another backup is under way")

// exists says whether there is something of that name, be it a symbolic link that leads nowhere.
func (b *Broker) exists(path string) (bool, error) {
	var err error
	if b.FS == store.OwnerOnly {
		_, err = os.Lstat(path)
	} else {
		_, err = b.FS.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// inDataDir says whether a path is in the data directory, or is it: by its name, or, since
// there are symbolic links and other names, by one of the directories above it being the same.
func (b *Broker) inDataDir(path string) (bool, error) {
	own, err := filepath.Abs(b.Dir)
	if err != nil {
		return false, err
	}
	if rel, err := filepath.Rel(own, path); err == nil && filepath.IsLocal(rel) {
		return true, nil
	}
	if b.FS != store.OwnerOnly {
		return false, nil
	}
	data, err := os.Stat(own)
	if err != nil {
		return false, err
	}
	real := path
	for {
		found, err := filepath.EvalSymlinks(real)
		if err == nil {
			real = found
			break
		}
		if up := filepath.Dir(real); errors.Is(err, fs.ErrNotExist) && up != real {
			real = up
			continue
		}
		return false, err
	}
	for {
		info, err := os.Stat(real)
		if err != nil {
			return false, err
		}
		up := filepath.Dir(real)
		if os.SameFile(info, data) || up == real {
			return os.SameFile(info, data), nil
		}
		real = up
	}
}

// BackUp copies the data directory to dir, which must not exist, while clients go
// on; a node that is started on the copy has all that was confirmed before the call, and
// some of what came after. dir appears when the copy is whole and on disk. On
// the same file system most of it is links, which cost no room. To another it takes long, with no
// checkpoint meanwhile: it ends when ctx does, as that of a request when the node stops, and leaves nothing behind.
func (b *Broker) BackUp(ctx context.Context, dir string) (Backup, error) {
	info := Backup{Node: b.NodeName, Began: time.Now().UTC()}
	if !filepath.IsAbs(dir) {
		return info, fmt.Errorf("backup: %q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	if !b.backingUp.TryLock() {
		return info, fmt.Errorf("backup to %s: %w", dir, ErrBackupUnderWay)
	}
	defer b.backingUp.Unlock()
	part := dir + backupSuffix
	for _, path := range []string{dir, part} { // what is unfinished may be anybody's
		if there, err := b.exists(path); err != nil {
			return info, fmt.Errorf("backup to %s: %w", dir, err)
		} else if there {
			return info, fmt.Errorf("backup to %s: %s: %w", dir, path, ErrBackupThere)
		}
	}
	if inside, err := b.inDataDir(dir); err != nil {
		return info, fmt.Errorf("backup to %s: %w", dir, err)
	} else if inside {
		return info, fmt.Errorf("backup to %s: %w", dir, ErrBackupInside)
	}
	if there, err := b.exists(filepath.Dir(dir)); err != nil {
		return info, fmt.Errorf("backup to %s: %w", dir, err)
	} else if !there {
		return info, fmt.Errorf("backup to %s: %s: %w", dir, filepath.Dir(dir), ErrBackupNowhere)
	}
	err := b.backUpTo(ctx, part, &info)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = b.putInPlace(part, dir)
	}
	if err != nil {
		return info, errors.Join(fmt.Errorf("backup to %s: %w", dir, err), b.FS.RemoveAll(part))
	}
	return info, nil
}

// putInPlace gives a backup that is whole its name, which it has if the error is nil.
func (b *Broker) putInPlace(part, dir string) error {
	if err := b.FS.Rename(part, dir); err != nil {
		return err
	}
	err := journal.SyncDirectory(b.FS, filepath.Dir(dir))
	if err == nil {
		return nil
	}
	// A crash may take the name back, so nobody is to count on it.
	if back := b.FS.Rename(dir, part); back != nil {
		return fmt.Errorf("what is there is whole, but its name may not be on disk: %w", errors.Join(err, back))
	}
	return err
}

func (b *Broker) backUpTo(ctx context.Context, part string, info *Backup) error {
	log := filepath.Join(part, journalDir)
	if err := journal.MakeDirectory(b.FS, log); err != nil {
		return err
	}
	var declared *store.Snapshot
	err := b.node.CopyTo(ctx, partition.Copy{
		Journal: log, Keep: filepath.Join(part, keepDir), Index: filepath.Join(part, indexDir),
		End: func() (end journal.Pos) {
			// Both logs at one moment between two changes of declarations: a message that has
			// moved finds the queue it moved to, and of a queue that is gone all that left it is there.
			b.between(func() { end, declared = b.journal.Committed(), b.store.Snapshot() })
			return end
		},
	})
	if declared != nil {
		if err == nil {
			// Without its generation: there may have been another checkpoint since the index was copied.
			err = declared.CopyTo(b.FS, filepath.Join(part, stateDir), generationKey)
		}
		err = errors.Join(err, declared.Close())
	}
	if err != nil {
		return err
	}
	// It is a data directory of its own: its parts and ours are not to be mixed.
	if err := Name(b.FS, part); err != nil {
		return err
	}
	info.Ended = time.Now().UTC()
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	if err := journal.WriteSynced(b.FS, filepath.Join(part, backupNote), append(text, '\n')); err != nil {
		return err
	}
	return journal.SyncDirectory(b.FS, part)
}
