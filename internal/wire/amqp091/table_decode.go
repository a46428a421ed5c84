package amqp091

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// DecodeTable decodes the content of a field table, without the 4-byte length before
// it. Nothing in the result aliases b; no fields make an empty table, not nil. Errors
// are ErrTruncated, ErrFieldType, ErrMalformedUTF8 (of a key) and ErrTooDeep.
func DecodeTable(b []byte) (Table, error) { return decodeTable(b, 0) }

// decodeTable decodes a table that has depth tables and arrays around it.
func decodeTable(b []byte, depth int) (Table, error) {
	if depth == maxDepth {
		return nil, ErrTooDeep
	}
	t := Table{}
	for len(b) > 0 {
		key, rest, err := cutKey(b)
		if err != nil {
			return nil, err
		}
		value, rest, err := decodeValue(rest, depth)
		if err != nil {
			return nil, err
		}
		t = append(t, Field{string(key), value})
		b = rest
	}
	return t, nil
}

func decodeArray(b []byte, depth int) (Array, error) {
	if depth == maxDepth {
		return nil, ErrTooDeep
	}
	a := Array{}
	for len(b) > 0 {
		value, rest, err := decodeValue(b, depth)
		if err != nil {
			return nil, err
		}
		a = append(a, value)
		b = rest
	}
	return a, nil
}

// decodeValue decodes the type octet and value at the start of b.
func decodeValue(b []byte, depth int) (value any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, ErrTruncated
	}
	typ := b[0]
	content, size, err := cutValue(typ, b[1:])
	if err != nil {
		return nil, nil, err
	}
	value, err = decodeContent(typ, content, depth)
	return value, b[1+size:], err
}

// DecodeValue decodes a field value from its type octet and content, as RangeHeaders and
// HeaderField give them. Nothing in the result aliases content.
func DecodeValue(typ byte, content []byte) (any, error) {
	if size := valueSizes[typ]; size >= 0 {
		switch {
		case len(content) < int(size):
			return nil, ErrTruncated
		case len(content) > int(size):
			return nil, ErrTrailing
		}
	}
	return decodeContent(typ, content, 0)
}

// decodeContent decodes a value of the type; content has the type's size.
func decodeContent(typ byte, content []byte, depth int) (any, error) {
	be := binary.BigEndian
	switch typ {
	case 'V':
		return nil, nil
	case 't':
		return content[0] != 0, nil
	case 'b':
		return int8(content[0]), nil
	case 'B':
		return content[0], nil
	case 's':
		return int16(be.Uint16(content)), nil
	case 'u':
		return be.Uint16(content), nil
	case 'I':
		return int32(be.Uint32(content)), nil
	case 'i':
		return be.Uint32(content), nil
	case 'l', 'L':
		return int64(be.Uint64(content)), nil
	case 'f':
		return math.Float32frombits(be.Uint32(content)), nil
	case 'd':
		return math.Float64frombits(be.Uint64(content)), nil
	case 'D':
		return Decimal{content[0], be.Uint32(content[1:])}, nil
	case 'T':
		return Timestamp(be.Uint64(content)), nil
	case 'S':
		return string(content), nil
	case 'x':
		return append([]byte{}, content...), nil
	case 'A':
		a, err := decodeArray(content, depth+1)
		if err != nil {
			return nil, err
		}
		return a, nil
	case 'F':
		t, err := decodeTable(content, depth+1)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	return nil, ErrFieldType
}

// cutKey splits the key of a field off b.
func cutKey(b []byte) (key, rest []byte, err error) {
	n := 1 + int(b[0])
	if n > len(b) {
		return nil, nil, ErrTruncated
	}
	key = b[1:n]
	if !utf8.Valid(key) {
		return nil, nil, ErrMalformedUTF8
	}
	return key, b[n:], nil
}
