package journal

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checked is what check found in a directory.
type checked struct {
	Segments  []SegmentReport // those read before the first damage, oldest first
	Frames    int64           // with payload, in all of them
	End       Pos             // where the intact frames end; 0 in an empty journal
	Committed Pos             // what frames prove to be durable; more may be
	TornBytes int64           // behind End, of frames that a crash cut short
	Recycled  int             // freed files waiting to be segments again
	// Damage is the first damage, or nil. Recover would refuse with the same.
	Damage *DamageError
}

// check reads all frames of a stopped node's journal and changes nothing. Damage
// is in the report; the error is of the disk. Recover has to say the same.
func check(fs vfs.FS, dir string) (checked, error) {
	d, err := readDirectory(fs, dir)
	if err != nil {
		return checked{}, err
	}
	r, err := d.replay(fs, dir, 0, func(Pos, []byte) error { return nil }, func() {})
	report := checked{Segments: r.reports, Committed: r.syncedTo, TornBytes: r.tornBytes, Recycled: len(d.free)}
	for _, s := range r.reports {
		report.Frames += s.Frames
		report.End = MakePos(s.Number, s.Bytes)
	}
	if errors.As(err, &report.Damage) {
		return report, nil
	}
	return report, err
}
