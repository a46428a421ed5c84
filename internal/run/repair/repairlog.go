package repair

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/partition"
)

// How is what the operator chooses to lose if the journal is damaged.
type How string

const (
	// SkipFrame loses the operations of the damaged frames and keeps intact frames after
	// them.
	SkipFrame How = "skip-frame"
	// Cut ends the journal at the first damage. Everything after it is lost, and every queue
	// goes back to its state at one moment.
	Cut How = "cut"
)

// repairLog repairs a log so that a start can read it.
func repairLog(files vfs.FS, dir, log string, in *journal.Inspection, from journal.Pos, how How) error {
	path := files.PathJoin(dir, log)
	var head []byte // the log of declarations gets no frame in place of lost ones
	if log == journalDir {
		head = partition.LostFrame()
	}
	if len(in.Holes) > 0 { // the directory itself may be missing
		if err := journal.MakeDirectory(files, path); err != nil {
			return err
		}
	}
	for i := range in.Holes {
		h := &in.Holes[i]
		if h.Before {
			continue
		}
		// Cut nothing before the checkpoint: its log must reach it.
		if how == Cut && h.Pos() >= from {
			return journal.Cut(files, path, h)
		}
		if err := journal.Fill(files, path, h, head); err != nil {
			return fmt.Errorf("%w\nonly --cut can repair this damage", err)
		}
	}
	return nil
}
