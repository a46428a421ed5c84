package convert

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp10"
)

// ValueKinds are what BodyText calls bodies of AMQP 1.0 that are no data.
const (
	KindValue    = "amqp-value"
	KindSequence = "amqp-sequence"
)

// BodyText is the body of a message that came by AMQP 1.0 as people read it, if it is no data: a string is as it is, other values are
// much as in JSON. The text has at most limit bytes; cut says that there is more. kind is "" for data and for all other messages:
// these are what Body says.
func BodyText(rec message.Record, limit int) (text []byte, kind string, cut bool) {
	if !rec.HasSections() || endsWithData(rec) {
		return nil, "", false
	}
	t := texter{limit: limit}
	for rest := rec.Body(); len(rest) > 0; {
		d, v, next, err := amqp10.NextSection(rest)
		value := v.Underlying()
		switch {
		case err != nil:
			return nil, "", false
		case d == amqp10.DescriptorAMQPValue:
			kind = KindValue
			t.bare(&value)
		case d == amqp10.DescriptorAMQPSequence:
			if kind == KindSequence {
				t.add("\n")
			}
			kind = KindSequence
			t.value(&value)
		default:
			return nil, "", false
		}
		rest = next
	}
	if text, cut = t.b, len(t.b) > limit; cut {
		text = text[:limit]
		for n := 0; n < utf8.UTFMax-1 && len(text) > 0 && !utf8.Valid(text); n++ {
			text = text[:len(text)-1]
		}
	}
	return text, kind, cut
}

// endsWithData says whether the head ends with the beginning of a data section: then the body is its content, whatever it looks like.
func endsWithData(rec message.Record) bool {
	for head := rec.Sections().Head; len(head) > 0; {
		_, _, rest, err := amqp10.NextSection(head)
		if err != nil {
			return true
		}
		head = rest
	}
	return false
}

// Named is what a message that came by AMQP 1.0 says of its type: the property subject, and the annotation that is the property type of
// AMQP 0-9-1. The property type in the record is not always the latter: it also says that the body is no data.
func Named(rec message.Record) (subject, typ []byte) {
	if !rec.HasSections() {
		return nil, nil
	}
	for head := rec.Sections().Head; len(head) > 0; {
		d, v, rest, err := amqp10.NextSection(head)
		if err != nil {
			break // the beginning of a data section
		}
		switch below := v.Underlying(); d {
		case amqp10.DescriptorMessageAnnotations:
			if v, ok := below.Lookup(annotationType); ok {
				typ = shortText(&v)
			}
		case amqp10.DescriptorProperties:
			subject, _ = below.At(int(amqp10.PropertySubject)).Text()
		}
		head = rest
	}
	return subject, typ
}

// RangePairs calls f with the annotations and application properties of a stored message of AMQP 1.0 that clients of AMQP 0-9-1 may have as
// headers, by the names of these, until it returns false.
func RangePairs(rec message.Record, f func(name []byte, v *amqp10.Value) (more bool)) {
	more := true
	pairs := func(section *amqp10.Value) {
		items := section.ItemsBelow()
		var k, v amqp10.Value
		for more && items.Read(&k) && items.Read(&v) {
			if name := shortText(&k); name != nil {
				more = f(name, &v)
			}
		}
	}
	for head := rec.Sections().Head; len(head) > 0 && more; {
		d, v, rest, err := amqp10.NextSection(head)
		if err != nil {
			return // the beginning of a data section
		}
		switch d {
		case amqp10.DescriptorMessageAnnotations, amqp10.DescriptorApplicationProperties:
			pairs(&v)
		case amqp10.DescriptorProperties:
			below := v.Underlying()
			id, correlation := below.At(int(amqp10.PropertyMessageID)), below.At(int(amqp10.PropertyCorrelationID))
			if more && isHeaderID(&id) {
				more = f(keyMessageID, &id)
			}
			if more && isHeaderID(&correlation) {
				more = f(keyCorrelationID, &correlation)
			}
		}
		head = rest
	}
}

// isHeaderID says whether a message-id or correlation-id is a header, for want of a property that could hold it (converter.id).
func isHeaderID(v *amqp10.Value) bool {
	return v.Type() == amqp10.TypeBinary || v.Type() == amqp10.TypeString && shortText(v) == nil
}

// ValueText is a value as BodyText shows one.
func ValueText(v *amqp10.Value, limit int) string {
	t := texter{limit: limit}
	t.bare(v)
	return string(t.b[:min(len(t.b), limit)])
}

// maxKeyText is how long a key of a map may be that is no text: longer ones are not shown.
const maxKeyText = 1 << 10

// texter writes values until there is more than limit.
type texter struct {
	b     []byte
	limit int
}

