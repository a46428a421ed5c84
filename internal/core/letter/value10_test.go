package letter_test

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

func value10(v []byte) []byte {
	return append(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue), v...)
}

func list10(items ...[]byte) []byte {
	b, start := amqp10.BeginList(nil)
	return amqp10.EndCompound(append(b, slices.Concat(items...)...), start, len(items))
}

// A body that is a value is shown as what it says, within the bound; data is shown as it is, whatever it looks like.
func TestTextsOfValues(t *testing.T) {
	object, start := amqp10.BeginMap(nil)
	object = amqp10.EndCompound(slices.Concat(object, str10("a\"b"), amqp10.AppendLong(nil, -1), amqp10.AppendUint(nil, 7), list10(amqp10.AppendNull(nil), amqp10.AppendBool(nil, true), amqp10.AppendDouble(nil, 1.5))), start, 4)
	sequence := append(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPSequence), list10(str10("x"))...)
	for name, c := range map[string]struct {
		body       []byte
		limit      int
		text, kind string
		cut        bool
	}{
		"a string":      {value10(str10("héllo\n")), 100, "héllo\n", "amqp-value", false},
		"a string, cut": {value10(str10("héllo")), 2, "h", "amqp-value", true},
		"a map":         {value10(object), 100, `{"a\"b":-1,"7":[null,true,1.5]}`, "amqp-value", false},
		"a map, cut":    {value10(object), 10, `{"a\"b":-1`, "amqp-value", true},
		"a long list":   {value10(list10(str10(strings.Repeat("a", 1000)), str10("b"))), 5, `["aaa`, "amqp-value", true},
		"a uuid":        {value10(amqp10.AppendUUID(nil, [16]byte{1})), 100, `"01000000-0000-0000-0000-000000000000"`, "amqp-value", false},
		"nothing":       {value10(amqp10.AppendNull(nil)), 100, "null", "amqp-value", false},
		"sequences":     {slices.Concat(sequence, sequence), 100, "[\"x\"]\n[\"x\"]", "amqp-sequence", false},
		"data":          {amqp10.AppendData(nil, value10(str10("s"))), 100, "", "", false},
	} {
		text, kind, cut := convert.BodyText(record10(t, c.body), c.limit)
		if string(text) != c.text || kind != c.kind || cut != c.cut {
			t.Errorf("%s: %q, %s, %v", name, text, kind, cut)
		}
	}
}

// The type of a letter is what the message says of it: never how its body is encoded. So a group has letters of all encodings.
func TestTheTypeOfALetterIsNotItsEncoding(t *testing.T) {
	subject := amqp10.Properties{Subject: []byte("order.placed")}
	typed := mapOf(amqp10.DescriptorMessageAnnotations, sym10("x-basic-type"), str10("order"))
	groups := map[string]letter.Key{}
	for _, c := range []struct {
		name, want   string
		before, body []byte
	}{
		{"value", "", nil, bodies10["value"]}, {"data", "", nil, bodies10["data"]},
		{"value with a subject", "order.placed", subject.Append(nil), bodies10["value"]}, {"data with a subject", "order.placed", subject.Append(nil), bodies10["data"]},
		{"value with a type", "order", slices.Concat(typed, subject.Append(nil)), bodies10["value"]}, {"data with a type", "order", slices.Concat(typed, subject.Append(nil)), bodies10["data"]},
	} {
		l, ok := letter.NewReader(nil).Read(record10(t, slices.Concat(c.before, c.body)), died(1000))
		if !ok || l.Type() != c.want {
			t.Errorf("%s: type %q, want %q", c.name, l.Type(), c.want)
		}
		if before, ok := groups[c.want]; ok && before != l.Group() {
			t.Errorf("%s: group %+v, want %+v", c.name, l.Group(), before)
		}
		groups[c.want] = l.Group()
	}
	kind := "amqp-1.0"
	l, _ := letter.NewReader(nil).Read(recordWith(amqp091.PropertyList{Type: &kind}, "b"), died(1000))
	if l.Type() != "" {
		t.Errorf("of AMQP 0-9-1: type %q", l.Type())
	}
}

// A search in bodies finds what the text of a value shows.
func TestSearchInValues(t *testing.T) {
	rec := record10(t, value10(list10(str10("a"), amqp10.AppendLong(nil, 4711))))
	q, err := letter.ParseQuery("/", map[string][]string{"body": {`"a",4711`}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if l, _ := letter.NewReader(nil).Read(rec, died(1000)); !q.Match(l) {
		t.Error("it is not found")
	}
}
