package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// Definition is the content of a policy: keys and JSON values, of the Go types nil, bool, int64, float64, string, []any and
// map[string]any.
type Definition map[string]any

// maxJSONDepth is the maximal nesting of JSON from outside: a table of maximal depth, in a list of objects.
const maxJSONDepth = amqp091.MaxDepth + 4

// MaxJSONValues is the maximal number of values in JSON from outside: definitions of a hundred thousand objects. A value of
// two bytes, such as an empty list, takes a hundred when it is decoded.
const MaxJSONValues = 2_000_000

// JSONBoundError names the limit that JSON from outside exceeds.
type JSONBoundError struct {
	What string
	Most int
}

func (e *JSONBoundError) Error() string {
	return fmt.Sprintf("the JSON has more than %d %s", e.Most, e.What)
}

// ParseJSON decodes JSON from outside into the types of Definition: numbers without a point or exponent become int64. It
// refuses JSON that is nested too deep, or has more than MaxJSONValues, before it decodes it.
func ParseJSON(text []byte) (any, error) { return ParseJSONOf(text, MaxJSONValues) }

// ParseJSONOf is ParseJSON with another limit for the number of values.
func ParseJSONOf(text []byte, values int) (any, error) {
	deepest, many := measure(text)
	if deepest > maxJSONDepth {
		return nil, &JSONBoundError{"levels of values in values", maxJSONDepth}
	}
	if many > values {
		return nil, &JSONBoundError{"values", values}
	}
	return parseJSON(text)
}

// measure is how deep JSON is nested and how many values it has, at least.
func measure(text []byte) (deepest, values int) {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			values++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		case c == ',':
			values++
		}
	}
	return deepest, values
}

// depth is how deep JSON is nested, at least.
func depth(text []byte) int {
	deepest, _ := measure(text)
	return deepest
}

// parseJSON is ParseJSON without limits, for stored JSON.
func parseJSON(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, errNotUTF8 // the decoder would replace the bytes
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return normal(v)
}

// NumberError means that a number does not fit into 64 bits, signed if it is an
// integer. RabbitMQ accepts integers of any size.
type NumberError struct{ Text string }

func (e *NumberError) Error() string {
	text := e.Text
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return "the number " + text + " does not fit into 64 bits"
}

var errNotUTF8 = errors.New("the text is not UTF-8")

// normal replaces json.Number.
func normal(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		var n any
		if strings.ContainsAny(v.String(), ".eE") {
			n, err = v.Float64()
		} else {
			n, err = v.Int64()
		}
		if err != nil {
			return nil, &NumberError{v.String()}
		}
		return n, nil
	case []any:
		for i := range v {
			if v[i], err = normal(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if v[k], err = normal(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// UnmarshalJSON keeps integers integers.
func (d *Definition) UnmarshalJSON(text []byte) error {
	v, err := parseJSON(text)
	if err != nil {
		return err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("a policy definition must be a JSON object")
	}
	*d = m
	return nil
}

// clone copies the top level; values are never changed in place.
func (d Definition) clone() Definition { return maps.Clone(d) }

// asStored copies the definition as it will be read back: JSON writes a whole number without a point, and a number without
// a point is read as an integer.
func (d Definition) asStored() Definition {
	c := d.clone()
	for key, value := range c {
		if f, ok := value.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			c[key] = int64(f)
		}
	}
	return c
}

// integer returns an integer setting.
func (d Definition) integer(key string) *int64 {
	if n, ok := d[key].(int64); ok {
		return &n
	}
	return nil
}

// text returns a string setting.
func (d Definition) text(key string) *string {
	if s, ok := d[key].(string); ok {
		return &s
	}
	return nil
}

// LegacyKeys returns the keys of mirrored classic queues in the definition. Imports drop them with a warning (BR-16.6).
func (d Definition) LegacyKeys() []string {
	var keys []string
	for k := range d {
		if strings.HasPrefix(k, "ha-") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// printable replaces JSON's null by the atom that RabbitMQ prints for it.
func printable(v any) any {
	if v == nil {
		return erlterm.Atom("null")
	}
	return v
}
