package amqp10

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// section is a section that is a map of the encoded keys and values.
func section(d Descriptor, items ...[]byte) []byte {
	b, start := BeginMap(AppendDescriptor(nil, d))
	for _, item := range items {
		b = append(b, item...)
	}
	return EndCompound(b, start, len(items))
}

func key(s string) []byte  { return AppendSymbol(nil, s) }
func text(s string) []byte { return AppendString(nil, s) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// sections of a message with everything.
var (
	headerPart      = (&Header{Durable: true, TTL: Some(uint32(60_000)), DeliveryCount: 2}).Append(nil)
	deliveryPart    = section(DescriptorDeliveryAnnotations, key("x-hop"), text("1"))
	annotationsPart = section(DescriptorMessageAnnotations, key("x-opt-routing-key"), text("k"), key("x-opt-deaths"), AppendNull(nil))
	propertiesPart  = (&Properties{MessageID: MustValue(AppendString(nil, "m-1")), To: []byte("/exchanges/x/k"), CorrelationID: MustValue(AppendUUID(nil, [16]byte{9})), ContentType: []byte("text/plain"), CreationTime: Some(int64(1700000000000)), GroupSequence: Some(uint32(3))}).Append(nil)
	applicationPart = section(DescriptorApplicationProperties, text("attempt"), AppendInt(nil, 3), text("tenant"), text("acme"))
	bodyPart        = AppendData(AppendData(nil, []byte("hello ")), []byte("world"))
	footerPart      = section(DescriptorFooter, key("crc"), AppendUint(nil, 7))
)

func TestSectionsOfAMessage(t *testing.T) {
	b := join(headerPart, deliveryPart, annotationsPart, propertiesPart, applicationPart, bodyPart, footerPart)
	m, err := ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][2][]byte{
		"header": {m.Header.Append(nil), headerPart}, "delivery-annotations": {m.DeliveryAnnotations.Append(nil), deliveryPart},
		"message-annotations": {m.MessageAnnotations.Append(nil), annotationsPart}, "properties": {m.Properties.Append(nil), propertiesPart},
		"application-properties": {m.ApplicationProperties.Append(nil), applicationPart}, "body": {m.Body, bodyPart}, "footer": {m.Footer, footerPart},
		"bare message": {m.Bare, join(propertiesPart, applicationPart, bodyPart)}, "what is kept": {m.Kept, join(annotationsPart, propertiesPart, applicationPart, bodyPart)},
	} {
		if !bytes.Equal(c[0], c[1]) {
			t.Errorf("%s: got % x, want % x", name, c[0], c[1])
		}
	}
	if m.BodyKind != DescriptorData {
		t.Errorf("the body is %v", m.BodyKind)
	}
	if v, ok := m.ApplicationProperty("tenant"); !ok || fmt.Sprint(model(v)) != "{string acme}" {
		t.Errorf("tenant is %v", model(v))
	}
	if _, ok := m.ApplicationProperty("none"); ok {
		t.Error("a property that is not there")
	}
	if v, ok := m.MessageAnnotation("x-opt-routing-key"); !ok || fmt.Sprint(model(v)) != "{string k}" {
		t.Errorf("x-opt-routing-key is %v", model(v))
	}
	var p Properties
	if err := p.Decode(m.Properties); err != nil {
		t.Fatal(err)
	}
	for property, want := range map[Property]Value{PropertyMessageID: p.MessageID, PropertyCorrelationID: p.CorrelationID} {
		if got := m.Property(property); !got.Equal(want) {
			t.Errorf("property %d is %v", property, model(got))
		}
	}
	if to, ok := m.Property(PropertyTo).Text(); !ok || string(to) != "/exchanges/x/k" {
		t.Errorf("to is %q", to)
	}
	if ms, ok := m.Property(PropertyCreationTime).Timestamp(); !ok || ms != 1700000000000 {
		t.Errorf("creation-time is %d", ms)
	}
	if v := m.Property(PropertyReplyToGroupID); v.Type() != TypeNone {
		t.Errorf("reply-to-group-id is %v", model(v))
	}
	if v := m.Property(PropertyUserID); !v.IsNull() {
		t.Errorf("user-id is %v", model(v))
	}
}

