package repair

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/partition"
)

// How is what an operator chooses to lose where the journal is damaged.
type How string

const (
	// SkipFrame goes on behind the damage: what the damaged frames said is lost, and what is
	// intact behind them counts.
	SkipFrame How = "skip-frame"
	// Cut ends the journal at the first damage: what is behind it is lost, and every
	// queue is what it was at one moment.
	Cut How = "cut"
)

// mend makes a log readable.
func mend(files vfs.FS, dir, log string, in *journal.Inspection, from journal.Pos, how How) error {
	path := files.PathJoin(dir, log)
	var head []byte // of declarations nothing takes the place: they are read as they are
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
		// What a checkpoint has is not cut off: its log must reach it.
		if how == Cut && h.Pos() >= from {
			return journal.Cut(files, path, h)
		}
		if err := journal.Fill(files, path, h, head); err != nil {
			return fmt.Errorf("%w\nthis damage can only be cut off: use --cut", err)
		}
	}
	return nil
}
