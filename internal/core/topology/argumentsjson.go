package topology

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"bartleby.mq/internal/wire/amqp091"
)

// ArgumentsJSON returns arguments as the management API shows them: an object of plain JSON values. Timestamps are
// seconds and binary data is text; the types of fields are lost.
func ArgumentsJSON(t amqp091.Table) map[string]any { return argumentsForm.Object(t) }

// TableForm says how to show values in plain JSON where there are several ways.
type TableForm struct {
	Text   func(string) string // for text and binary data
	Unreal func(float64) any   // for a number that JSON cannot have
}

var argumentsForm = TableForm{
	Text:   func(s string) string { return s },
	Unreal: func(float64) any { return nil },
}

// HeadersForm is how RabbitMQ shows headers.
var HeadersForm = TableForm{
	Text:   Readable,
	Unreal: func(f float64) any { return fmt.Sprint(f) },
}

// Readable is a text, or says that it is none.
func Readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return "Not UTF-8, base64 is: " + base64.StdEncoding.EncodeToString([]byte(s))
}

// Value returns a value as plain JSON.
func (form *TableForm) Value(v any) any { return form.value(v) }

// Object returns a table as an object.
func (form *TableForm) Object(t amqp091.Table) map[string]any {
	object := make(map[string]any, len(t))
	for _, f := range t {
		if _, ok := object[f.Key]; !ok { // among equal keys the first counts
			object[f.Key] = form.value(f.Value)
		}
	}
	return object
}

func (form *TableForm) value(v any) any {
	switch v := v.(type) {
	case nil:
		return "undefined" // as RabbitMQ: its tools and clients do not expect null
	case string:
		return form.Text(v)
	case []byte:
		return form.Text(string(v))
	case amqp091.Timestamp:
		return uint64(v)
	case amqp091.Decimal:
		return float64(v.Value) / math.Pow10(int(v.Scale))
	case amqp091.Table:
		return form.Object(v)
	case amqp091.Array:
		list := make([]any, 0, len(v))
		for _, e := range v {
			list = append(list, form.value(e))
		}
		return list
	case float32:
		return form.value(float64(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return form.Unreal(v)
		}
	}
	return v
}

// ParseArguments turns a decoded JSON object (see ParseJSON) into arguments, sorted by key. Integers become int64
// (l), strings long strings (BR-15.5).
func ParseArguments(object map[string]any) (amqp091.Table, error) {
	table, err := parseArguments(object)
	if err != nil {
		return nil, err
	}
	return table, checkTable(table, maxTable)
}

const (
	// maxTable is the maximal size of a table from HTTP, in bytes of its wire form: that of a frame of the usual
	// size.
	maxTable = 128 << 10
	// maxArguments is the maximal size in bytes of the arguments of a queue, an exchange, a binding or a consumer.
	// maxArgumentValues is the maximal number of values, including those in tables and lists. Arguments stay in
	// memory as long as their object, no alarm stops clients from declaring more, and a decoded value takes up to
	// twenty times its encoded size.
	maxArguments      = 64 << 10
	maxArgumentValues = 1024
	// queueTypeBytes is the largest encoding of x-queue-type with a known type.
	queueTypeBytes = 1 + len("x-queue-type") + 1 + 4 + len("classic")
)

// CheckArguments refuses arguments that are too deep, too large or too many to be kept with a declaration.
func CheckArguments(t amqp091.Table) error {
	values, most := values(t), maxArguments
	if _, ok := t.Get("x-queue-type"); ok { // an exported queue has it even if it was declared without
		values, most = values-1, maxArguments+queueTypeBytes
	}
	if err := checkTable(t, most); err != nil {
		return Refuse(PreconditionFailed, "invalid %s", err)
	}
	if n := values; n > maxArgumentValues {
		return Refuse(PreconditionFailed, "invalid arguments of %d values, the limit is %d", n, maxArgumentValues)
	}
	return nil
}

// values is how many values there are in a value, at all depths.
func values(v any) (n int) {
	switch v := v.(type) {
	case amqp091.Table:
		for _, f := range v {
			n += 1 + values(f.Value)
		}
	case amqp091.Array:
		for _, e := range v {
			n += 1 + values(e)
		}
	}
	return n
}

// checkTable refuses a table that is too deep, has more than most bytes, or names that are not text.
func checkTable(t amqp091.Table, most int) error {
	if err := t.CheckDepth(); err != nil {
		return fmt.Errorf("arguments: tables nested more than %d deep", amqp091.MaxDepth)
	}
	if err := checkNames(t); err != nil {
		return err
	}
	if n := len(amqp091.AppendTable(nil, t)); n > most {
		return fmt.Errorf("arguments of %d bytes, the limit is %d", n, most)
	}
	return nil
}

// checkNames refuses names that are not UTF-8, in a table or in those inside it: JSON has no form for them, and what is
// stored of a binding would be found again as another's.
func checkNames(v any) error {
	switch v := v.(type) {
	case amqp091.Table:
		for _, f := range v {
			if !utf8.ValidString(f.Key) {
				return fmt.Errorf("arguments: name %q is not UTF-8", f.Key)
			}
			if err := checkNames(f.Value); err != nil {
				return err
			}
		}
	case amqp091.Array:
		for _, e := range v {
			if err := checkNames(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseArguments(object map[string]any) (amqp091.Table, error) {
	table := make(amqp091.Table, 0, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if len(key) > math.MaxUint8 {
			return nil, fmt.Errorf("argument name of %d bytes is too long", len(key))
		}
		value, err := amqpValue(object[key])
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", key, err)
		}
		table = append(table, amqp091.Field{Key: key, Value: value})
	}
	return table, nil
}

func amqpValue(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v, nil
	case map[string]any:
		return parseArguments(v)
	case []any:
		array := make(amqp091.Array, 0, len(v))
		for _, e := range v {
			value, err := amqpValue(e)
			if err != nil {
				return nil, err
			}
			array = append(array, value)
		}
		return array, nil
	}
	return nil, fmt.Errorf("cannot be a %T", v)
}
