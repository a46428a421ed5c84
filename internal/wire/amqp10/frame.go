package amqp10

import (
	"encoding/binary"
	"fmt"
)

// Frame types (2.3.1, 5.3.2).
const (
	FrameAMQP = 0
	FrameSASL = 1
)

// MinMaxFrameSize is the smallest max-frame-size that a peer may set, and the largest frame before both
// have sent open, that of SASL included (2.8.19).
const MinMaxFrameSize = 512

const (
	frameHeaderSize = 8
	minDoff         = frameHeaderSize / 4
)

// A Frame is the unit of transport (2.3.1):
//
//	0      4      5      6         8          4*doff
//	+------+------+------+---------+----------+------+
//	| size | doff | type | channel | extended | body |
//	+------+------+------+---------+----------+------+
//
// size counts the whole frame, its own octets included. The channel of a SASL frame means nothing.
type Frame struct {
	Type     uint8
	Channel  uint16
	Extended []byte // nobody gives it a meaning
	Body     []byte
}

// NextFrame reads the first frame of buf. Its slices alias buf, and n is the number of octets it takes up; n is
// 0 while the frame is incomplete.
//
// maxSize is the max-frame-size that this peer has announced. An error is a *FrameError; a frame that is too large
// is refused as soon as its header is there.
func NextFrame(buf []byte, maxSize uint32) (f Frame, n int, err error) {
	if len(buf) < frameHeaderSize {
		return Frame{}, 0, nil
	}
	size, doff := binary.BigEndian.Uint32(buf), uint32(buf[4])
	f.Type, f.Channel = buf[5], binary.BigEndian.Uint16(buf[6:])
	switch {
	case size < frameHeaderSize:
		return Frame{}, 0, frameError(f, "size %d is less than %d", size, frameHeaderSize)
	case size > maxSize:
		return Frame{}, 0, frameError(f, "size %d exceeds max-frame-size %d", size, maxSize)
	case doff < minDoff:
		return Frame{}, 0, frameError(f, "doff %d is less than %d", doff, minDoff)
	case 4*doff > size:
		return Frame{}, 0, frameError(f, "doff %d exceeds size %d", doff, size)
	case f.Type > FrameSASL:
		return Frame{}, 0, frameError(f, "unknown type")
	case uint64(len(buf)) < uint64(size):
		return Frame{}, 0, nil
	}
	f.Extended = buf[frameHeaderSize : 4*doff : 4*doff]
	f.Body = buf[4*doff : size : size]
	return f, int(size), nil
}

// A FrameError is a frame header that no frame has. It closes the connection, condition
// amqp:connection:framing-error.
type FrameError struct {
	Type    uint8
	Channel uint16
	Reason  string
}

// Error names the frame and the section of the standard.
func (e *FrameError) Error() string {
	return fmt.Sprintf("frame of type %d on channel %d: %s (2.3.1)", e.Type, e.Channel, e.Reason)
}

func frameError(f Frame, format string, args ...any) error {
	return &FrameError{f.Type, f.Channel, fmt.Sprintf(format, args...)}
}

// ReadPerformative splits the body of a frame into its performative and the payload, which follows a transfer
// only (2.3.2). It looks no deeper than the descriptor: the struct's Decode does. An error is a *DecodeError,
// also for a body whose descriptor belongs to no frame of the type.
func ReadPerformative(f Frame) (d Descriptor, v Value, payload []byte, err error) {
	payload, err = v.read(f.Body, 0)
	if err != nil {
		return 0, Value{}, nil, &DecodeError{Type: "frame body", Section: "2.3.2", Err: err}
	}
	d = v.Descriptor()
	first, last := DescriptorOpen, DescriptorClose
	if f.Type == FrameSASL {
		first, last = DescriptorSASLMechanisms, DescriptorSASLOutcome
	}
	switch {
	case d < first || d > last:
		return d, Value{}, nil, &DecodeError{Type: "frame body", Section: "2.3.2", Err: ErrType}
	case d != DescriptorTransfer && len(payload) > 0:
		return d, Value{}, nil, &DecodeError{Type: "frame body", Section: "2.3.2", Err: ErrTrailing}
	}
	return d, v, payload, nil
}

// BeginFrame begins a frame: its body is appended next. EndFrame ends it, with the start that BeginFrame
// returns.
func BeginFrame(dst []byte, frameType uint8, channel uint16) (out []byte, start int) {
	return append(dst, 0, 0, 0, 0, minDoff, frameType, byte(channel>>8), byte(channel)), len(dst)
}

// EndFrame completes the frame that began at start.
func EndFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// AppendFrame appends a frame with a performative and no payload, or with what belongs to SASL.
func AppendFrame(dst []byte, channel uint16, c Composite) []byte {
	frameType := uint8(FrameAMQP)
	if d := c.Descriptor(); d >= DescriptorSASLMechanisms && d <= DescriptorSASLOutcome {
		frameType = FrameSASL
	}
	dst, start := BeginFrame(dst, frameType, channel)
	return EndFrame(c.Append(dst), start)
}

// AppendEmptyFrame appends a frame without a body, which keeps a connection alive (2.4.5).
func AppendEmptyFrame(dst []byte) []byte {
	return append(dst, 0, 0, 0, frameHeaderSize, minDoff, FrameAMQP, 0, 0)
}

// AppendTransfer appends one frame with the transfer and, of the payload's pieces one after another, what is
// left after the first sent octets, as much as a frame of maxSize has room for. It sets t.More while something is left
// over, and returns how much is sent then. Until that is all, call it again for the next frame: with each the caller has
// to see whether the session's window is open. A further transfer of a delivery needs the handle only (2.7.5).
//
// maxSize is the peer's max-frame-size, at least MinMaxFrameSize; a transfer whose state leaves no room for payload is not
// to be sent by this function.
func AppendTransfer(dst []byte, channel uint16, t *Transfer, maxSize uint32, sent int, payload ...[]byte) (out []byte, nowSent int) {
	left := -sent
	for _, piece := range payload {
		left += len(piece)
	}
	dst, start := BeginFrame(dst, FrameAMQP, channel)
	body := len(dst)
	dst = t.Append(dst)
	n := left
	if int64(len(dst)-start)+int64(left) > int64(maxSize) {
		t.More = true
		dst = t.Append(dst[:body])
		n = max(0, int(maxSize)-(len(dst)-start))
	}
	skip, take := sent, n
	for _, piece := range payload {
		if skip >= len(piece) {
			skip -= len(piece)
			continue
		}
		piece = piece[skip:]
		piece, skip = piece[:min(take, len(piece))], 0
		dst = append(dst, piece...)
		take -= len(piece)
	}
	return EndFrame(dst, start), sent + n
}
