package amqp091

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawProperties makes properties of which any may be missing.
func drawProperties(t *rapid.T) PropertyList {
	text := func(name string) *string {
		return rapid.Ptr(rapid.StringN(0, 20, 255), true).Draw(t, name)
	}
	l := PropertyList{
		ContentType: text("content-type"), ContentEncoding: text("content-encoding"),
		DeliveryMode:  rapid.Ptr(rapid.Uint8(), true).Draw(t, "delivery-mode"),
		Priority:      rapid.Ptr(rapid.Uint8(), true).Draw(t, "priority"),
		CorrelationID: text("correlation-id"), ReplyTo: text("reply-to"), Expiration: text("expiration"),
		MessageID: text("message-id"), Timestamp: rapid.Ptr(rapid.Uint64(), true).Draw(t, "timestamp"),
		Type: text("type"), UserID: text("user-id"), AppID: text("app-id"), ClusterID: text("cluster-id"),
	}
	if rapid.Bool().Draw(t, "headers") {
		l.Headers = drawTable(t, 2)
	}
	return l
}

func TestBR8_4_PropertiesComeThroughTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawProperties(t)
		got, err := DecodeProps(AppendPropsFrom(nil, l))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(l, got); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
	})
}

func TestEveryTruncationOfPropertiesIsAnError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := AppendPropsFrom(nil, drawProperties(t))
		for i := range raw {
			_, err := ParseProps(raw[:i])
			var pe *PropertyError
			if !errors.As(err, &pe) || pe.Property == "" {
				t.Fatalf("cut at %d of %d bytes: got error %v", i, len(raw), err)
			}
		}
		if _, err := ParseProps(append(raw, 0)); !errors.Is(err, ErrTrailing) {
			t.Fatalf("with a byte more: got error %v", err)
		}
	})
}

