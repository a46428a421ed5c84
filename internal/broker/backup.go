package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/partition"
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

// BackUp copies the data directory to dir, which must not exist, while clients go
// on; a node that is started on the copy has all that was confirmed before the call, and
// some of what came after. dir appears when the copy is whole and on disk. On
// the same file system most of it is links, which cost no room.
func (b *Broker) BackUp(dir string) (Backup, error) {
	info := Backup{Node: b.NodeName, Began: time.Now().UTC()}
	if !filepath.IsAbs(dir) {
		return info, fmt.Errorf("backup: %q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	b.backingUp.Lock()
	defer b.backingUp.Unlock()
	if _, err := b.FS.Stat(dir); err == nil {
		return info, fmt.Errorf("backup to %s: %w", dir, ErrBackupThere)
	}
	part := dir + backupSuffix
	err := b.backUpTo(part, &info)
	if err == nil {
		err = b.FS.Rename(part, dir)
	}
	if err == nil {
		err = b.syncDirectory(filepath.Dir(dir))
	}
	if err != nil {
		return info, errors.Join(fmt.Errorf("backup to %s: %w", dir, err), b.FS.RemoveAll(part))
	}
	return info, nil
}

func (b *Broker) backUpTo(part string, info *Backup) error {
	if err := b.FS.RemoveAll(part); err != nil { // of one that a crash interrupted
		return err
	}
	journal := filepath.Join(part, "journal")
	if err := b.FS.MkdirAll(journal, 0o755); err != nil {
		return err
	}
	err := b.node.CopyTo(partition.Copy{Journal: journal, Keep: filepath.Join(part, keepDir), Index: filepath.Join(part, "index")})
	if err != nil {
		return err
	}
	// Declarations come last: a message that has moved must find the queue it moved to.
	if err := b.store.CopyTo(b.FS, filepath.Join(part, "state")); err != nil {
		return err
	}
	info.Ended = time.Now().UTC()
	text, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	f, err := b.FS.Create(filepath.Join(part, backupNote), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return b.syncDirectory(part)
}

func (b *Broker) syncDirectory(dir string) error {
	d, err := b.FS.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
