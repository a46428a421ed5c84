package amqp091

import (
	"encoding/binary"
	"fmt"
)

// maxDepth is how deep tables and arrays may be nested: far beyond any use, and short
// of what recursion would cost.
const maxDepth = MaxDepth

// MaxDepth is how many tables and arrays may be inside each other, the outermost included.
const MaxDepth = 100

// A value's size by its type octet: fixed, or a 4-byte length before the content.
const (
	noType  = -1
	counted = -2
)

var valueSizes = func() (sizes [256]int8) {
	for i := range sizes {
		sizes[i] = noType
	}
	for _, s := range []struct {
		types string
		size  int8
	}{{"V", 0}, {"tbB", 1}, {"su", 2}, {"Iif", 4}, {"D", 5}, {"lLdT", 8}, {"SxAF", counted}} {
		for _, t := range []byte(s.types) {
			sizes[t] = s.size
		}
	}
	return sizes
}()

// cutValue splits a value, whose type octet was typ, off b. content is without the
// length of the types that have one; size is how many bytes of b the value takes up.
func cutValue(typ byte, b []byte) (content []byte, size int, err error) {
	n := int(valueSizes[typ])
	switch {
	case n == noType:
		return nil, 0, ErrFieldType
	case n != counted:
		if n > len(b) {
			return nil, 0, ErrTruncated
		}
		return b[:n], n, nil
	case len(b) < 4:
		return nil, 0, ErrTruncated
	}
	length := binary.BigEndian.Uint32(b)
	if uint64(length) > uint64(len(b)-4) {
		return nil, 0, ErrTruncated
	}
	size = 4 + int(length)
	return b[4:size], size, nil
}

// TypeName returns RabbitMQ's name for the type of a field value, as its error texts
// have it (DL-3.4: "invalid type 'signedint' for arg ..."). It names the type on
// the wire: an integer is "long" only if it came as l.
func TypeName(value any) string {
	switch value.(type) {
	case nil:
		return "void"
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case Decimal:
		return "decimal"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case Array:
		return "array"
	case Timestamp:
		return "timestamp"
	case Table:
		return "table"
	}
	return fmt.Sprintf("%T", value) // not a field value
}

// Int64 returns the value of any integer field type (b B s u I i l). Timestamps and
// decimals are no integers (DL-3.5).
func Int64(value any) (n int64, ok bool) {
	switch v := value.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}
