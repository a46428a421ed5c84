package datadir

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
func (d *Directory) exists(path string) (bool, error) {
	var err error
	if d.FS == store.OwnerOnly {
		_, err = os.Lstat(path)
	} else {
		_, err = d.FS.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// inDataDir says whether a path is in the data directory, or is it: by its name, or, since
// there are symbolic links and other names, by one of the directories above it being the same.
func (d *Directory) inDataDir(path string) (bool, error) {
	own, err := filepath.Abs(d.Dir)
	if err != nil {
		return false, err
	}
	if rel, err := filepath.Rel(own, path); err == nil && filepath.IsLocal(rel) {
		return true, nil
	}
	if d.FS != store.OwnerOnly {
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

// BackUp makes a data directory of its own, which must not exist: fill puts into a directory what the
// node has. It appears under its name when it is whole and on disk. It ends when ctx does, and leaves nothing behind.
func (d *Directory) BackUp(ctx context.Context, dir, node string, fill func(part string) error) (Backup, error) {
	info := Backup{Node: node, Began: time.Now().UTC()}
	if !filepath.IsAbs(dir) {
		return info, fmt.Errorf("backup: %q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	if !d.backingUp.TryLock() {
		return info, fmt.Errorf("backup to %s: %w", dir, ErrBackupUnderWay)
	}
	defer d.backingUp.Unlock()
	part := dir + backupSuffix
	for _, path := range []string{dir, part} { // what is unfinished may be anybody's
		if there, err := d.exists(path); err != nil {
			return info, fmt.Errorf("backup to %s: %w", dir, err)
		} else if there {
			return info, fmt.Errorf("backup to %s: %s: %w", dir, path, ErrBackupThere)
		}
	}
	if inside, err := d.inDataDir(dir); err != nil {
		return info, fmt.Errorf("backup to %s: %w", dir, err)
	} else if inside {
		return info, fmt.Errorf("backup to %s: %w", dir, ErrBackupInside)
	}
	if there, err := d.exists(filepath.Dir(dir)); err != nil {
		return info, fmt.Errorf("backup to %s: %w", dir, err)
	} else if !there {
		return info, fmt.Errorf("backup to %s: %s: %w", dir, filepath.Dir(dir), ErrBackupNowhere)
	}
	err := fill(part)
	if err == nil {
		err = d.finish(part, &info)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = d.putInPlace(part, dir)
	}
	if err != nil {
		return info, errors.Join(fmt.Errorf("backup to %s: %w", dir, err), d.FS.RemoveAll(part))
	}
	return info, nil
}

// finish makes a backup a data directory of its own, whose parts and ours are not to be mixed, and writes its note.
func (d *Directory) finish(part string, info *Backup) error {
	if err := Name(d.FS, part); err != nil {
		return err
	}
	info.Ended = time.Now().UTC()
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	if err := journal.WriteSynced(d.FS, filepath.Join(part, backupNote), append(text, '\n')); err != nil {
		return err
	}
	return journal.SyncDirectory(d.FS, part)
}

// CopyState writes the declarations of a snapshot to a backup, without their generation: there may have been
// another checkpoint since the index was copied.
func (d *Directory) CopyState(declared *store.Snapshot, part string) error {
	return declared.CopyTo(d.FS, filepath.Join(part, StateDir), generationKey)
}

// putInPlace gives a backup that is whole its name, which it has if the error is nil.
func (d *Directory) putInPlace(part, dir string) error {
	if err := d.FS.Rename(part, dir); err != nil {
		return err
	}
	err := journal.SyncDirectory(d.FS, filepath.Dir(dir))
	if err == nil {
		return nil
	}
	// A crash may take the name back, so nobody is to count on it.
	if back := d.FS.Rename(dir, part); back != nil {
		return fmt.Errorf("what is there is whole, but its name may not be on disk: %w", errors.Join(err, back))
	}
	return err
}