func (t *texter) full() bool { return len(t.b) > t.limit }

func (t *texter) add(s string) {
	if !t.full() {
		t.b = append(t.b, s[:min(len(s), t.limit+1)]...)
	}
}

// bare writes a value without quotes.
func (t *texter) bare(v *amqp10.Value) {
	var s []byte
	switch v.Type() {
	case amqp10.TypeString:
		s, _ = v.Text()
	case amqp10.TypeSymbol:
		s, _ = v.Symbol()
	case amqp10.TypeBinary:
		s, _ = v.Binary()
	default:
		t.value(v)
		return
	}
	t.b = append(t.b, s[:min(len(s), t.limit+1)]...)
}

// value writes a value as JSON has it, or a text for what JSON has not.
func (t *texter) value(v *amqp10.Value) {
	if t.full() {
		return
	}
	switch v.Type() {
	case amqp10.TypeNull:
		t.add("null")
	case amqp10.TypeBoolean:
		b, _ := v.Bool()
		t.b = strconv.AppendBool(t.b, b)
	case amqp10.TypeFloat, amqp10.TypeDouble:
		f, _ := v.Float64()
		bits := 64
		if v.Type() == amqp10.TypeFloat {
			bits = 32
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			t.quote(strconv.FormatFloat(f, 'g', -1, bits))
			return
		}
		t.b = strconv.AppendFloat(t.b, f, 'g', -1, bits)
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		t.quote(time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	case amqp10.TypeChar:
		r, _ := v.Char()
		t.quote(string(r))
	case amqp10.TypeUUID:
		id, _ := v.UUID()
		t.quote(string(appendURN(nil, &id)[len(urn):]))
	case amqp10.TypeString:
		s, _ := v.Text()
		t.quote(string(s[:min(len(s), t.limit+1)]))
	case amqp10.TypeSymbol:
		s, _ := v.Symbol()
		t.quote(string(s[:min(len(s), t.limit+1)]))
	case amqp10.TypeBinary:
		s, _ := v.Binary()
		if s = s[:min(len(s), t.limit+1)]; utf8.Valid(s) {
			t.quote(string(s))
		} else {
			t.quote(base64.StdEncoding.EncodeToString(s))
		}
	case amqp10.TypeList, amqp10.TypeArray:
		t.list(v)
	case amqp10.TypeMap:
		t.object(v)
	default:
		t.other(v)
	}
}

// other writes an integer, a decimal by its octets, or what is described.
func (t *texter) other(v *amqp10.Value) {
	if n, ok := v.Uint64(); ok {
		t.b = strconv.AppendUint(t.b, n, 10)
	} else if n, ok := v.Int64(); ok {
		t.b = strconv.AppendInt(t.b, n, 10)
	} else if octets, ok := v.Decimal(); ok {
		t.quote("decimal 0x" + hex.EncodeToString(octets))
	} else if below := v.Underlying(); below.Type() != v.Type() {
		t.value(&below)
	} else {
		t.add("null")
	}
}

func (t *texter) list(v *amqp10.Value) {
	t.add("[")
	items := v.Items()
	var item amqp10.Value
	for first := true; !t.full() && items.Read(&item); first = false {
		if !first {
			t.add(",")
		}
		t.value(&item)
	}
	t.add("]")
}

func (t *texter) object(v *amqp10.Value) {
	t.add("{")
	items := v.Items()
	var key, item amqp10.Value
	for first := true; !t.full() && items.Read(&key) && items.Read(&item); first = false {
		if !first {
			t.add(",")
		}
		switch key.Type() {
		case amqp10.TypeString, amqp10.TypeSymbol, amqp10.TypeChar, amqp10.TypeUUID, amqp10.TypeBinary, amqp10.TypeTimestamp:
			t.value(&key)
		default:
			k := texter{limit: maxKeyText}
			if k.value(&key); k.full() {
				k.b = append(k.b[:0], "…"...) // keys in keys are quoted again and again; a part of one could show what a mask hides of all
			}
			t.quote(string(k.b))
		}
		t.add(":")
		t.value(&item)
	}
	t.add("}")
}

// quote writes a text as JSON does, and leaves all as it is that is no quote, backslash or control character.
func (t *texter) quote(s string) {
	t.add(`"`)
	for _, r := range s {
		switch {
		case t.full():
			return
		case r == '"' || r == '\\':
			t.b = append(t.b, '\\', byte(r))
		case r == '\n':
			t.b = append(t.b, '\\', 'n')
		case r < ' ' || r == 0x7f:
			t.b = append(t.b, '\\', 'u', '0', '0', "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			t.b = utf8.AppendRune(t.b, r)
		}
	}
	t.add(`"`)
}
