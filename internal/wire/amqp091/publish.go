package amqp091

import (
	"encoding/binary"
	"unicode/utf8"
)

// Publish is basic.publish without a copy: the names alias the frame.
type Publish struct {
	Exchange, RoutingKey []byte
	Mandatory, Immediate bool
}

// ParsePublish reads the arguments of basic.publish, as BasicPublish.Decode does, and
// allocates nothing. An error is an *ArgumentError.
func ParsePublish(args []byte) (Publish, error) {
	// reserved-1 (2 bytes), exchange, routing-key, bits (1 byte)
	if len(args) < 2 {
		return Publish{}, new(BasicPublish).Decode(args)
	}
	exchange, rest, ok := cutShortstr(args[2:])
	if !ok {
		return Publish{}, new(BasicPublish).Decode(args)
	}
	key, rest, ok := cutShortstr(rest)
	if !ok || len(rest) != 1 {
		return Publish{}, new(BasicPublish).Decode(args)
	}
	return Publish{exchange, key, rest[0]&1 != 0, rest[0]&2 != 0}, nil
}

// cutShortstr splits a short string off b. It reports false where the string exceeds b
// or is not UTF-8.
func cutShortstr(b []byte) (s, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	end := 1 + int(b[0]) // not in a byte, where 255 and 1 are 0
	if len(b) < end {
		return nil, nil, false
	}
	s, rest = b[1:end], b[end:]
	return s, rest, utf8.Valid(s)
}

// AppendPublish appends a whole basic.publish frame.
func AppendPublish(dst []byte, channel uint16, p Publish) []byte {
	start := len(dst)
	dst = beginMethod(dst, channel, BasicPublishID)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = appendShortBytes(dst, p.Exchange)
	dst = appendShortBytes(dst, p.RoutingKey)
	dst = append(dst, bit(p.Mandatory, 0)|bit(p.Immediate, 1))
	return endFrame(dst, start)
}
