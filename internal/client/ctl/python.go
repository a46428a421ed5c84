package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// rabbitmqadmin is a program in Python: values look in its output as Python prints them, and objects keep the order of
// their keys.

// ordered is a JSON object whose members keep their order.
type ordered []member

type member struct {
	key   string
	value any
}

// parseOrdered reads a JSON document. Objects are ordered, numbers keep their text.
func parseOrdered(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, err := orderedValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON document")
	}
	return v, nil
}

func orderedValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := orderedValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o, at := ordered{}, map[string]int{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := orderedValue(d)
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			if i, again := at[name]; again {
				o[i].value = v
				continue
			}
			at[name] = len(o)
			o = append(o, member{name, v})
		}
		_, err = d.Token()
		return o, err
	}
	return token, nil
}

// pythonText prints a scalar.
func pythonText(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case json.Number:
		return pythonNumber(v)
	}
	return fmt.Sprint(v)
}

// pythonNumber prints a number: the shortest text that reads back equal, with an exponent from 1e16 on and below 0.0001.
func pythonNumber(n json.Number) string {
	if !strings.ContainsAny(n.String(), ".eE") {
		return n.String()
	}
	f, err := n.Float64()
	if err != nil {
		return n.String()
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return text
	}
	text = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// pythonJSON is a value as JSON on one line, in ASCII.
func pythonJSON(v any) string {
	var b strings.Builder
	writeJSON(&b, v, ", ", nil)
	return b.String()
}

// prettyJSON is a value as JSON, one member a line, with sorted keys.
func prettyJSON(v any) string {
	var b strings.Builder
	writeJSON(&b, v, ",", new(int))
	return b.String()
}

// writeJSON writes a value. depth is nil if all is on one line.
func writeJSON(b *strings.Builder, v any, comma string, depth *int) {
	line := func() {
		if depth != nil {
			b.WriteString("\n" + strings.Repeat("  ", *depth))
		}
	}
	block := func(brackets string, n int, element func(i int)) {
		b.WriteByte(brackets[0])
		if n > 0 {
			if depth != nil {
				*depth++
			}
			for i := range n {
				if i > 0 {
					b.WriteString(comma)
				}
				line()
				element(i)
			}
			if depth != nil {
				*depth--
			}
			line()
		}
		b.WriteByte(brackets[1])
	}
	switch v := v.(type) {
	case ordered:
		if depth != nil {
			v = slices.Clone(v)
			slices.SortFunc(v, func(a, b member) int { return strings.Compare(a.key, b.key) })
		}
		block("{}", len(v), func(i int) {
			writeString(b, v[i].key, depth == nil)
			b.WriteString(": ")
			writeJSON(b, v[i].value, comma, depth)
		})
	case []any:
		block("[]", len(v), func(i int) { writeJSON(b, v[i], comma, depth) })
	case string:
		writeString(b, v, depth == nil)
	case json.Number:
		b.WriteString(pythonNumber(v))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	default:
		b.WriteString("null")
	}
}

// writeString writes a text in quotes.
func writeString(b *strings.Builder, text string, ascii bool) {
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteByte('\\')
			b.WriteByte("btn.fr"[r-'\b'])
		case r < ' ' || ascii && r >= 0x7f && r <= 0xffff && r != 0x7f:
			fmt.Fprintf(b, `\u%04x`, r)
		case ascii && r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
