package journal

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Report is what Check found in a directory.
type Report struct {
	Segments  []SegmentReport // those read before the first damage, oldest first
	Frames    int64           // with payload, in all of them
	End       Pos             // where the intact frames end; 0 in an empty journal
	Committed Pos             // what frames prove to be durable; more may be
	TornBytes int64           // behind End, of frames that a crash cut short
	Recycled  int             // freed files waiting to be segments again
	// Damage is the first damage, or nil. Recover would refuse with the same.
	Damage *DamageError
}

// SegmentReport is what Check found in one segment.
type SegmentReport struct {
	Number       uint32
	Bytes        int64 // used, header included
	Frames       int64 // with payload
	PayloadBytes int64
}

// Check reads all frames of a stopped node's journal and changes nothing. Damage
// is in the report; the error is of the disk.
func Check(fs vfs.FS, dir string) (Report, error) {
	d, err := readDirectory(fs, dir)
	if err != nil {
		return Report{}, err
	}
	r, err := d.replay(fs, func(Pos, []byte) error { return nil }, func() {})
	report := Report{Segments: r.reports, Committed: r.syncedTo, TornBytes: r.tornBytes, Recycled: len(d.free)}
	for _, s := range r.reports {
		report.Frames += s.Frames
		report.End = MakePos(s.Number, s.Bytes)
	}
	if errors.As(err, &report.Damage) {
		return report, nil
	}
	return report, err
}
