package amqp091

import (
	"encoding/binary"
	"fmt"
)

// ProtocolHeader is what a client sends first (BR-1.1).
const ProtocolHeader = "AMQP\x00\x00\x09\x01"

// Frame types, and the octet that ends every frame.
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8

	FrameEnd = 0xCE
)

// FrameOverhead is how many bytes a frame has besides its payload: frame-max counts
// them, so the largest payload is frame-max less FrameOverhead.
const FrameOverhead = frameHeaderSize + 1

const frameHeaderSize = 7

// sizeSlack is how far a payload may exceed what was agreed: RabbitMQ forgives the
// clients that forget to count the frame's own bytes (BR-4.8).
const sizeSlack = FrameOverhead

// A Frame is the unit of transport:
//
//	0      1         3             7
//	+------+---------+-------------+---------+------+
//	| type | channel | payload len | payload | 0xCE |
//	+------+---------+-------------+---------+------+
type Frame struct {
	Type    uint8
	Channel uint16
	Payload []byte
}

// NextFrame reads the first frame of buf. Its payload aliases buf, and n is the number
// of bytes it takes up; n is 0 while the frame is incomplete.
//
// maxPayload is the agreed frame-max less FrameOverhead; 8 bytes more are forgiven.
// An error is a *FrameError with RabbitMQ's text (BR-4.8). Too large a frame is
// refused as soon as its header is there; then n is 0, and so it is where the end octet
// is wrong, since the place of the next frame is not known. Where a whole frame is of
// no use (unknown type, too short for its type, heartbeat or content on a channel that
// cannot have it) n is its size and f is set, so that a closing connection can pass over it.
func NextFrame(buf []byte, maxPayload int) (f Frame, n int, err error) {
	if len(buf) < frameHeaderSize {
		return Frame{}, 0, nil
	}
	f.Type = buf[0]
	f.Channel = binary.BigEndian.Uint16(buf[1:])
	size := int64(binary.BigEndian.Uint32(buf[3:]))
	if size > int64(maxPayload)+sizeSlack {
		return Frame{}, 0, frameError(f, fmt.Sprintf("{frame_too_large,%d,%d}", size, maxPayload))
	}
	total := frameHeaderSize + size + 1
	if int64(len(buf)) < total {
		return Frame{}, 0, nil
	}
	f.Payload = buf[frameHeaderSize : total-1 : total-1]
	if end := buf[total-1]; end != FrameEnd {
		return Frame{}, 0, badEnd(f, end)
	}
	if !f.wellFormed() {
		return f, int(total), frameError(f, "unknown_frame")
	}
	if f.outOfPlace() {
		return f, int(total), unexpectedFrame(f)
	}
	return f, int(total), nil
}

// wellFormed reports whether the frame can be what its type says. RabbitMQ takes all
// others, as a heartbeat with a payload, for frames of an unknown type.
func (f Frame) wellFormed() bool {
	switch f.Type {
	case FrameMethod:
		return len(f.Payload) >= methodIDSize
	case FrameHeader:
		return len(f.Payload) >= contentHeaderSize
	case FrameBody:
		return true
	case FrameHeartbeat:
		return len(f.Payload) == 0
	}
	return false
}

// outOfPlace reports whether the type cannot be on the channel: heartbeats are for
// channel 0, content is for all others.
func (f Frame) outOfPlace() bool {
	switch f.Type {
	case FrameHeartbeat:
		return f.Channel != 0
	case FrameHeader, FrameBody:
		return f.Channel == 0
	}
	return false
}

// AppendHeartbeat appends a heartbeat frame.
func AppendHeartbeat(dst []byte) []byte {
	return append(dst, FrameHeartbeat, 0, 0, 0, 0, 0, 0, FrameEnd)
}

// beginFrame appends a frame's header with room for its size, which endFrame fills in.
func beginFrame(dst []byte, frameType uint8, channel uint16) []byte {
	return append(dst, frameType, byte(channel>>8), byte(channel), 0, 0, 0, 0)
}

// endFrame completes the frame that began at start.
func endFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-frameHeaderSize))
	return append(dst, FrameEnd)
}
