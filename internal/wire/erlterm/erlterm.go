// Package erlterm prints values the way RabbitMQ's error texts print them, as Erlang terms, and reads the terms of its older
// configuration files.
//
// It holds no state, and calls nothing that a text names. It prints because clients and tools match on texts such as
// "<<\"x\">> is not a valid overflow value" (DL-4.3).
package erlterm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pair is one element of a property list, printed {<<"key">>,value}.
type Pair struct {
	Key   string
	Value any
}

// Tuple is printed {a,b,c}.
type Tuple []any

// Atom is printed as it stands.
type Atom string

// Format prints v as Erlang's ~tp does on one line. Strings are binaries, []any and []Pair lists, maps Erlang
// maps in the order of their keys. Types with no Erlang counterpart fall back to Go's %v.
func Format(v any) string {
	var b strings.Builder
	write(&b, v)
	return b.String()
}

func write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("undefined")
	case string:
		writeBinary(b, v)
	case []byte:
		writeBinary(b, string(v))
	case float32:
		writeFloat(b, float64(v))
	case float64:
		writeFloat(b, v)
	case Pair:
		b.WriteByte('{')
		writeBinary(b, v.Key)
		b.WriteByte(',')
		write(b, v.Value)
		b.WriteByte('}')
	case Tuple:
		b.WriteByte('{')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, e)
		}
		b.WriteByte('}')
	case []Pair:
		writeList(b, v)
	case []any:
		writeList(b, v)
	case map[string]any:
		writeMap(b, v)
	default: // booleans, integers and Atom print alike in both languages
		fmt.Fprint(b, v)
	}
}

func writeList[E any](b *strings.Builder, list []E) {
	b.WriteByte('[')
	for i, e := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		write(b, e)
	}
	b.WriteByte(']')
}

func writeMap(b *strings.Builder, m map[string]any) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b.WriteString("#{")
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		writeBinary(b, k)
		b.WriteString(" => ")
		write(b, m[k])
	}
	b.WriteByte('}')
}

// writeBinary prints printable text in quotes and anything else as numbers, as Erlang guesses.
func writeBinary(b *strings.Builder, s string) {
	if s == "" {
		b.WriteString("<<>>")
		return
	}
	b.WriteString("<<")
	if printable(s) {
		quote(b, s)
		for _, r := range s {
			if r > unicode.MaxLatin1 {
				b.WriteString("/utf8")
				break
			}
		}
	} else {
		for i := range len(s) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(int(s[i])))
		}
	}
	b.WriteString(">>")
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) && !strings.ContainsRune("\n\r\t\v\b\f\x1b", r) {
			return false
		}
	}
	return true
}

var escapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\v': `\v`, '\b': `\b`, '\f': `\f`, '\x1b': `\e`,
}

func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		if e, ok := escapes[r]; ok {
			b.WriteString(e)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// writeFloat prints the shortest form that reads back, always with a point.
func writeFloat(b *strings.Builder, f float64) {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	mantissa, exponent, scientific := strings.Cut(s, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	b.WriteString(mantissa)
	if scientific {
		b.WriteByte('e')
		b.WriteString(strings.TrimPrefix(exponent, "+"))
	}
}

// String prints s as an Erlang string, in double quotes.
func String(s string) string {
	var b strings.Builder
	quote(&b, s)
	return b.String()
}

// CharList prints bytes as Erlang prints a list of them: as text in quotes if all are printable Latin-1 characters,
// else as numbers.
func CharList(bytes string) string {
	var text, numbers strings.Builder
	text.WriteByte('"')
	numbers.WriteByte('[')
	printable := true
	for i := range len(bytes) {
		r := rune(bytes[i])
		e, escaped := escapes[r]
		if !escaped {
			e = string(r)
		}
		printable = printable && (escaped || r >= ' ' && r < 0x7f || r >= 0xa0)
		text.WriteString(e)
		if i > 0 {
			numbers.WriteByte(',')
		}
		numbers.WriteString(strconv.Itoa(int(r)))
	}
	if printable {
		return text.String() + `"`
	}
	return numbers.String() + "]"
}

// lineWidth is where Erlang's ~p breaks lines.
const lineWidth = 80

// Tagged prints the tuple {tag,value} as ~p does behind so many characters: on two lines if one is too short.
func Tagged(column int, tag, value string) string {
	flat := "{" + tag + "," + value + "}"
	if len(flat) < lineWidth-column-1 {
		return flat
	}
	return "{" + tag + ",\n" + strings.Repeat(" ", column+1) + value + "}"
}
