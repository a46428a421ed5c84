package amqp091

import (
	"encoding/binary"
	"errors"
)

// contentHeaderSize is the fixed part of a content header: class (2 bytes), weight (2,
// unused), body size (8). The properties follow.
const contentHeaderSize = 12

// MaxProps is how many bytes of properties fit into a content header frame of at most frameMax bytes.
func MaxProps(frameMax int) int { return frameMax - FrameOverhead - contentHeaderSize }

// errShortContentHeader has no kind of its own: NextFrame lets no such frame through.
var errShortContentHeader = errors.New("content header is too short")

// ParseContentHeader splits the payload of a content header frame. size is as the
// client sent it, so it may be anything up to 2^64-1; props aliases the payload and is
// for ParseProps.
func ParseContentHeader(payload []byte) (class uint16, size uint64, props []byte, err error) {
	if len(payload) < contentHeaderSize {
		return 0, 0, nil, errShortContentHeader
	}
	return binary.BigEndian.Uint16(payload), binary.BigEndian.Uint64(payload[4:]), payload[contentHeaderSize:], nil
}

// AppendContentHeader appends a whole content header frame. props are raw properties, as
// AppendProps makes them.
func AppendContentHeader(dst []byte, channel, class uint16, bodySize uint64, props []byte) []byte {
	start := len(dst)
	dst = BeginContentHeader(dst, channel, class, bodySize)
	return EndContentHeader(append(dst, props...), start)
}

// BeginContentHeader appends the part of a content header frame before the properties,
// for a caller who then writes them with AppendProps straight into the frame.
// EndContentHeader completes it.
func BeginContentHeader(dst []byte, channel, class uint16, bodySize uint64) []byte {
	dst = beginFrame(dst, FrameHeader, channel)
	dst = binary.BigEndian.AppendUint16(dst, class)
	dst = binary.BigEndian.AppendUint16(dst, 0) // weight
	return binary.BigEndian.AppendUint64(dst, bodySize)
}

// EndContentHeader completes the frame that BeginContentHeader began when dst had start bytes.
func EndContentHeader(dst []byte, start int) []byte { return endFrame(dst, start) }

// AppendBody appends body as whole body frames of at most frameMax bytes each; none for
// an empty body. A frameMax too small for any payload, as 0, means no limit.
func AppendBody(dst []byte, channel uint16, body []byte, frameMax int) []byte {
	limit := frameMax - FrameOverhead
	if limit <= 0 {
		limit = len(body)
	}
	for len(body) > 0 {
		n := min(limit, len(body))
		start := len(dst)
		dst = append(beginFrame(dst, FrameBody, channel), body[:n]...)
		dst = endFrame(dst, start)
		body = body[n:]
	}
	return dst
}
