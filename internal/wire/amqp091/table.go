package amqp091

import (
	"slices"
	"strings"
)

// A Table is a field table with its fields in the order of the wire.
type Table []Field

// A Field is a key of a table with its value. The values are, by type octet (BR-1.15):
//
//	t bool     b int8   s int16   I int32   l int64   f float32   S string   A Array
//	V nil      B uint8  u uint16  i uint32            d float64   x []byte   F Table
//	T Timestamp                                       D Decimal
//
// The octet L is read as l, as RabbitMQ does.
type Field struct {
	Key   string
	Value any
}

// An Array is a list of field values.
type Array []any

// A Timestamp is seconds since 1970, as the field type T carries them.
type Timestamp uint64

// A Decimal is Value divided by 10 to the power of Scale.
type Decimal struct {
	Scale uint8
	Value uint32
}

// CheckDepth returns ErrTooDeep for a table that DecodeTable would refuse as too deep.
func (t Table) CheckDepth() error { return checkDepth(t, 0) }

func checkDepth(v any, depth int) error {
	switch v := v.(type) {
	case Table:
		if depth == maxDepth {
			return ErrTooDeep
		}
		for _, f := range v {
			if err := checkDepth(f.Value, depth+1); err != nil {
				return err
			}
		}
	case Array:
		if depth == maxDepth {
			return ErrTooDeep
		}
		for _, e := range v {
			if err := checkDepth(e, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Get returns the value of the first field with the key.
func (t Table) Get(key string) (value any, ok bool) {
	for _, f := range t {
		if f.Key == key {
			return f.Value, true
		}
	}
	return nil, false
}

// Sorted returns the table sorted by the bytes of its keys, of equal keys only the
// first, which is how headers are delivered (DL-6.15). The tables inside it stay as
// they are: RabbitMQ sorts the top level only, and the order inside x-death is its own
// (DL-7.1). The receiver is not changed.
func (t Table) Sorted() Table {
	sorted := slices.Clone(t)
	slices.SortStableFunc(sorted, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(sorted, func(a, b Field) bool { return a.Key == b.Key })
}
