package topology

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/amqp091"
)

// The JSON form of a typed table is a list of [key, type, value], where type is the letter of the field type on the
// wire. Text that is not UTF-8 and binary data are base64, the former with the type "S64". Floats are text, since JSON
// has no infinities.
//
//	[["x-message-ttl","I",60000],["x-dead-letter-exchange","S","dlx"]]

// MarshalJSON writes the typed form.
func (t typedTable) MarshalJSON() ([]byte, error) {
	fields := make([][3]any, 0, len(t))
	for _, f := range t {
		typ, value, err := typedValue(f.Value)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Key, err)
		}
		fields = append(fields, [3]any{f.Key, typ, value})
	}
	return json.Marshal(fields)
}

// nanPrefix begins the text of a NaN, followed by its bits in hexadecimal: there are many, and no decimal form tells them
// apart.
const nanPrefix = "NaN:"

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
	case amqp091.Table:
		return "F", typedTable(v), nil
	case amqp091.Array:
		list := make([][2]any, 0, len(v))
		for _, e := range v {
			typ, value, err := typedValue(e)
			if err != nil {
				return "", nil, err
			}
			list = append(list, [2]any{typ, value})
		}
		return "A", list, nil
	}
	return "", nil, fmt.Errorf("no AMQP field type for %T", v)
}

// UnmarshalJSON reads the typed form.
func (t *typedTable) UnmarshalJSON(text []byte) error {
	var fields [][3]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*t = make(typedTable, 0, len(fields))
	for _, f := range fields {
		var key, typ string
		if err := json.Unmarshal(f[0], &key); err != nil {
			return err
		}
		if err := json.Unmarshal(f[1], &typ); err != nil {
			return err
		}
		value, err := untypedValue(typ, f[2])
		if err != nil {
			return fmt.Errorf("field %q: %w", key, err)
		}
		*t = append(*t, amqp091.Field{Key: key, Value: value})
	}
	return nil
}

func untypedValue(typ string, text json.RawMessage) (any, error) {
	switch typ {
	case "V":
		return nil, nil
	case "t":
		return decode[bool](text)
	case "b":
		return decode[int8](text)
	case "B":
		return decode[uint8](text)
	case "s":
		return decode[int16](text)
	case "u":
		return decode[uint16](text)
	case "I":
		return decode[int32](text)
	case "i":
		return decode[uint32](text)
	case "l":
		return decode[int64](text)
	case "T":
		return decode[amqp091.Timestamp](text)
	case "S":
		return decode[string](text)
	case "S64":
		b, err := decode[[]byte](text)
		return string(b), err
	case "x":
		return decode[[]byte](text)
	case "f", "d":
		return untypedFloat(typ, text)
	case "D":
		pair, err := decode[[2]uint32](text)
		return amqp091.Decimal{Scale: uint8(pair[0]), Value: pair[1]}, err
	case "F":
		table, err := decode[typedTable](text)
		return amqp091.Table(table), err
	case "A":
		return untypedArray(text)
	}
	return nil, fmt.Errorf("unknown field type %q", typ)
}

func untypedFloat(typ string, text json.RawMessage) (any, error) {
	s, err := decode[string](text)
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

func untypedArray(text json.RawMessage) (any, error) {
	list, err := decode[[][2]json.RawMessage](text)
	if err != nil {
		return nil, err
	}
	array := make(amqp091.Array, 0, len(list))
	for _, e := range list {
		typ, err := decode[string](e[0])
		if err != nil {
			return nil, err
		}
		value, err := untypedValue(typ, e[1])
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	return array, nil
}

func decode[T any](text json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(text, &v)
	return v, err
}
