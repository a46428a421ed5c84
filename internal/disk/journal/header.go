package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// The start of a segment's file: two copies of the header, one to a 4 KiB block,
// so that no single lost block takes the epoch, and with it the segment, away.
// All integers are little endian.
//
//	0     magic "BTLYJRNL" | format u32 | segment u32 | epoch u64 | prevEnd u64 | crc32c u32
//	4096  the same again
//	8192  first frame
const (
	headerCopyBytes = 36
	headerStride    = 4096
	headerBytes     = 2 * headerStride

	formatVersion = 2

	// FirstFrame is the offset of the first frame in a segment's file.
	FirstFrame = headerBytes
)

var (
	magic      = [8]byte{'B', 'T', 'L', 'Y', 'J', 'R', 'N', 'L'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// header is what a segment says of itself.
type header struct {
	segment uint32
	epoch   uint64 // random for every life of a file; keys its frames
	// prevEnd is where the frames of the preceding segment end. It is written
	// only after all of them are durable, so it both bounds that segment (bytes
	// beyond it are nobody's) and proves it. Zero in the first segment of all.
	prevEnd Pos
}

// key is what the frames of a segment are checked with.
func (h header) key() frameKey { return makeFrameKey(h.segment, h.epoch) }

// encode lays out the whole header area, headerBytes long.
func (h header) encode() []byte {
	b := make([]byte, headerBytes)
	h.put(b[:headerCopyBytes])
	copy(b[headerStride:], b[:headerCopyBytes])
	return b
}

func (h header) put(b []byte) {
	copy(b, magic[:])
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	binary.LittleEndian.PutUint32(b[12:], h.segment)
	binary.LittleEndian.PutUint64(b[16:], h.epoch)
	binary.LittleEndian.PutUint64(b[24:], uint64(h.prevEnd))
	binary.LittleEndian.PutUint32(b[32:], crc32.Checksum(b[:32], castagnoli))
}

// headerState is what the header area of a file turned out to be.
type headerState uint8

const (
	headerValid headerState = iota
	// headerBlank: the file was made ready for a segment and its header was never
	// written, so no frame was either.
	headerBlank
	// headerDamaged: there was a header, and it is unreadable.
	headerDamaged
)

// errFormat reports a header in a format this program does not know.
var errFormat = errors.New("unknown format version")

// copyState classifies one copy of the header in the file of segment number.
// Invariant: a header lies in one disk sector, which is written whole or not at
// all. So a copy is zero, or of the file's former life, or ours; anything else
// has rotted.
func copyState(b []byte, number uint32) (header, headerState, error) {
	zero := true
	for _, c := range b {
		zero = zero && c == 0
	}
	switch {
	case zero:
		return header{}, headerBlank, nil
	case [8]byte(b[:8]) != magic,
		crc32.Checksum(b[:32], castagnoli) != binary.LittleEndian.Uint32(b[32:]):
		return header{}, headerDamaged, nil
	case binary.LittleEndian.Uint32(b[8:]) != formatVersion:
		return header{}, headerDamaged, errFormat
	}
	h := header{
		segment: binary.LittleEndian.Uint32(b[12:]),
		epoch:   binary.LittleEndian.Uint64(b[16:]),
		prevEnd: Pos(binary.LittleEndian.Uint64(b[24:])),
	}
	if h.segment != number {
		return header{}, headerBlank, nil // of the file's former life
	}
	return h, headerValid, nil
}

// decodeHeader reads the header area of the file of segment number. b is what the
// file holds of it; a file that ends within the area or before it could hold one
// frame was never used. intact says that both copies are good. The only error is
// errFormat.
func decodeHeader(b []byte, number uint32, fileBytes int64) (h header, state headerState, intact bool, err error) {
	short := fileBytes < headerBytes+frameHeaderBytes
	if len(b) < headerBytes {
		b = append(make([]byte, 0, headerBytes), b...)[:headerBytes]
	}
	first, firstState, err := copyState(b[:headerCopyBytes], number)
	if err != nil {
		return header{}, headerDamaged, false, err
	}
	second, secondState, err := copyState(b[headerStride:headerStride+headerCopyBytes], number)
	if err != nil {
		return header{}, headerDamaged, false, err
	}
	switch {
	case firstState == headerValid && secondState == headerValid:
		if first != second {
			return header{}, headerDamaged, false, nil
		}
		return first, headerValid, true, nil
	case firstState == headerValid:
		return first, headerValid, false, nil
	case secondState == headerValid:
		return second, headerValid, false, nil
	case short, firstState == headerBlank && secondState == headerBlank:
		return header{}, headerBlank, true, nil
	default:
		return header{}, headerDamaged, false, nil
	}
}
