package routing

import (
	"bytes"
	"encoding/binary"
	"math"

	"bartleby.mq/internal/wire/amqp091"
)

// headerValue is a binding argument made ready for comparing with encoded headers (BR-6.9): integers are equal across
// widths, floats across widths, and nothing else is equal across types.
type headerValue struct {
	value   any   // as the binding gave it
	integer int64 // if isInt
	isInt   bool
	typ     byte   // the field type
	content []byte // the encoded value, without the length that precedes strings; of arrays and tables see comparableForm
}

func valueOf(v any) headerValue {
	h := headerValue{value: v}
	h.integer, h.isInt = amqp091.Int64(v)
	h.typ, h.content = splitField(amqp091.AppendValue(nil, v))
	if h.typ == 'A' || h.typ == 'F' {
		h.content = comparableForm(v)
	}
	return h
}

// lengthSize is the size of the length before strings, arrays and tables.
const lengthSize = 4

// splitField parts an encoded field into its type and its content, as amqp091.RangeHeaders gives them.
func splitField(encoded []byte) (typ byte, content []byte) {
	if len(encoded) == 0 {
		return 'V', nil
	}
	typ, content = encoded[0], encoded[1:]
	switch typ {
	case 'S', 'x', 'A', 'F':
		content = content[min(lengthSize, len(content)):]
	}
	return typ, content
}

// matches compares with a header that is no array or table. A void argument asks only that the header be there.
func (h *headerValue) matches(typ byte, content []byte) bool {
	if h.value == nil {
		return true
	}
	if i, ok := encodedInteger(typ, content); ok {
		return h.isInt && h.integer == i
	}
	switch typ {
	case 'f', 'd':
		if h.typ != 'f' && h.typ != 'd' {
			return false
		}
		decoded, ok := decodeValue(typ, content)
		return ok && float(h.value) == float(decoded)
	}
	return typ == h.typ && bytes.Equal(content, h.content)
}

// encodedInteger reads an integer field of any width without allocating.
func encodedInteger(typ byte, b []byte) (int64, bool) {
	switch {
	case typ == 'b' && len(b) == 1:
		return int64(int8(b[0])), true
	case typ == 'B' && len(b) == 1:
		return int64(b[0]), true
	case typ == 's' && len(b) == 2:
		return int64(int16(binary.BigEndian.Uint16(b))), true
	case typ == 'u' && len(b) == 2:
		return int64(binary.BigEndian.Uint16(b)), true
	case typ == 'I' && len(b) == 4:
		return int64(int32(binary.BigEndian.Uint32(b))), true
	case typ == 'i' && len(b) == 4:
		return int64(binary.BigEndian.Uint32(b)), true
	case (typ == 'l' || typ == 'L') && len(b) == 8:
		return int64(binary.BigEndian.Uint64(b)), true
	}
	return 0, false
}

// decodeValue decodes one field as a table of one entry, which is the form the codec reads.
func decodeValue(typ byte, content []byte) (any, bool) {
	table := []byte{1, 'v', typ}
	if typ == 'A' || typ == 'F' {
		table = binary.BigEndian.AppendUint32(table, uint32(len(content)))
	}
	decoded, err := amqp091.DecodeTable(append(table, content...))
	if err != nil || len(decoded) != 1 {
		return nil, false
	}
	return decoded[0].Value, true
}

// comparableForm gives a value in a form that is the same for all that are equal, nil if it equals nothing. It is made once for
// each binding and each message, since a message is compared with many. Inside arrays and tables a void equals only a void.
func comparableForm(v any) []byte {
	form, ok := appendComparable(nil, v)
	if !ok {
		return nil
	}
	return form
}

// appendComparable says false for what holds a NaN. Integers and floats have one width each, and tables are in order; of
// equal keys the first counts, but how many fields were given counts, too.
func appendComparable(dst []byte, v any) (form []byte, ok bool) {
	if i, isInt := amqp091.Int64(v); isInt {
		return amqp091.AppendValue(dst, i), true
	}
	switch v := v.(type) {
	case float32, float64:
		f := float(v)
		if f == 0 {
			f = 0 // -0 too
		}
		return amqp091.AppendValue(dst, f), !math.IsNaN(f)
	case amqp091.Array:
		dst = binary.BigEndian.AppendUint32(append(dst, 'A'), uint32(len(v)))
		for _, e := range v {
			if dst, ok = appendComparable(dst, e); !ok {
				return dst, false
			}
		}
		return dst, true
	case amqp091.Table:
		fields := v.Sorted()
		dst = binary.BigEndian.AppendUint32(append(dst, 'F'), uint32(len(v)))
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(fields)))
		for _, f := range fields {
			if dst, ok = appendComparable(amqp091.AppendValue(dst, f.Key), f.Value); !ok {
				return dst, false
			}
		}
		return dst, true
	}
	return amqp091.AppendValue(dst, v), true
}

// float is NaN, equal to nothing, for what is no float.
func float(v any) float64 {
	switch v := v.(type) {
	case float32:
		return float64(v)
	case float64:
		return v
	}
	return math.NaN()
}
