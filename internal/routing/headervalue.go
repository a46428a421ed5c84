package routing

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"bartleby.mq/internal/amqp091"
)

// headerValue is a binding argument made ready for comparing with encoded headers (BR-6.9): integers are equal across
// widths, floats across widths, and nothing else is equal across types.
type headerValue struct {
	value    any    // as the binding gave it
	integer  int64  // for integers
	isInt    bool   //
	encoding []byte // type byte and value
}

func valueOf(v any) headerValue {
	h := headerValue{value: v}
	h.integer, h.isInt = amqp091.Int64(v)
	amqp091.RangeHeaders(amqp091.AppendTable(nil, amqp091.Table{{Key: "v", Value: v}})[4:],
		func(_ []byte, typ byte, value []byte) bool {
			h.encoding = append([]byte{typ}, value...)
			return false
		})
	return h
}

// matches compares with a header's encoded value. A void argument asks only that the header be there.
func (h *headerValue) matches(typ byte, value []byte) bool {
	if h.value == nil {
		return true
	}
	if i, ok := encodedInteger(typ, value); ok {
		return h.isInt && h.integer == i
	}
	switch typ {
	case 'f', 'd', 'A', 'F':
		decoded, ok := decodeValue(typ, value)
		return ok && equalValues(h.value, decoded)
	}
	return !h.isInt && typ == h.encoding[0] && bytes.Equal(value, h.encoding[1:])
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
	case typ == 'l' && len(b) == 8:
		return int64(binary.BigEndian.Uint64(b)), true
	}
	return 0, false
}

// decodeValue decodes one field as a table of one entry, which is the form the codec reads.
func decodeValue(typ byte, value []byte) (any, bool) {
	table, err := amqp091.DecodeTable(append([]byte{1, 'v', typ}, value...))
	if err != nil || len(table) != 1 {
		return nil, false
	}
	return table[0].Value, true
}

// equalValues compares decoded values. Inside arrays and tables a void equals only a void.
func equalValues(a, b any) bool {
	if i, ok := amqp091.Int64(a); ok {
		j, ok := amqp091.Int64(b)
		return ok && i == j
	}
	switch a := a.(type) {
	case amqp091.Array:
		b, ok := b.(amqp091.Array)
		return ok && slices.EqualFunc(a, b, equalValues)
	case amqp091.Table:
		b, ok := b.(amqp091.Table)
		return ok && slices.EqualFunc(byKey(a), byKey(b), func(x, y amqp091.Field) bool {
			return x.Key == y.Key && equalValues(x.Value, y.Value)
		})
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case float32, float64:
		return float(a) == float(b)
	}
	switch b.(type) {
	case amqp091.Array, amqp091.Table, []byte:
		return false
	}
	return a == b
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

func byKey(t amqp091.Table) amqp091.Table {
	return slices.SortedStableFunc(slices.Values(t), func(a, b amqp091.Field) int { return strings.Compare(a.Key, b.Key) })
}
