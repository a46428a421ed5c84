package main

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// generated matches names made up by the broker, and addresses of sockets.
var generated = regexp.MustCompile(`amq\.(gen|ctag|dyn|rabbitmq\.reply-to)[-.][A-Za-z0-9_+/=.%-]+|127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+|<\d+\.\d+\.\d+>`)

// term is what RabbitMQ says in its own language of a message, a state or a source that it does not take.
var term = regexp.MustCompile(`(failed to parse message|Unrecognised state|Dynamic source not supported): [^ ].*?( in DISPOSITION)?"( |\)|$)`)

// refusal is why an attach is refused, with an address as RabbitMQ writes it, in several lines if it is long.
var refusal = regexp.MustCompile(`(Attach refused: \{[a-z0-9_]+),.*?\}"( |\)|$)`)

// argumentsHash is what tells bindings with other arguments apart, each broker in its own way.
var argumentsHash = regexp.MustCompile(`;args=[A-Za-z0-9_-]+"`)

// normalise takes the parts out of a line that differ from run to run.
func normalise(line, vhost, node string) string {
	if node != "" {
		line = strings.ReplaceAll(line, `"`+node+`"`, `"<node>"`)
	}
	line = strings.ReplaceAll(line, vhost+"-", "")
	line = strings.ReplaceAll(line, vhost, "<vhost>")
	line = term.ReplaceAllString(line, `$1: <term>$2"$3`)
	line = refusal.ReplaceAllString(line, `$1,<term>}"$2`)
	line = argumentsHash.ReplaceAllString(line, `;args=<hash>"`)
	return generated.ReplaceAllString(line, "<generated>")
}

// showBytes writes octets as text in quotes, or their number and checksum if they are many.
func showBytes(b []byte) string {
	if len(b) > 100 {
		return fmt.Sprintf("(%d bytes, crc32 %08x)", len(b), crc32.ChecksumIEEE(b))
	}
	return fmt.Sprintf("%q", b)
}

// showText writes text in quotes, or its length and checksum if it is long.
func showText(s []byte) string {
	if len(s) > 500 {
		return fmt.Sprintf("(%d bytes, crc32 %08x)", len(s), crc32.ChecksumIEEE(s))
	}
	return fmt.Sprintf("%q", s)
}

// showTimestamp hides a time that was taken from a clock during the run.
func showTimestamp(ms int64) string {
	if d := time.Since(time.UnixMilli(ms)); d > -time.Hour && d < time.Hour {
		return "<time>"
	}
	return fmt.Sprint(ms)
}

// show writes a value with its type.
func show(v amqp10.Value) string {
	if v.Type() == amqp10.TypeDescribed {
		return showDescribed(v)
	}
	if v.IsNull() {
		return "null"
	}
	return v.Type().String() + " " + content(v)
}

// content writes a value without its type.
func content(v amqp10.Value) string {
	switch v.Type() {
	case amqp10.TypeBoolean:
		b, _ := v.Bool()
		return fmt.Sprint(b)
	case amqp10.TypeUbyte, amqp10.TypeUshort, amqp10.TypeUint, amqp10.TypeUlong:
		n, _ := v.Uint64()
		return fmt.Sprint(n)
	case amqp10.TypeLong:
		n, _ := v.Int64() // RabbitMQ makes longs of some timestamps
		return showTimestamp(n)
	case amqp10.TypeByte, amqp10.TypeShort, amqp10.TypeInt:
		n, _ := v.Int64()
		return fmt.Sprint(n)
	case amqp10.TypeFloat, amqp10.TypeDouble:
		f, _ := v.Float64()
		return fmt.Sprintf("%g", f)
	case amqp10.TypeDecimal32, amqp10.TypeDecimal64, amqp10.TypeDecimal128:
		b, _ := v.Decimal()
		return hex.EncodeToString(b)
	case amqp10.TypeChar:
		r, _ := v.Char()
		return fmt.Sprintf("%q", r)
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		return showTimestamp(ms)
	case amqp10.TypeUUID:
		id, _ := v.UUID()
		h := hex.EncodeToString(id[:])
		return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
	case amqp10.TypeBinary:
		b, _ := v.Binary()
		return showBytes(b)
	case amqp10.TypeString:
		s, ok := v.Text()
		if !ok {
			return "(not UTF-8)"
		}
		return showText(s)
	case amqp10.TypeSymbol:
		s, ok := v.Symbol()
		if !ok {
			return "(not ASCII)"
		}
		return string(s)
	case amqp10.TypeList:
		return "[" + strings.Join(items(v, show), ", ") + "]"
	case amqp10.TypeArray:
		return showArray(v)
	case amqp10.TypeMap:
		return "{" + strings.Join(showMap(v), ", ") + "}"
	}
	return "?"
}