func TestPropertiesHaveTheirPlaces(t *testing.T) {
	for property, name := range map[Property]string{
		PropertyMessageID: "message-id", PropertyUserID: "user-id", PropertyTo: "to", PropertySubject: "subject", PropertyReplyTo: "reply-to",
		PropertyCorrelationID: "correlation-id", PropertyContentType: "content-type", PropertyContentEncoding: "content-encoding",
		PropertyAbsoluteExpiryTime: "absolute-expiry-time", PropertyCreationTime: "creation-time", PropertyGroupID: "group-id",
		PropertyGroupSequence: "group-sequence", PropertyReplyToGroupID: "reply-to-group-id",
	} {
		if got := propertiesType.fields[property].name; got != name {
			t.Errorf("property %d is %s, want %s", property, got, name)
		}
	}
}

func TestSectionNumbers(t *testing.T) {
	for d, place := range sectionOrder {
		if (place != 0) != (sectionNumbers[d] != "") {
			t.Errorf("%v has place %d and number %q", Descriptor(d), place, sectionNumbers[d])
		}
	}
}

func TestBodiesOfMessages(t *testing.T) {
	sequence := join(AppendDescriptor(nil, DescriptorAMQPSequence), []byte("\xc0\x02\x01\x41"))
	value := join(AppendDescriptor(nil, DescriptorAMQPValue), text("v"))
	for name, c := range map[string]struct {
		b    []byte
		want Descriptor
	}{
		"nothing": {nil, 0}, "no body": {headerPart, 0}, "data": {AppendData(nil, nil), DescriptorData},
		"sequences": {join(sequence, sequence), DescriptorAMQPSequence}, "a value": {value, DescriptorAMQPValue},
		"a value that is described": {join(AppendDescriptor(nil, DescriptorAMQPValue), new(Declare).Append(nil)), DescriptorAMQPValue},
		"a symbolic section":        {append(AppendSymbolicDescriptor(nil, "amqp:data:binary"), AppendBinary(nil, "d")...), DescriptorData},
	} {
		m, err := ParseMessage(c.b)
		if err != nil || m.BodyKind != c.want || m.Check() != nil {
			t.Errorf("%s: got %v, error %v, %v", name, m.BodyKind, err, m.Check())
		}
		if c.want != 0 && !bytes.Equal(m.Body, c.b) {
			t.Errorf("%s: got % x", name, m.Body)
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	value := join(AppendDescriptor(nil, DescriptorAMQPValue), AppendNull(nil))
	for _, c := range []struct {
		name string
		b    []byte
		want error
		text string
	}{
		{"no section", []byte("hello"), ErrFormatCode, "message: unknown format code (3.2)"},
		{"a value", AppendNull(nil), ErrSection, "message: section out of place (3.2)"},
		{"an outcome", new(Accepted).Append(nil), ErrSection, "message: section out of place (3.2)"},
		{"two headers", join(headerPart, headerPart), ErrSection, "message: header: section out of place (3.2.1)"},
		{"header after body", join(bodyPart, headerPart), ErrSection, "message: header: section out of place (3.2.1)"},
		{"two values", join(value, value), ErrSection, "message: amqp-value: section out of place (3.2.8)"},
		{"data and value", join(bodyPart, value), ErrSection, "message: amqp-value: section out of place (3.2.8)"},
		{"two footers", join(footerPart, footerPart), ErrSection, "message: footer: section out of place (3.2.9)"},
		{"data on both sides of the footer", join(bodyPart, footerPart, bodyPart), ErrSection, "message: data: section out of place (3.2.6)"},
		{"data after the footer", join(footerPart, bodyPart), ErrSection, "message: data: section out of place (3.2.6)"},
		{"data that is a string", join(AppendDescriptor(nil, DescriptorData), text("s")), ErrType, "message: data: value of another type (3.2.6)"},
		{"a header that is a map", section(DescriptorHeader), ErrType, "message: header: value of another type (3.2.1)"},
		{"annotations with a string for a key", section(DescriptorMessageAnnotations, text("k"), AppendNull(nil)), ErrType, "message: message-annotations: value of another type (3.2.3)"},
		{"application-properties with a symbol for a key", section(DescriptorApplicationProperties, key("k"), AppendNull(nil)), ErrType, "message: application-properties: value of another type (3.2.5)"},
		{"a string that is not UTF-8", section(DescriptorApplicationProperties, text("k"), text("\xff")), ErrUTF8, "message: application-properties: string is not UTF-8 (3.2.5)"},
		{"a value in the body", join(AppendDescriptor(nil, DescriptorAMQPValue), []byte("\xc0\x03\x01\x56\x02")), ErrValue, "message: amqp-value: no value of the type (3.2.8)"},
		{"a footer", section(DescriptorFooter, text("k"), AppendNull(nil)), ErrType, "message: footer: value of another type (3.2.9)"},
		{"a priority that is a string", join(AppendDescriptor(nil, DescriptorHeader), []byte("\xc0\x05\x02\x40\xa1\x01x")), ErrType, "header: priority: value of another type (3.2.1)"},
		{"a message-id that is a symbol", join(AppendDescriptor(nil, DescriptorProperties), []byte("\xc0\x04\x01\xa3\x01x")), ErrType, "properties: message-id: value of another type (3.2.4)"},
	} {
		m, err := ParseMessage(c.b)
		if err == nil {
			err = m.Check()
		}
		var de *DecodeError
		if !errors.Is(err, c.want) || !errors.As(err, &de) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
			continue
		}
		if diff := cmp.Diff(c.text, err.Error()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestEveryTruncationOfAMessageIsAnErrorOrAMessage(t *testing.T) {
	b := join(headerPart, annotationsPart, propertiesPart, applicationPart, bodyPart, footerPart)
	whole := 0
	for i := range b {
		m, err := ParseMessage(b[:i])
		if err != nil {
			continue
		}
		whole++ // it ends between two sections
		if err := m.Check(); err != nil {
			t.Errorf("cut at %d of %d: %v", i, len(b), err)
		}
	}
	if whole != 7 {
		t.Errorf("%d cuts are between sections, want 7: the first before everything", whole)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(join(headerPart, deliveryPart, annotationsPart, propertiesPart, applicationPart, bodyPart, footerPart))
	f.Add(join(propertiesPart, AppendDescriptor(nil, DescriptorAMQPValue), nested(5)))
	f.Add(join(AppendDescriptor(nil, DescriptorAMQPSequence), []byte("\xc0\x02\x01\x41"), AppendDescriptor(nil, DescriptorAMQPSequence), []byte("\x45")))
	f.Add([]byte(strings.Repeat("\x00\x53\x75\xa0\x00", 9)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		var again []byte
		for _, v := range []Value{m.Header, m.DeliveryAnnotations, m.MessageAnnotations} {
			if v.Type() != TypeNone {
				again = v.Append(again)
			}
		}
		if again = append(append(again, m.Bare...), m.Footer...); !bytes.Equal(again, b) {
			t.Fatalf("read % x, written % x", b, again)
		}
		if m.Kept != nil && !bytes.HasSuffix(m.Kept, m.Bare) {
			t.Fatalf("% x is kept of % x", m.Kept, b)
		}
		checked := m.Check() == nil
		for p := PropertyMessageID; p <= PropertyReplyToGroupID; p++ {
			v := m.Property(p)
			if err := v.Check(); checked && err != nil {
				t.Fatalf("property %d: %v", p, err)
			}
		}
		if !checked {
			return
		}
		for _, v := range []Value{m.DeliveryAnnotations, m.MessageAnnotations, m.ApplicationProperties} {
			if v.Type() != TypeNone {
				compareWalk(t, v)
			}
		}
	})
}
