package main

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"bartleby.mq/internal/wire/amqp10"
)

// An encoder turns what a scenario says into encoded AMQP 1.0.
type encoder struct {
	expand func(string) string // what $name stands for
}

// tag is the type that a node names itself, "" if it leaves the type open.
func tag(n *yaml.Node) string {
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		return n.Tag[1:]
	}
	return ""
}

// value appends a value of the type that the node names, or of the one that suits it: a number is an int, or a long if
// that is too narrow; text is a string; a sequence a list, a map a map.
func (e encoder) value(dst []byte, n *yaml.Node) ([]byte, error) {
	if n.Kind == yaml.AliasNode {
		return e.value(dst, n.Alias)
	}
	if t := tag(n); t != "" {
		return e.typed(dst, t, n)
	}
	switch n.Kind {
	case yaml.SequenceNode:
		return e.typed(dst, "list", n)
	case yaml.MappingNode:
		return e.typed(dst, "map", n)
	}
	switch n.Tag {
	case "!!null":
		return amqp10.AppendNull(dst), nil
	case "!!bool":
		return e.typed(dst, "boolean", n)
	case "!!int":
		if _, err := strconv.ParseInt(n.Value, 0, 32); err != nil {
			return e.typed(dst, "long", n)
		}
		return e.typed(dst, "int", n)
	case "!!float":
		return e.typed(dst, "double", n)
	}
	return e.typed(dst, "string", n)
}

// field appends a field of a composite type. A tag of the node's own is stronger than the type of the field.
func (e encoder) field(dst []byte, typ string, n *yaml.Node) ([]byte, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return amqp10.AppendNull(dst), nil
	}
	if tag(n) != "" {
		return e.value(dst, n)
	}
	return e.typed(dst, typ, n)
}