func items(v amqp10.Value, f func(amqp10.Value) string) []string {
	var list []string
	it := v.Items()
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		list = append(list, f(e))
	}
	if err := it.Err(); err != nil {
		list = append(list, "broken: "+err.Error())
	}
	return list
}

// showArray writes the type that all elements have once.
func showArray(v amqp10.Value) string {
	first := v.Items()
	e, ok := first.Next()
	if !ok {
		return "[]"
	}
	if e.Type() == amqp10.TypeDescribed {
		return "[" + strings.Join(items(v, show), ", ") + "]"
	}
	return e.Type().String() + " [" + strings.Join(items(v, content), ", ") + "]"
}

// showKey writes a key of a map: a symbol as it is, a string in quotes, others with their types.
func showKey(k amqp10.Value) string {
	switch k.Type() {
	case amqp10.TypeSymbol, amqp10.TypeString:
		return content(k)
	}
	return show(k)
}

// entry is a pair of a map.
type entry struct {
	key   string
	value amqp10.Value
}

// entries are the pairs of a map by their keys: their order on the wire means nothing.
func entries(v amqp10.Value, key func(amqp10.Value) string) []entry {
	var list []entry
	it := v.Items()
	for k, ok := it.Next(); ok; k, ok = it.Next() {
		e, _ := it.Next()
		list = append(list, entry{key(k), e})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].key < list[j].key })
	return list
}

func showMap(v amqp10.Value) []string {
	var list []string
	for _, e := range entries(v, showKey) {
		list = append(list, e.key+"="+show(e.value))
	}
	return list
}

// showDescribed writes a composite type with its fields, anything else with its descriptor.
func showDescribed(v amqp10.Value) string {
	if c := compositeOf(v.Descriptor()); c != nil && v.Underlying().Type() == amqp10.TypeList {
		words := showFields(c, v.Underlying(), nil, nil)
		if c.name == "error" && len(words) > 0 && words[0] == "condition="+amqp10.ConditionInternalError {
			words = words[:1] // what follows is how the broker failed: a term of its own language
		}
		return strings.TrimSpace(c.name + " " + strings.Join(words, " "))
	}
	return "described(" + show(v.DescriptorValue()) + ") " + show(v.Underlying())
}

// showFields writes the fields that are neither null nor their default. Only, if it is not empty, names those to write; special writes those
// for which it returns true in a way of its own.
func showFields(c *compositeType, list amqp10.Value, only []string, special func(name string, v amqp10.Value) (string, bool)) []string {
	var words []string
	i := 0
	it := list.Items()
	for v, ok := it.Next(); ok; v, ok = it.Next() {
		name, typ := fmt.Sprintf("field-%d", i), "any"
		if i < len(c.fields) {
			name, typ = c.fields[i].name, c.fields[i].typ
		}
		i++
		if v.IsNull() || len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		if special != nil {
			if s, ok := special(name, v); ok {
				if s != "" {
					words = append(words, s)
				}
				continue
			}
		}
		text := showField(typ, v)
		if def, ok := defaults[c.name+" "+name]; ok && text == def {
			continue
		}
		words = append(words, name+"="+text)
	}
	return words
}

