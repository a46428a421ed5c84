package topology

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/wire/amqp091"
)

// The JSON form of a typed table is a list of [key, type, value], where type is the letter of the field type on the
// wire. Text that is not UTF-8 and binary data are base64, the former with the type "S64". Floats are text, since JSON
// has no infinities.
//
//	[["x-message-ttl","I",60000],["x-dead-letter-exchange","S","dlx"]]

// MarshalJSON writes the typed form.
func (t TypedTable) MarshalJSON() ([]byte, error) {
	b, err := appendFields([]byte{'['}, amqp091.Table(t))
	return append(b, ']'), err
}

// appendFields appends the typed form of a table's fields without the brackets around them. It is one walk over all
// levels: marshalling each nested table on its own would copy the innermost once for each level.
func appendFields(b []byte, t amqp091.Table) (_ []byte, err error) {
	for i, f := range t {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendText(append(b, '['), f.Key); err != nil {
			return nil, err
		}
		if b, err = appendTyped(append(b, ','), f.Value); err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Key, err)
		}
		b = append(b, ']')
	}
	return b, nil
}

// appendTyped appends a type and its value, with the comma between them.
func appendTyped(b []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case amqp091.Table:
		if b, err = appendFields(append(b, `"F",[`...), v); err != nil {
			return nil, err
		}
		return append(b, ']'), nil
	case amqp091.Array:
		b = append(b, `"A",[`...)
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendTyped(append(b, '['), e); err != nil {
				return nil, err
			}
			b = append(b, ']')
		}
		return append(b, ']'), nil
	}
	typ, value, err := typedValue(v)
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, '"'), typ...), `",`...)
	return appendText(b, value)
}

// appendText appends the JSON form of a value without any inside it.
func appendText(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// nanPrefix begins the text of a NaN. Its bits follow in hexadecimal, because no decimal form distinguishes NaNs.
const nanPrefix = "NaN:"

// typedValue returns the type and the JSON form of a value without nested values.
func typedValue(v any) (typ string, value any, err error) {
	switch v := v.(type) {
	case nil:
		return "V", nil, nil
	case bool:
		return "t", v, nil
	case int8:
		return "b", v, nil
	case uint8:
		return "B", v, nil
	case int16:
		return "s", v, nil
	case uint16:
		return "u", v, nil
	case int32:
		return "I", v, nil
	case uint32:
		return "i", v, nil
	case int64:
		return "l", v, nil
	case float32:
		if v != v {
			return "f", nanPrefix + strconv.FormatUint(uint64(math.Float32bits(v)), 16), nil
		}
		return "f", strconv.FormatFloat(float64(v), 'g', -1, 32), nil
	case float64:
		if v != v {
			return "d", nanPrefix + strconv.FormatUint(math.Float64bits(v), 16), nil
		}
		return "d", strconv.FormatFloat(v, 'g', -1, 64), nil
	case amqp091.Decimal:
		return "D", [2]uint32{uint32(v.Scale), v.Value}, nil
	case amqp091.Timestamp:
		return "T", uint64(v), nil
	case string:
		if utf8.ValidString(v) {
			return "S", v, nil
		}
		return "S64", base64.StdEncoding.EncodeToString([]byte(v)), nil
	case []byte:
		return "x", base64.StdEncoding.EncodeToString(v), nil
	}
	return "", nil, fmt.Errorf("no AMQP field type for %T", v)
}

// UnmarshalJSON reads the typed form, in one walk: see appendFields.
func (t *TypedTable) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	table, err := untypedTable(v)
	*t = TypedTable(table)
	return err
}

var errTyped = errors.New("not the form of a typed value")

func untypedTable(v any) (amqp091.Table, error) {
	fields, ok := v.([]any)
	if !ok && v != nil {
		return nil, errTyped
	}
	table := make(amqp091.Table, 0, len(fields))
	for _, v := range fields {
		f, ok := v.([]any)
		if !ok || len(f) != 3 {
			return nil, errTyped
		}
		key, isText := f[0].(string)
		typ, isType := f[1].(string)
		if !isText || !isType {
			return nil, errTyped
		}
		if len(key) > math.MaxUint8 {
			return nil, fmt.Errorf("field name of %d bytes, the limit is %d", len(key), math.MaxUint8)
		}
		value, err := untypedValue(typ, f[2])
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", key, err)
		}
		table = append(table, amqp091.Field{Key: key, Value: value})
	}
	return table, nil
}

func untypedArray(v any) (amqp091.Array, error) {
	list, ok := v.([]any)
	if !ok && v != nil {
		return nil, errTyped
	}
	array := make(amqp091.Array, 0, len(list))
	for _, v := range list {
		e, ok := v.([]any)
		if !ok || len(e) != 2 {
			return nil, errTyped
		}
		typ, ok := e[0].(string)
		if !ok {
			return nil, errTyped
		}
		value, err := untypedValue(typ, e[1])
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	return array, nil
}

func untypedValue(typ string, v any) (any, error) {
	switch typ {
	case "V":
		return nil, nil
	case "t":
		return is[bool](v)
	case "b":
		n, err := signed(v, 8)
		return int8(n), err
	case "B":
		n, err := unsigned(v, 8)
		return uint8(n), err
	case "s":
		n, err := signed(v, 16)
		return int16(n), err
	case "u":
		n, err := unsigned(v, 16)
		return uint16(n), err
	case "I":
		n, err := signed(v, 32)
		return int32(n), err
	case "i":
		n, err := unsigned(v, 32)
		return uint32(n), err
	case "l":
		return signed(v, 64)
	case "T":
		n, err := unsigned(v, 64)
		return amqp091.Timestamp(n), err
	case "S":
		return is[string](v)
	case "S64":
		b, err := binaryText(v)
		return string(b), err
	case "x":
		return binaryText(v)
	case "f", "d":
		return untypedFloat(typ, v)
	case "D":
		return untypedDecimal(v)
	case "F":
		return untypedTable(v)
	case "A":
		return untypedArray(v)
	}
	return nil, fmt.Errorf("unknown field type %q", typ)
}

func is[T any](v any) (T, error) {
	t, ok := v.(T)
	if !ok {
		return t, errTyped
	}
	return t, nil
}

func signed(v any, bits int) (int64, error) {
	n, err := is[json.Number](v)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(n.String(), 10, bits)
}

func unsigned(v any, bits int) (uint64, error) {
	n, err := is[json.Number](v)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(n.String(), 10, bits)
}

func binaryText(v any) ([]byte, error) {
	s, err := is[string](v)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(s)
}

func untypedDecimal(v any) (any, error) {
	pair, ok := v.([]any)
	if !ok || len(pair) != 2 {
		return nil, errTyped
	}
	scale, err := unsigned(pair[0], 8)
	if err != nil {
		return nil, err
	}
	n, err := unsigned(pair[1], 32)
	return amqp091.Decimal{Scale: uint8(scale), Value: uint32(n)}, err
}

func untypedFloat(typ string, v any) (any, error) {
	s, err := is[string](v)
	if err != nil {
		return nil, err
	}
	if hex, ok := strings.CutPrefix(s, nanPrefix); ok {
		bits, err := strconv.ParseUint(hex, 16, 64)
		if typ == "f" {
			return math.Float32frombits(uint32(bits)), err
		}
		return math.Float64frombits(bits), err
	}
	if typ == "f" {
		f, err := strconv.ParseFloat(s, 32)
		return float32(f), err
	}
	return strconv.ParseFloat(s, 64)
}
