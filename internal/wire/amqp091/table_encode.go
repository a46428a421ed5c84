package amqp091

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AppendTable appends a field table with the 4-byte length before it. Keys longer than
// 255 bytes are cut. A value of a Go type that is no field type (see Field) is a bug of
// the caller, and panics.
func AppendTable(dst []byte, t Table) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, f := range t {
		mustFit(len(f.Key))
		dst = AppendValue(appendShortstr(dst, f.Key), f.Value)
	}
	return endCounted(dst, start)
}

// AppendValue appends a field value: its type octet and its bytes. See AppendTable.
func AppendValue(dst []byte, value any) []byte {
	be := binary.BigEndian
	switch v := value.(type) {
	case nil:
		return append(dst, 'V')
	case bool:
		return append(dst, 't', bit(v, 0))
	case int8:
		return append(dst, 'b', byte(v))
	case uint8:
		return append(dst, 'B', v)
	case int16:
		return be.AppendUint16(append(dst, 's'), uint16(v))
	case uint16:
		return be.AppendUint16(append(dst, 'u'), v)
	case int32:
		return be.AppendUint32(append(dst, 'I'), uint32(v))
	case uint32:
		return be.AppendUint32(append(dst, 'i'), v)
	case int64:
		return be.AppendUint64(append(dst, 'l'), uint64(v))
	case float32:
		return be.AppendUint32(append(dst, 'f'), math.Float32bits(v))
	case float64:
		return be.AppendUint64(append(dst, 'd'), math.Float64bits(v))
	case Decimal:
		return be.AppendUint32(append(dst, 'D', v.Scale), v.Value)
	case Timestamp:
		return be.AppendUint64(append(dst, 'T'), uint64(v))
	case string:
		return appendLongstr(append(dst, 'S'), v)
	case []byte:
		return append(be.AppendUint32(append(dst, 'x'), uint32(len(v))), v...)
	case Array:
		return appendArray(append(dst, 'A'), v)
	case Table:
		return AppendTable(append(dst, 'F'), v)
	}
	panic(fmt.Sprintf("amqp091: no field type for a %T", value))
}

func appendArray(dst []byte, a Array) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, v := range a {
		dst = AppendValue(dst, v)
	}
	return endCounted(dst, start)
}

// endCounted fills in the 4-byte length at start of what was appended after it.
func endCounted(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}