func (e encoder) typed(dst []byte, typ string, n *yaml.Node) ([]byte, error) {
	wrong := func(err error) error { return fmt.Errorf("line %d: %s: %w", n.Line, typ, err) }
	integer := func(bits int) (int64, error) { return strconv.ParseInt(n.Value, 0, bits) }
	unsigned := func(bits int) (uint64, error) { return strconv.ParseUint(n.Value, 0, bits) }
	if words, ok := choices[typ]; ok {
		i := slices.Index(words, n.Value)
		if i < 0 {
			return nil, wrong(fmt.Errorf("no %q", n.Value))
		}
		switch base(typ) {
		case "boolean":
			return amqp10.AppendBool(dst, i == 1), nil
		case "uint":
			return amqp10.AppendUint(dst, uint32(i)), nil
		}
		return amqp10.AppendUbyte(dst, uint8(i)), nil
	}
	switch typ {
	case "any":
		return e.value(dst, n)
	case "null":
		return amqp10.AppendNull(dst), nil
	case "boolean":
		return amqp10.AppendBool(dst, n.Value == "true"), nil
	case "ubyte":
		v, err := unsigned(8)
		return finish(amqp10.AppendUbyte(dst, uint8(v)), wrong, err)
	case "ushort":
		v, err := unsigned(16)
		return finish(amqp10.AppendUshort(dst, uint16(v)), wrong, err)
	case "uint":
		v, err := unsigned(32)
		return finish(amqp10.AppendUint(dst, uint32(v)), wrong, err)
	case "ulong":
		v, err := unsigned(64)
		return finish(amqp10.AppendUlong(dst, v), wrong, err)
	case "byte":
		v, err := integer(8)
		return finish(amqp10.AppendByte(dst, int8(v)), wrong, err)
	case "short":
		v, err := integer(16)
		return finish(amqp10.AppendShort(dst, int16(v)), wrong, err)
	case "int":
		v, err := integer(32)
		return finish(amqp10.AppendInt(dst, int32(v)), wrong, err)
	case "long":
		v, err := integer(64)
		return finish(amqp10.AppendLong(dst, v), wrong, err)
	case "float":
		v, err := strconv.ParseFloat(n.Value, 32)
		return finish(amqp10.AppendFloat(dst, float32(v)), wrong, err)
	case "double":
		v, err := strconv.ParseFloat(n.Value, 64)
		return finish(amqp10.AppendDouble(dst, v), wrong, err)
	case "decimal32", "decimal64", "decimal128":
		b, err := hex.DecodeString(n.Value)
		switch {
		case err != nil:
		case typ == "decimal32" && len(b) == 4:
			return amqp10.AppendDecimal32(dst, [4]byte(b)), nil
		case typ == "decimal64" && len(b) == 8:
			return amqp10.AppendDecimal64(dst, [8]byte(b)), nil
		case typ == "decimal128" && len(b) == 16:
			return amqp10.AppendDecimal128(dst, [16]byte(b)), nil
		default:
			err = fmt.Errorf("%d octets", len(b))
		}
		return nil, wrong(err)
	case "char":
		r := []rune(n.Value)
		if len(r) != 1 {
			return nil, wrong(fmt.Errorf("%q is not one character", n.Value))
		}
		return amqp10.AppendChar(dst, r[0]), nil
	case "timestamp":
		v, err := moment(n.Value)
		return finish(amqp10.AppendTimestamp(dst, v), wrong, err)
	case "uuid":
		b, err := hex.DecodeString(strings.ReplaceAll(n.Value, "-", ""))
		if err != nil || len(b) != 16 {
			return nil, wrong(fmt.Errorf("%q is none", n.Value))
		}
		return amqp10.AppendUUID(dst, [16]byte(b)), nil
	case "binary":
		return amqp10.AppendBinary(dst, e.expand(n.Value)), nil
	case "hex", "raw":
		b, err := hex.DecodeString(strings.ReplaceAll(n.Value, " ", ""))
		if typ == "raw" {
			return finish(append(dst, b...), wrong, err)
		}
		return finish(amqp10.AppendBinary(dst, b), wrong, err)
	case "string":
		return amqp10.AppendString(dst, e.expand(n.Value)), nil
	case "symbol":
		return amqp10.AppendSymbol(dst, e.expand(n.Value)), nil
	case "symbols":
		if n.Kind == yaml.ScalarNode {
			return amqp10.AppendSymbol(dst, e.expand(n.Value)), nil
		}
		words := make([]string, 0, len(n.Content))
		for _, c := range n.Content {
			words = append(words, e.expand(c.Value))
		}
		return amqp10.AppendSymbols(dst, words...), nil
	case "message-id":
		if n.Tag == "!!int" {
			return e.typed(dst, "ulong", n)
		}
		return e.typed(dst, "string", n)
	case "list":
		dst, start := amqp10.BeginList(dst)
		for _, c := range n.Content {
			var err error
			if dst, err = e.value(dst, c); err != nil {
				return nil, err
			}
		}
		return amqp10.EndCompound(dst, start, len(n.Content)), nil
	case "map", "fields":
		return e.pairs(dst, n, typ == "fields")
	case "array":
		return e.array(dst, n)
	case "described": // [descriptor, value]
		if len(n.Content) != 2 {
			return nil, wrong(fmt.Errorf("a descriptor and a value are wanted"))
		}
		dst, err := e.value(append(dst, 0x00), n.Content[0])
		if err != nil {
			return nil, err
		}
		return e.value(dst, n.Content[1])
	case "state":
		return e.state(dst, n)
	}
	if c := compositeNamed(typ); c != nil {
		return e.composite(dst, c, n)
	}
	return nil, wrong(fmt.Errorf("there is no such type"))
}

func finish(dst []byte, wrong func(error) error, err error) ([]byte, error) {
	if err != nil {
		return nil, wrong(err)
	}
	return dst, nil
}

// moment reads milliseconds since 1970, or "now", "now+5s", "now-1h".
func moment(s string) (int64, error) {
	rest, ok := strings.CutPrefix(s, "now")
	if !ok {
		return strconv.ParseInt(s, 0, 64)
	}
	now := time.Now()
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return 0, err
		}
		now = now.Add(d)
	}
	return now.UnixMilli(), nil
}

