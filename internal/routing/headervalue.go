package routing

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"bartleby.mq/internal/amqp091"
)

// headerValue is a binding argument made ready for comparing with encoded headers (BR-6.9): integers are equal across
// widths, floats across widths, and nothing else is equal across types.
type headerValue struct {
	value   any   // see inOrder
	integer int64 // if isInt
	isInt   bool
	typ     byte   // the field type
	content []byte // the encoded value, without the length that precedes strings, arrays and tables
}

func valueOf(v any) headerValue {
	h := headerValue{value: inOrder(v)}
	h.integer, h.isInt = amqp091.Int64(v)
	h.typ, h.content = splitField(amqp091.AppendValue(nil, v))
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
		return ok && equalValues(h.value, decoded)
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

// orderedTable is a table made ready for comparing.
type orderedTable struct {
	fields amqp091.Table // see amqp091.Table.Sorted
	given  int           // how many there were, with those whose key another had before
}

// inOrder puts the tables of a value in order, those inside it too. It is done once for each binding and each message, since
// a message is compared with many. The value itself is not changed.
func inOrder(v any) any {
	switch v := v.(type) {
	case amqp091.Array:
		ordered := make(amqp091.Array, len(v))
		for i, e := range v {
			ordered[i] = inOrder(e)
		}
		return ordered
	case amqp091.Table:
		fields := v.Sorted()
		for i := range fields {
			fields[i].Value = inOrder(fields[i].Value)
		}
		return orderedTable{fields, len(v)}
	}
	return v
}

// equalValues compares decoded values that are in order. Inside arrays and tables a void equals only a void.
func equalValues(a, b any) bool {
	if i, ok := amqp091.Int64(a); ok {
		j, ok := amqp091.Int64(b)
		return ok && i == j
	}
	switch a := a.(type) {
	case amqp091.Array:
		b, ok := b.(amqp091.Array)
		return ok && slices.EqualFunc(a, b, equalValues)
	case orderedTable:
		b, ok := b.(orderedTable)
		return ok && a.given == b.given && slices.EqualFunc(a.fields, b.fields, equalFields)
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case float32, float64:
		return float(a) == float(b)
	}
	switch b.(type) {
	case amqp091.Array, orderedTable, []byte:
		return false
	}
	return a == b
}

func equalFields(a, b amqp091.Field) bool { return a.Key == b.Key && equalValues(a.Value, b.Value) }

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