func TestParsePropsErrorsNameTheProperty(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"no flags", "\x80", "property property-flags: value exceeds the data"},
		{"string past the end", "\x80\x00\x05ab", "property content-type: value exceeds the data"},
		{"not UTF-8", "\x00\x80\x01\xff", "property message-id: Malformed UTF-8 in shortstr"},
		{"header key not UTF-8", "\x20\x00\x00\x00\x00\x03\x01\xffV", "property headers: Malformed UTF-8 in shortstr"},
		{"header of no type", "\x20\x00\x00\x00\x00\x03\x01kZ", "property headers: unknown field type"},
		{"headers past the end", "\x20\x00\x00\x00\x00\x04\x01kV", "property headers: value exceeds the data"},
		{"more than was flagged", "\x00\x00x", "property end: data after the last value"},
	} {
		if _, err := ParseProps([]byte(c.raw)); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestPropsPresentButEmpty(t *testing.T) {
	empty := ""
	p, err := ParseProps(AppendPropsFrom(nil, PropertyList{ReplyTo: &empty, Headers: Table{}}))
	if err != nil {
		t.Fatal(err)
	}
	if p.ReplyTo == nil || p.Headers == nil || !p.Has(FlagReplyTo|FlagHeaders) {
		t.Errorf("what is present but empty is nil: %+v", p)
	}
	if p.Expiration != nil || p.Has(FlagExpiration) {
		t.Errorf("what is not there is not nil: %+v", p)
	}
}

func TestHeaderFieldFindsTheFirst(t *testing.T) {
	headers := AppendTable(nil, Table{{"a", int32(1)}, {"k", "first"}, {"k", "second"}, {"v", nil}})[4:]
	typ, value, ok := HeaderField(headers, "k")
	if typ != 'S' || string(value) != "first" || !ok {
		t.Errorf("got %c %q %t", typ, value, ok)
	}
	if typ, value, ok := HeaderField(headers, "v"); typ != 'V' || len(value) != 0 || !ok {
		t.Errorf("void: got %c %q %t", typ, value, ok)
	}
	if _, _, ok := HeaderField(headers, "missing"); ok {
		t.Error("found a header that is not there")
	}
	var keys []string
	RangeHeaders(headers, func(key []byte, _ byte, _ []byte) bool {
		keys = append(keys, string(key))
		return len(keys) < 2
	})
	if !slices.Equal(keys, []string{"a", "k"}) {
		t.Errorf("stopped after two, got %v", keys)
	}
}

// raw returns a field as PropsEdit takes it.
func raw(key string, value any) RawField { return RawField{key, AppendValue(nil, value)} }

// edit sends properties through AppendProps.
func edit(t *testing.T, l PropertyList, e *PropsEdit) PropertyList {
	t.Helper()
	before := AppendPropsFrom(nil, l)
	p, err := ParseProps(before)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeProps(AppendProps(nil, before, &p, e))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDL6_15_DeliveredHeaders(t *testing.T) {
	inner := Table{{"reason", "expired"}, {"count", int64(1)}, {"count", int64(2)}}
	for _, c := range []struct{ name, in, want Table }{
		{Table{}, Table{}, Table{}},
		{Table{}, Table{{"b", nil}, {"a", nil}}, Table{{"a", nil}, {"b", nil}}},
		{Table{}, Table{{"a", "1"}, {"B", "2"}, {"a", "3"}}, Table{{"B", "2"}, {"a", "1"}}},
		{Table{}, Table{{"x-death", Array{inner}}, {"t", inner}}, Table{{"t", inner}, {"x-death", Array{inner}}}},
	} {
		got := edit(t, PropertyList{Headers: c.in}, nil)
		if diff := cmp.Diff(c.want, got.Headers); diff != "" {
			t.Errorf("%v: %s", c.in, diff)
		}
		if got.Headers == nil {
			t.Errorf("%v: the table is gone", c.in)
		}
	}
	if got := edit(t, PropertyList{}, nil); got.Headers != nil {
		t.Errorf("a table appeared: %v", got.Headers)
	}
}

func TestBR1_15_ValuesAreSpelledAsRabbitMQDoes(t *testing.T) {
	const (
		in   = "\x20\x03\x00\x00\x00\x21\x01al\x00\x00\x00\x00\x00\x00\x00\x07\x01bL\x00\x00\x00\x00\x00\x00\x00\x07\x01cF\x00\x00\x00\x04\x01kt\x09"
		want = "\x20\x00\x00\x00\x00\x21\x01al\x00\x00\x00\x00\x00\x00\x00\x07\x01bl\x00\x00\x00\x00\x00\x00\x00\x07\x01cF\x00\x00\x00\x04\x01kt\x01"
	)
	b := []byte(in)
	before := bytes.Clone(b)
	p, err := ParseProps(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := AppendProps(nil, b, &p, nil); string(got) != want {
		t.Errorf("got  % x\nwant % x", got, want)
	}
	if !bytes.Equal(b, before) {
		t.Error("the raw properties were written to")
	}
}

func TestPropsEdit(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		name     string
		in, want PropertyList
		edit     PropsEdit
	}{
		{"add headers to none", PropertyList{}, PropertyList{Headers: Table{{"a", "1"}}}, PropsEdit{Set: []RawField{raw("a", "1")}}},
		{"merge into sorted headers", PropertyList{Headers: Table{{"b", nil}, {"d", nil}}},
			PropertyList{Headers: Table{{"a", "1"}, {"b", nil}, {"c", "2"}, {"d", "3"}, {"e", "4"}}},
			PropsEdit{Set: []RawField{raw("a", "1"), raw("c", "2"), raw("d", "3"), raw("e", "4")}}},
		{"merge into unsorted headers", PropertyList{Headers: Table{{"d", nil}, {"b", nil}, {"d", "second"}}},
			PropertyList{Headers: Table{{"a", "1"}, {"b", nil}, {"d", "3"}}},
			PropsEdit{Set: []RawField{raw("a", "1"), raw("d", "3")}}},
		{"remove a header", PropertyList{Headers: Table{{"BCC", nil}, {"CC", nil}}}, PropertyList{Headers: Table{{"CC", nil}}},
			PropsEdit{Remove: []string{"BCC", "missing"}}},
		{"remove a header that is there twice", PropertyList{Headers: Table{{"b", "1"}, {"a", nil}, {"b", "2"}}}, PropertyList{Headers: Table{{"a", nil}}},
			PropsEdit{Remove: []string{"b"}}},
		{"remove the last header", PropertyList{Headers: Table{{"BCC", nil}}}, PropertyList{Headers: Table{}}, PropsEdit{Remove: []string{"BCC"}}},
		{"remove from no headers", PropertyList{}, PropertyList{}, PropsEdit{Remove: []string{"BCC"}}},
		{"set wins over remove", PropertyList{Headers: Table{{"a", nil}}}, PropertyList{Headers: Table{{"a", "1"}}},
			PropsEdit{Set: []RawField{raw("a", "1")}, Remove: []string{"a"}}},
		{"set expiration and reply-to", PropertyList{Type: text("t")}, PropertyList{Type: text("t"), Expiration: text("50"), ReplyTo: text("r")},
			PropsEdit{Expiration: text("50"), ReplyTo: text("r")}},
		{"remove expiration", PropertyList{Expiration: text("50"), ReplyTo: text("r")}, PropertyList{ReplyTo: text("r")}, PropsEdit{Expiration: text("")}},
		{"nothing", PropertyList{Expiration: text("50")}, PropertyList{Expiration: text("50")}, PropsEdit{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, edit(t, c.in, &c.edit)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAppendPropsOfMoreHeadersThanItsRoom(t *testing.T) {
	var in Table
	for i := range 100 {
		in = append(in, Field{string(rune('a' + i*7%26)), int32(i)})
	}
	if diff := cmp.Diff(in.Sorted(), edit(t, PropertyList{Headers: in}, nil).Headers); diff != "" {
		t.Error(diff)
	}
}

// fatal is a testing.T or a rapid.T.
type fatal interface {
	Helper()
	Fatalf(string, ...any)
}

// checkAppendProps checks what has to hold for whatever ParseProps accepts.
func checkAppendProps(t fatal, raw []byte) {
	t.Helper()
	p, err := ParseProps(raw)
	if err != nil {
		return
	}
	before, err := DecodeProps(raw)
	if err != nil {
		t.Fatalf("ParseProps accepts what DecodeProps does not: %v", err)
	}
	once := AppendProps(nil, raw, &p, nil)
	if Canonical(&p) != bytes.Equal(raw, once) {
		t.Fatalf("Canonical says %t, but % x is written as % x", Canonical(&p), raw, once)
	}
	q, err := ParseProps(once)
	if err != nil {
		t.Fatalf("% x is written as % x: %v", raw, once, err)
	}
	if !Canonical(&q) {
		t.Fatalf("% x is not canonical", once)
	}
	after, err := DecodeProps(once)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if before.Headers != nil {
		before.Headers = before.Headers.Sorted()
	}
	// Compared as bytes, since NaN is not equal to itself.
	if want, got := AppendPropsFrom(nil, before), AppendPropsFrom(nil, after); !bytes.Equal(want, got) || !bytes.Equal(got, once) {
		t.Fatalf("got  % x\nwant % x", got, want)
	}
	checkPropsTable(t, &q, after)
	q.headers = formUnknown
	if byHand := AppendProps(nil, once, &q, nil); !bytes.Equal(byHand, once) {
		t.Fatalf("the fast path writes % x, the slow one % x", once, byHand)
	}
}

// checkPropsTable checks the table of properties p, which are l.
func checkPropsTable(t fatal, p *Props, l PropertyList) {
	b := AppendPropsTable(nil, p)
	v, err := DecodeValue(b[0], b[5:])
	if err != nil {
		t.Fatalf("the table of the properties: %v", err)
	}
	var want Table
	add := func(key string, there bool, value func() any) {
		if there {
			want = append(want, Field{key, value()})
		}
	}
	str := func(key string, s *string) { add(key, s != nil, func() any { return *s }) }
	str("cluster_id", l.ClusterID)
	str("app_id", l.AppID)
	str("user_id", l.UserID)
	str("type", l.Type)
	add("timestamp", l.Timestamp != nil, func() any { return int32(*l.Timestamp) })
	str("message_id", l.MessageID)
	str("expiration", l.Expiration)
	str("reply_to", l.ReplyTo)
	str("correlation_id", l.CorrelationID)
	add("priority", l.Priority != nil, func() any { return int32(*l.Priority) })
	add("delivery_mode", l.DeliveryMode != nil, func() any { return int32(*l.DeliveryMode) })
	deep := Table{{"headers", Table{{"properties", l.Headers}}}}
	add("headers", l.Headers != nil && deep.CheckDepth() == nil, func() any { return l.Headers })
	str("content_encoding", l.ContentEncoding)
	str("content_type", l.ContentType)
	if got, want := AppendTable(nil, v.(Table)), AppendTable(nil, want); !bytes.Equal(got, want) {
		t.Fatalf("the table of the properties is % x, want % x", got, want)
	}
}

func TestAppendPropsIsCanonicalAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkAppendProps(t, AppendPropsFrom(nil, drawProperties(t)))
	})
}

func FuzzParseProps(f *testing.F) {
	text := "text"
	f.Add([]byte{0, 0})
	f.Add(AppendPropsFrom(nil, PropertyList{ContentType: &text, Expiration: &text, Headers: Table{{"b", "1"}, {"a", Array{true}}, {"b", nil}}}))
	f.Add([]byte("\x20\x03\x00\x00\x00\x16\x01bL\x00\x00\x00\x00\x00\x00\x00\x07\x01cF\x00\x00\x00\x04\x01kt\x09"))
	f.Fuzz(func(t *testing.T, raw []byte) { checkAppendProps(t, raw) })
}