// pairs appends a map. In those whose keys are symbols, a key without a type is one.
func (e encoder) pairs(dst []byte, n *yaml.Node, symbols bool) ([]byte, error) {
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: a map is wanted here", n.Line)
	}
	dst, start := amqp10.BeginMap(dst)
	var err error
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case tag(key) != "":
			dst, err = e.value(dst, key)
		case symbols:
			dst, err = e.typed(dst, "symbol", key)
		default:
			dst, err = e.typed(dst, "string", key)
		}
		if err != nil {
			return nil, err
		}
		if dst, err = e.value(dst, n.Content[i+1]); err != nil {
			return nil, err
		}
	}
	return amqp10.EndCompound(dst, start, len(n.Content)), nil
}

func (e encoder) array(dst []byte, n *yaml.Node) ([]byte, error) {
	var elements []amqp10.Value
	for _, c := range n.Content {
		b, err := e.value(nil, c)
		if err != nil {
			return nil, err
		}
		v, _, err := amqp10.ReadValue(b)
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
	}
	return amqp10.AppendArray(dst, elements...)
}

// state appends an outcome: its name, or a map of its name to its fields.
func (e encoder) state(dst []byte, n *yaml.Node) ([]byte, error) {
	name, fields := n.Value, &yaml.Node{Kind: yaml.MappingNode}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		name, fields = n.Content[0].Value, n.Content[1]
	}
	c := compositeNamed(name)
	if c == nil {
		return nil, fmt.Errorf("line %d: there is no state %q", n.Line, name)
	}
	return e.composite(dst, c, fields)
}

// composite appends a described list. The fields are a map by their names, or a sequence, whose values are taken as they
// are: too many, of wrong types. A source or target that is a word is that address.
func (e encoder) composite(dst []byte, c *compositeType, n *yaml.Node) ([]byte, error) {
	dst = amqp10.AppendDescriptor(dst, c.descriptor)
	switch {
	case n.Kind == yaml.SequenceNode:
		return e.typed(dst, "list", n)
	case n.Kind == yaml.ScalarNode && len(c.fields) > 0 && n.Tag != "!!null":
		dst, start := amqp10.BeginList(dst)
		dst, err := e.field(dst, c.fields[0].typ, n)
		if err != nil {
			return nil, err
		}
		return amqp10.EndCompound(dst, start, 1), nil
	}
	given := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		given[n.Content[i].Value] = n.Content[i+1]
	}
	dst, start := amqp10.BeginList(dst)
	count, nulls := 0, 0
	for _, f := range c.fields {
		v := given[f.name]
		delete(given, f.name)
		if v == nil {
			nulls++
			continue
		}
		for range nulls {
			dst = amqp10.AppendNull(dst)
		}
		var err error
		if dst, err = e.field(dst, f.typ, v); err != nil {
			return nil, err
		}
		count, nulls = count+nulls+1, 0
	}
	for name := range given {
		return nil, fmt.Errorf("line %d: %s has no field %q", n.Line, c.name, name)
	}
	return amqp10.EndCompound(dst, start, count), nil
}

// section appends a section of a message by its name.
func (e encoder) section(dst []byte, name string, n *yaml.Node) ([]byte, error) {
	if c := compositeNamed(name); c != nil && tag(n) == "" {
		return e.composite(dst, c, n)
	}
	d, ok := sections[name]
	if !ok {
		if c := compositeNamed(name); c != nil {
			return e.value(amqp10.AppendDescriptor(dst, c.descriptor), n)
		}
		return nil, fmt.Errorf("line %d: there is no section %q", n.Line, name)
	}
	dst = amqp10.AppendDescriptor(dst, d)
	switch {
	case tag(n) != "":
	case name == "data":
		return e.typed(dst, "binary", n)
	case name == "delivery-annotations" || name == "message-annotations" || name == "footer":
		return e.typed(dst, "fields", n)
	}
	return e.value(dst, n)
}