// showField writes a value without its type if it is the one that the field has.
func showField(typ string, v amqp10.Value) string {
	if v.Type() == amqp10.TypeDescribed {
		s := showDescribed(v)
		if strings.Contains(s, " ") {
			return "(" + s + ")"
		}
		return s
	}
	if v.Type().String() != base(typ) {
		if typ == "symbols" && v.Type() == amqp10.TypeArray {
			return "[" + strings.Join(items(v, content), ", ") + "]"
		}
		if typ == "symbols" && v.Type() == amqp10.TypeSymbol {
			return content(v)
		}
		return show(v)
	}
	if words, ok := choices[typ]; ok {
		n, _ := v.Uint64()
		if b, _ := v.Bool(); b {
			n = 1
		}
		if n < uint64(len(words)) {
			return words[n]
		}
	}
	return content(v)
}

// showMessage writes a message, a line for each annotation and application property.
func showMessage(payload []byte) []string {
	var lines []string
	for rest := payload; len(rest) > 0; {
		var v amqp10.Value
		var err error
		if v, rest, err = amqp10.ReadValue(rest); err != nil {
			return append(lines, "broken: "+err.Error())
		}
		lines = append(lines, showSection(v)...)
	}
	return lines
}

func showSection(v amqp10.Value) []string {
	d, u := v.Descriptor(), v.Underlying()
	plainKey := func(t amqp10.Type) func(amqp10.Value) string {
		return func(k amqp10.Value) string {
			if k.Type() != t {
				return show(k)
			}
			if t == amqp10.TypeSymbol {
				return content(k)
			}
			s, _ := k.Text()
			return string(s)
		}
	}
	switch d {
	case amqp10.DescriptorHeader, amqp10.DescriptorProperties:
		return []string{showDescribed(v)}
	case amqp10.DescriptorDeliveryAnnotations:
		return showEntries("delivery-annotation ", entries(u, plainKey(amqp10.TypeSymbol)))
	case amqp10.DescriptorMessageAnnotations:
		return showEntries("annotation ", entries(u, plainKey(amqp10.TypeSymbol)))
	case amqp10.DescriptorApplicationProperties:
		return showEntries("application-property ", entries(u, plainKey(amqp10.TypeString)))
	case amqp10.DescriptorFooter:
		return showEntries("footer ", entries(u, plainKey(amqp10.TypeSymbol)))
	case amqp10.DescriptorData:
		return []string{"data " + showField("binary", u)}
	case amqp10.DescriptorAMQPSequence:
		return []string{"sequence " + showField("list", u)}
	case amqp10.DescriptorAMQPValue:
		return []string{"value " + show(u)}
	}
	return []string{show(v)}
}

// showEntries writes an entry a line, and an array or a list of maps such as x-opt-deaths one element a line.
func showEntries(what string, list []entry) []string {
	var lines []string
	for _, e := range list {
		if t := e.value.Type(); t == amqp10.TypeArray || t == amqp10.TypeList {
			it := e.value.Items()
			if first, ok := it.Next(); ok && first.Type() == amqp10.TypeMap {
				for i, s := range items(e.value, content) {
					lines = append(lines, fmt.Sprintf("%s%s[%d] = %s", what, e.key, i, s))
				}
				continue
			}
		}
		lines = append(lines, what+e.key+" = "+show(e.value))
	}
	if len(list) == 0 {
		lines = append(lines, strings.TrimSpace(what)+"s: none")
	}
	return lines
}

// nameOf is what scenarios call a message: its body, if that is text.
func nameOf(payload []byte) string {
	m, err := amqp10.ParseMessage(payload)
	if err != nil || len(m.Body) == 0 {
		return ""
	}
	_, v, _, err := amqp10.NextSection(m.Body)
	if err != nil {
		return ""
	}
	u := v.Underlying()
	if b, ok := u.Binary(); ok {
		return string(b)
	}
	if s, ok := u.Text(); ok {
		return string(s)
	}
	return content(u)
}
