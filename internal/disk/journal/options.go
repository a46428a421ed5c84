package journal

import (
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	defaultSegmentBytes = 64 << 20
	minSegmentBytes     = 2 * headerBytes
	// maxSegmentBytes keeps the offset at which any frame starts, a mark behind one
	// of MaxPayload included, in 32 bits: the CRC covers that much of it.
	maxSegmentBytes = 1 << 31

	defaultKeepRecycled = 4
)

// Options says where a journal lives and how it behaves. Dir must be set; the
// zero value of everything else is a default.
type Options struct {
	FS  vfs.FS // the operating system's if nil
	Dir string // made if it does not exist
	// KeepDir is where Retire moves segments in which something lives; made if it does
	// not exist. If it is empty such segments stay where they are. The journal
	// never looks into it.
	KeepDir string
	// SegmentBytes is the size of a segment's file in bytes: 64 MiB if 0, between
	// 16 KiB and 2 GiB. A frame larger than that gets a larger segment of its own.
	SegmentBytes int64
	// KeepRecycled is how many files of retired segments are kept for new ones: 4 if
	// 0, none if negative. Writing into them is several times faster than growing
	// a fresh file.
	KeepRecycled int
	// Short says that there is little room on the disk, see ShortOfRoom.
	Short bool
	// Prefill writes zeros over a fresh file before it is used, so that its first
	// frames cost as little as those in a recycled one: for small segments that wait
	// for each frame.
	Prefill bool
	// Logger gets what recovery dropped and what is wrong with the files. None if nil.
	Logger *slog.Logger
	// Failpoint is called at the steps named in Failpoints. For tests.
	Failpoint func(name string)
	// OnFatal is called once, with the first failed write or sync, by the goroutine
	// that met it and with no lock held. The journal takes nothing more: the node
	// has to stop.
	OnFatal func(error)
}

// withDefaults fills in what was left zero. It fails on sizes out of range.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes {
		return o, fmt.Errorf("journal: segment size %d bytes: must be between %d and %d",
			o.SegmentBytes, int64(minSegmentBytes), int64(maxSegmentBytes))
	}
	switch {
	case o.KeepRecycled == 0:
		o.KeepRecycled = defaultKeepRecycled
	case o.KeepRecycled < 0:
		o.KeepRecycled = 0
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Failpoint == nil {
		o.Failpoint = func(string) {}
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	return o, nil
}
