package message

import "fmt"

// Location is the place of a record on disk; 0 is nowhere.
//
//	bit 63    0; set in a Ref that is a Location
//	61 - 62   space
//	32 - 60   segment: the number of a file in that space
//	 0 - 31   offset of the record's first byte in that file
//
// Invariant: a Location means the same record as long as there is a reference to it.
type Location uint64

// Space is the kind of a file.
type Space uint8

// The spaces. In InJournal a Location is numerically the journal's position.
const (
	InJournal Space = iota // a segment of the journal, also after it has moved to the kept files
	InKeep                 // a dense file of records that outlived their segments
	InScratch              // a file of records that are deleted at the next start
)

// Spaces is the number of spaces.
const Spaces = 3

// MaxSegment is the largest number of a segment.
const MaxSegment = 1<<segmentBits - 1

const (
	segmentBits = 29
	spaceShift  = 32 + segmentBits
	onDisk      = 1 << 63
)

// MakeLocation is the place of a record. REQUIRES: segment is at most MaxSegment.
func MakeLocation(space Space, segment, offset uint32) Location {
	return Location(space)<<spaceShift | Location(segment)<<32 | Location(offset)
}

// Space is the kind of the file.
func (l Location) Space() Space { return Space(l >> spaceShift & 3) }

// Segment is the number of the file in its space.
func (l Location) Segment() uint32 { return uint32(l>>32) & MaxSegment }

// Offset is where the record begins, in bytes from the start of the file.
func (l Location) Offset() uint32 { return uint32(l) }

// Valid says whether l can be a place. Decoders check it.
func (l Location) Valid() bool {
	return l.InSpace() && l.Segment() != 0
}

// InSpace says whether the space of l exists, so that it can index counters.
func (l Location) InSpace() bool { return l < onDisk && l.Space() < Spaces }

// Ref is the handle of the record at the location. It is not a reference until the store
// has counted it.
func (l Location) Ref() Ref { return Ref(l) | onDisk }

// String writes the location as space:segment:offset.
func (l Location) String() string {
	return fmt.Sprintf("%s:%d:%d", l.Space(), l.Segment(), l.Offset())
}

// String names the space.
func (s Space) String() string {
	switch s {
	case InJournal:
		return "journal"
	case InKeep:
		return "keep"
	case InScratch:
		return "scratch"
	}
	return fmt.Sprintf("space %d", uint8(s))
}

// OnDisk says whether r names a place on disk, not bytes in memory.
func (r Ref) OnDisk() bool { return r&onDisk != 0 }

// Location is the place that r names. REQUIRES: r.OnDisk().
func (r Ref) Location() Location { return Location(r &^ onDisk) }
