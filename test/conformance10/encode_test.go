package main

import (
	"encoding/hex"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"bartleby.mq/internal/wire/amqp10"
)

func node(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Content[0]
}

func asIs(s string) string { return s }

// Each value is written as a scenario has it, encoded, and shown as a transcript has it.
func TestValuesOfScenariosAreThoseOfTranscripts(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"5", "int 5"},
		{"-5", "int -5"},
		{"5000000000", "long 5000000000"},
		{"true", "boolean true"},
		{"null", "null"},
		{"1.5", "double 1.5"},
		{"word", `string "word"`},
		{"!symbol word", "symbol word"},
		{"!ubyte 255", "ubyte 255"},
		{"!ushort 65535", "ushort 65535"},
		{"!uint 0", "uint 0"},
		{"!uint 4294967295", "uint 4294967295"},
		{"!ulong 18446744073709551615", "ulong 18446744073709551615"},
		{"!byte -128", "byte -128"},
		{"!short -32768", "short -32768"},
		{"!long 7", "long 7"},
		{"!float 0.5", "float 0.5"},
		{"!char ü", "char 'ü'"},
		{"!timestamp 1000", "timestamp 1000"},
		{"!timestamp now", "timestamp <time>"},
		{"!timestamp now+2h", ""}, // only that it is none of the present, below
		{"!uuid 00010203-0405-0607-0809-0a0b0c0d0e0f", "uuid 00010203-0405-0607-0809-0a0b0c0d0e0f"},
		{"!binary ab", `binary "ab"`},
		{"!hex 00ff", `binary "\x00\xff"`},
		{"!decimal32 22500001", "decimal32 22500001"},
		{"!decimal64 2250000000000001", "decimal64 2250000000000001"},
		{"!decimal128 22500000000000000000000000000001", "decimal128 22500000000000000000000000000001"},
		{"[1, two, []]", `list [int 1, string "two", list []]`},
		{"!array [!symbol a, !symbol b]", "array symbol [a, b]"},
		{"{b: 1, !symbol a: 2}", `map {"b"=int 1, a=int 2}`},
		{"{!uint 1: x}", `map {uint 1=string "x"}`},
		{"!fields {a: 1}", "map {a=int 1}"},
		{"!described [!ulong 99, x]", `described(ulong 99) string "x"`},
		{"!described [!symbol s, x]", `described(symbol s) string "x"`},
		{"!raw 41", "boolean true"},
		{"!accepted {}", "accepted"},
		{"!source {address: /queues/q, durable: unsettled-state, outcomes: [a, b], filter: {f: 1}}", `source address="/queues/q" durable=unsettled-state filter={f=int 1} outcomes=[a, b]`},
		{"!state rejected", "rejected"},
		{"!state {rejected: {error: {condition: c, description: d, info: {i: 1}}}}", `rejected error=(error condition=c description="d" info={i=int 1})`},
		{"!target [!uint 7]", "target address=uint 7"},
		{"!accepted [1, 2]", "accepted field-0=int 1 field-1=int 2"},
		{"!rejected {error: {condition: amqp:internal-error, description: of its own}}", "rejected error=(error condition=amqp:internal-error)"},
	} {
		b, err := encoder{asIs}.value(nil, node(t, c.yaml))
		if err != nil {
			t.Errorf("%s: %v", c.yaml, err)
			continue
		}
		v, rest, err := amqp10.ReadValue(b)
		if err != nil || len(rest) > 0 || v.Check() != nil {
			t.Errorf("%s is encoded as %x: %v", c.yaml, b, err)
			continue
		}
		got := show(v)
		if c.want == "" {
			if strings.Contains(got, "<time>") {
				t.Errorf("%s is shown as %s", c.yaml, got)
			}
		} else if got != c.want {
			t.Errorf("%s is shown as %s, not as %s", c.yaml, got, c.want)
		}
	}
}

func TestValuesThatDoNotFitAreErrors(t *testing.T) {
	for _, text := range []string{"!ubyte 256", "!byte 200", "!uint -1", "!uuid 00", "!char ab", "!decimal32 00", "!hex 0g", "!nothing x", "!array [1, two]",
		"!described [1]", "!source {place: x}", "!state lost", "!role listener", "!map [1]", "!timestamp tomorrow"} {
		if b, err := (encoder{asIs}).value(nil, node(t, text)); err == nil {
			t.Errorf("%s is encoded as %x", text, b)
		}
	}
}

// Fields get the type of their place, a tag is stronger, and what ends a list with nulls is left out.
func TestCompositeFields(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"flow", "{incoming-window: 1, handle: null, drain: true}", "005313c00b0940520140404040404041"},
		{"disposition", "{role: receiver, first: 0, state: accepted}", "005315c009054143404000532445"},
		{"begin", "{next-outgoing-id: !string x}", "005311c0050240a10178"},
		{"end", "{}", "00531745"},
	} {
		b, err := encoder{asIs}.composite(nil, compositeNamed(c.name), node(t, c.yaml))
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.yaml, err)
			continue
		}
		v, _, err := amqp10.ReadValue(b)
		want, _ := hex.DecodeString(c.want)
		if w, _, werr := amqp10.ReadValue(want); err != nil || werr != nil || show(v) != show(w) {
			t.Errorf("%s %s is %x, not %x (%v, %v)", c.name, c.yaml, b, want, err, werr)
		}
	}
}

// The table of composite types is the codec's: every field has the place that the codec gives it.
func TestCompositesAreThoseOfTheCodec(t *testing.T) {
	for _, c := range composites {
		codec := amqp10.NewComposite(c.descriptor)
		if codec == nil {
			t.Errorf("the codec has no %s", c.name)
			continue
		}
		if got := codec.Descriptor().String(); got != "amqp:"+c.name+":list" {
			t.Errorf("%s is the codec's %s", c.name, got)
		}
		// As many fields as there are can be read; one more is an error of the codec's.
		list := func(n int) amqp10.Value {
			b := amqp10.AppendDescriptor(nil, c.descriptor)
			b, start := amqp10.BeginList(b)
			for range n {
				b = amqp10.AppendNull(b)
			}
			return amqp10.MustValue(amqp10.EndCompound(b, start, n))
		}
		tooMany := func(err error) bool { return err != nil && strings.Contains(err.Error(), "more fields") }
		if err := codec.Decode(list(len(c.fields))); tooMany(err) {
			t.Errorf("%s has fewer fields: %v", c.name, err)
		}
		fields := len(c.fields) + 1
		mandatory := strings.Contains(errorOf(codec.Decode(list(len(c.fields)))), "mandatory")
		if err := codec.Decode(list(fields)); !tooMany(err) && !mandatory {
			t.Errorf("%s has more fields than the table", c.name)
		}
	}
}

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
