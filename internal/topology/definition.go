package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/erlterm"
)

// Definition is what a policy sets: keys and JSON values, of the Go types nil, bool, int64, float64, string, []any and
// map[string]any.
type Definition map[string]any

// ParseJSON decodes JSON into those types: numbers without a point or exponent become int64.
func ParseJSON(text []byte) (any, error) {
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

// normal replaces json.Number.
func normal(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v.Int64()
		}
		return v.Float64()
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
	v, err := ParseJSON(text)
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
