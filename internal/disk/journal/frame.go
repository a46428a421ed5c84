package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// A frame, all integers little endian:
//
//	0   len u32        bytes from ver to the end of the payload, at least 10; 0: no frame here
//	4   crc32c u32     over the whole frame, see frameKey
//	8   ver u8
//	9   kind u8
//	10  syncedTo u64   Pos below which all was durable when this was appended, XOR the segment's epoch
//	18  payload
//
// The XOR costs nothing and makes frames recognisable: bytes at random, bytes of
// a recycled file's former life and bytes a client put into a payload decode to a
// position that cannot be (the epoch is random and secret). The search for frames
// behind a bad one rests on that: it can trust what it finds and need not
// compute a checksum for every byte.
const (
	frameHeaderBytes = 18
	frameLenCovers   = frameHeaderBytes - 8 // what len counts besides the payload

	frameVersion = 1
)

// MaxPayload is the largest payload of a frame in bytes (1 GiB).
const MaxPayload = 1 << 30

// frameKind tells what a frame is for.
type frameKind uint8

const (
	kindPayload frameKind = 1
	// kindMark carries no payload, only its syncedTo: proof that what precedes it
	// is durable, where no payload came to carry it.
	kindMark frameKind = 2
)

// frameKey is what ties a frame to its place: the epoch of the segment's file and
// the CRC state that covers epoch and segment number. The CRC of a frame starts
// from seed and runs over the frame with the low 32 bits of its offset standing
// in the crc field; frames start below 4 GiB, see maxSegmentBytes.
type frameKey struct {
	segment uint32
	epoch   uint64
	seed    uint32
}

func makeFrameKey(segment uint32, epoch uint64) frameKey {
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], epoch)
	binary.LittleEndian.PutUint32(b[8:], segment)
	return frameKey{segment: segment, epoch: epoch, seed: crc32.Checksum(b[:], castagnoli)}
}

// put writes a frame with the payload parts into b, whose length is the frame's.
func (k *frameKey) put(b []byte, offset int64, kind frameKind, syncedTo Pos, parts ...[]byte) {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-8))
	binary.LittleEndian.PutUint32(b[4:], uint32(offset))
	b[8] = frameVersion
	b[9] = byte(kind)
	binary.LittleEndian.PutUint64(b[10:], uint64(syncedTo)^k.epoch)
	at := frameHeaderBytes
	for _, part := range parts {
		at += copy(b[at:], part)
	}
	binary.LittleEndian.PutUint32(b[4:], crc32.Update(k.seed, castagnoli, b))
}

// syncedTo decodes the syncedTo of what may be a frame header. ours reports
// whether it can be one of this segment at offset: nobody else's decodes to a
// position that is not ahead of the frame.
func (k *frameKey) syncedTo(b []byte, offset int64) (syncedTo Pos, ours bool) {
	syncedTo = Pos(binary.LittleEndian.Uint64(b[10:]) ^ k.epoch)
	return syncedTo, syncedTo <= MakePos(k.segment, offset)
}

// frame is a frame as read.
type frame struct {
	kind     frameKind
	syncedTo Pos
	payload  []byte // aliases the bytes parsed
	bytes    int64  // length of the whole frame
}

// frameVerdict is what the bytes at an offset turned out to be.
type frameVerdict uint8

const (
	frameGood   frameVerdict = iota
	frameNone                // nothing of this segment was written here, as far as these bytes tell
	frameBroken              // a frame of this segment began here and is not intact
)

// parseHeader looks at the first frameHeaderBytes of what may be a frame. Good
// means that the whole frame, whose length is in f.bytes, is worth checking.
// room is how many bytes there are from the start of the frame to the end of what
// may hold frames.
func (k *frameKey) parseHeader(b []byte, offset, room int64) (f frame, verdict frameVerdict) {
	if int64(len(b)) < frameHeaderBytes || room < frameHeaderBytes {
		return frame{}, frameNone
	}
	syncedTo, ours := k.syncedTo(b, offset)
	length := int64(binary.LittleEndian.Uint32(b))
	f = frame{kind: frameKind(b[9]), syncedTo: syncedTo, bytes: length + 8}
	switch {
	case !ours:
		return f, frameNone
	case length < frameLenCovers, f.bytes > room, b[8] != frameVersion,
		f.kind != kindPayload && f.kind != kindMark:
		return f, frameBroken
	}
	return f, frameGood
}

// parse checks a whole frame, b being exactly the f.bytes that parseHeader gave.
func (k *frameKey) parse(b []byte, offset int64, f *frame) frameVerdict {
	if int64(len(b)) != f.bytes {
		return frameBroken
	}
	var head [frameHeaderBytes]byte
	copy(head[:], b)
	binary.LittleEndian.PutUint32(head[4:], uint32(offset))
	crc := crc32.Update(k.seed, castagnoli, head[:])
	f.payload = b[frameHeaderBytes:]
	if crc32.Update(crc, castagnoli, f.payload) != binary.LittleEndian.Uint32(b[4:]) {
		return frameBroken
	}
	return frameGood
}
