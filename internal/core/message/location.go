package message

import "fmt"

// Location is where a record lies on disk; 0 is nowhere. From the top: one bit that
// is always clear, the space (2 bits), the segment, which is the number of a file in that
// space (29 bits), and the offset of the record's first byte in that file (32 bits).
//
// A Location means the same record for as long as anybody refers to it.
type Location uint64

// Space tells what kind of file a segment is.
type Space uint8

// The spaces. In InJournal a Location is numerically the journal's position.
const (
	InJournal Space = iota // a segment of the journal, also when it has moved to the kept files
	InKeep                 // a dense file of records that outlived their segments
	InScratch              // a file of records that no restart will bring back
)

// Spaces is how many spaces there are.
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

// Valid says whether l can be a place: what was decoded from disk is asked before
// it is used.
func (l Location) Valid() bool {
	return l.InSpace() && l.Segment() != 0
}

// InSpace says whether the space of l is one there is: files are counted by it.
func (l Location) InSpace() bool { return l < onDisk && l.Space() < Spaces }

// Ref is the handle of the record at the location. It counts as a reference only
// for whoever has told the store.
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

// OnDisk says whether r names a place on disk and not bytes in memory.
func (r Ref) OnDisk() bool { return r&onDisk != 0 }

// Location is the place that r names. REQUIRES: r.OnDisk().
func (r Ref) Location() Location { return Location(r &^ onDisk) }
