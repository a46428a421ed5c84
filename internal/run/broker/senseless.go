package broker

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/partition"
)

// senselessDir is where frames and commands are kept that make no sense.
const senselessDir = "senseless"

// keepSenseless keeps one: its bytes, and a text beside them. It has the same name whenever it
// is met, since every start meets it until a checkpoint is behind it.
func (b *Broker) keepSenseless(s partition.Senseless) (err error) {
	dir := filepath.Join(b.Dir, senselessDir)
	if err := b.FS.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("set aside: %w", err)
	}
	name := fmt.Sprintf("frame-%d-%d-%d", s.Pos.Segment(), s.Pos.Offset(), s.From)
	if s.Group != 0 {
		name = fmt.Sprintf("group-%d-%d", s.Group, s.Index)
	}
	text := fmt.Sprintf("%s\nposition %s, passed over: bytes %d to %d of %d\n\n%s", s.Why, s.Pos, s.From, s.To, len(s.Frame), hex.Dump(s.Frame[s.From:s.To]))
	err = errors.Join(journal.WriteSynced(b.FS, filepath.Join(dir, name+".bin"), s.Frame), journal.WriteSynced(b.FS, filepath.Join(dir, name+".txt"), []byte(text)),
		journal.SyncDirectory(b.FS, dir), journal.SyncDirectory(b.FS, b.Dir))
	if err != nil {
		return fmt.Errorf("set aside: %w", err)
	}
	return nil
}

// PassOver writes a checkpoint, so that no start meets again what was set aside.
func (b *Broker) PassOver() error { return b.node.Checkpoint() }
