package journal

import "fmt"

// Pos is the position of a byte in the journal: segment number << 32 | offset in
// that segment's file (32 bits). Positions are totally ordered in the order of
// appending. The zero Pos is before everything and is never given to a frame.
// The upper three bits are always clear: who stores positions may use them.
//
// A position is never given twice to frames that survived. One whose frame was
// lost in a crash, uncommitted, may be given again to another: nothing durable
// may refer to a position that is not committed.
type Pos uint64

const (
	offsetBits = 32
	maxOffset  = 1<<offsetBits - 1
	// maxSegment leaves three bits free in a position. With the default size, that many
	// segments are 32 PiB.
	maxSegment = 1<<29 - 1
)

// MakePos is the position at a byte offset of a segment's file.
func MakePos(segment uint32, offset int64) Pos {
	return Pos(segment)<<offsetBits | Pos(offset)&maxOffset
}

// Segment is the number of the segment the position lies in.
func (p Pos) Segment() uint32 { return uint32(p >> offsetBits) }

// Offset is the byte offset in the segment's file.
func (p Pos) Offset() int64 { return int64(p & maxOffset) }

// String writes the position as segment:offset.
func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Segment(), p.Offset()) }
