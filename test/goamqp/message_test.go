package goamqp

import (
	"fmt"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawScalar makes a value of any type that go-amqp knows and that is no list, map or array.
func drawScalar(t *rapid.T) any {
	switch rapid.IntRange(0, 15).Draw(t, "kind") {
	case 0:
		return rapid.Bool().Draw(t, "boolean")
	case 1:
		return rapid.Uint8().Draw(t, "ubyte")
	case 2:
		return rapid.Uint16().Draw(t, "ushort")
	case 3:
		return rapid.Uint32().Draw(t, "uint")
	case 4:
		return rapid.Uint64().Draw(t, "ulong")
	case 5:
		return rapid.Int8().Draw(t, "byte")
	case 6:
		return rapid.Int16().Draw(t, "short")
	case 7:
		return rapid.Int32().Draw(t, "int")
	case 8:
		return rapid.Int64().Draw(t, "long")
	case 9:
		return rapid.Float32().Draw(t, "float")
	case 10:
		return rapid.Float64().Draw(t, "double")
	case 11:
		return time.UnixMilli(rapid.Int64Range(-1e12, 1e13).Draw(t, "timestamp")).UTC()
	case 12:
		return amqp.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	case 13:
		return rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "binary")
	case 14:
		return nil
	}
	return rapid.StringN(0, 40, 400).Draw(t, "string")
}

// drawAny is drawScalar with lists and maps, and arrays of every type that go-amqp has.
func drawAny(t *rapid.T, depth int) any {
	if depth == 0 {
		return drawScalar(t)
	}
	switch rapid.IntRange(0, 5).Draw(t, "shape") {
	case 0:
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return drawAny(t, depth-1) }), 0, 5).Draw(t, "list")
	case 1:
		m := map[string]any{}
		for range rapid.IntRange(1, 4).Draw(t, "pairs") {
			m[rapid.StringN(0, 20, 200).Draw(t, "key")] = drawAny(t, depth-1)
		}
		return m
	case 2:
		return drawArray(t)
	}
	return drawScalar(t)
}

func drawArray(t *rapid.T) any {
	const most = 20
	switch rapid.IntRange(0, 13).Draw(t, "array") {
	case 0:
		return rapid.SliceOfN(rapid.Bool(), 1, most).Draw(t, "booleans")
	case 1:
		return rapid.SliceOfN(rapid.Uint16(), 1, most).Draw(t, "ushorts")
	case 2:
		return rapid.SliceOfN(rapid.Uint32(), 1, most).Draw(t, "uints")
	case 3:
		return rapid.SliceOfN(rapid.Uint64(), 1, most).Draw(t, "ulongs")
	case 4:
		return rapid.SliceOfN(rapid.Int8(), 1, most).Draw(t, "bytes")
	case 5:
		return rapid.SliceOfN(rapid.Int16(), 1, most).Draw(t, "shorts")
	case 6:
		// An array with one below -128 go-amqp 1.7.0 cuts to octets.
		return rapid.SliceOfN(rapid.Int32Min(-128), 1, most).Draw(t, "ints")
	case 7:
		return rapid.SliceOfN(rapid.Int64Min(-128), 1, most).Draw(t, "longs")
	case 8:
		return rapid.SliceOfN(rapid.Float32(), 1, most).Draw(t, "floats")
	case 9:
		return rapid.SliceOfN(rapid.Float64(), 1, most).Draw(t, "doubles")
	case 10:
		return rapid.SliceOfN(rapid.StringN(0, 40, 300), 1, most).Draw(t, "strings")
	case 11:
		return rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, most).Draw(t, "binaries")
	case 12:
		// In an array it counts nanoseconds, which end in 2262.
		return rapid.SliceOfN(rapid.Map(rapid.Int64Range(-1e12, 9e12), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }), 1, most).Draw(t, "timestamps")
	}
	return rapid.SliceOfN(rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) amqp.UUID { return amqp.UUID(b) }), 1, most).Draw(t, "uuids")
}

// fromValue is what go-amqp makes of the value.
func fromValue(v amqp10.Value) any {
	switch v.Type() {
	case amqp10.TypeBoolean:
		b, _ := v.Bool()
		return b
	case amqp10.TypeUbyte, amqp10.TypeUshort, amqp10.TypeUint, amqp10.TypeUlong:
		n, _ := v.Uint64()
		return map[amqp10.Type]any{amqp10.TypeUbyte: uint8(n), amqp10.TypeUshort: uint16(n), amqp10.TypeUint: uint32(n), amqp10.TypeUlong: n}[v.Type()]
	case amqp10.TypeByte, amqp10.TypeShort, amqp10.TypeInt, amqp10.TypeLong:
		n, _ := v.Int64()
		return map[amqp10.Type]any{amqp10.TypeByte: int8(n), amqp10.TypeShort: int16(n), amqp10.TypeInt: int32(n), amqp10.TypeLong: n}[v.Type()]
	case amqp10.TypeFloat:
		f, _ := v.Float64()
		return float32(f)
	case amqp10.TypeDouble:
		f, _ := v.Float64()
		return f
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		return time.UnixMilli(ms).UTC()
	case amqp10.TypeUUID:
		id, _ := v.UUID()
		return amqp.UUID(id)
	case amqp10.TypeBinary:
		b, _ := v.Binary()
		return b
	case amqp10.TypeString:
		s, _ := v.Text()
		return string(s)
	case amqp10.TypeSymbol:
		s, _ := v.Symbol()
		return string(s)
	case amqp10.TypeList, amqp10.TypeArray:
		list := []any{}
		items := v.Items()
		for item, ok := items.Next(); ok; item, ok = items.Next() {
			list = append(list, fromValue(item))
		}
		return list
	case amqp10.TypeMap:
		m := map[string]any{}
		items := v.Items()
		for key, ok := items.Next(); ok; key, ok = items.Next() {
			value, _ := items.Next()
			m[fromValue(key).(string)] = fromValue(value)
		}
		return m
	}
	return nil
}

// flat makes lists of arrays, which fromValue does not tell apart by their elements.
func flat(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for key, value := range v {
			m[key] = flat(value)
		}
		return m
	case []any:
		return elements(v)
	case []bool:
		return elements(v)
	case []uint16:
		return elements(v)
	case []uint32:
		return elements(v)
	case []uint64:
		return elements(v)
	case []int8:
		return elements(v)
	case []int16:
		return elements(v)
	case []int32:
		return elements(v)
	case []int64:
		return elements(v)
	case []float32:
		return elements(v)
	case []float64:
		return elements(v)
	case []string:
		return elements(v)
	case [][]byte:
		return elements(v)
	case []time.Time:
		return elements(v)
	case []amqp.UUID:
		return elements(v)
	}
	return v
}

func elements[T any](values []T) any {
	list := []any{}
	for _, v := range values {
		list = append(list, flat(v))
	}
	return list
}

// appendAny writes the value with our encoder. Arrays become lists: the broker writes arrays of symbols only.
func appendAny(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return amqp10.AppendNull(dst)
	case bool:
		return amqp10.AppendBool(dst, v)
	case uint8:
		return amqp10.AppendUbyte(dst, v)
	case uint16:
		return amqp10.AppendUshort(dst, v)
	case uint32:
		return amqp10.AppendUint(dst, v)
	case uint64:
		return amqp10.AppendUlong(dst, v)
	case int8:
		return amqp10.AppendByte(dst, v)
	case int16:
		return amqp10.AppendShort(dst, v)
	case int32:
		return amqp10.AppendInt(dst, v)
	case int64:
		return amqp10.AppendLong(dst, v)
	case float32:
		return amqp10.AppendFloat(dst, v)
	case float64:
		return amqp10.AppendDouble(dst, v)
	case time.Time:
		return amqp10.AppendTimestamp(dst, v.UnixMilli())
	case amqp.UUID:
		return amqp10.AppendUUID(dst, v)
	case []byte:
		return amqp10.AppendBinary(dst, v)
	case string:
		return amqp10.AppendString(dst, v)
	case []any:
		dst, start := amqp10.BeginList(dst)
		for _, item := range v {
			dst = appendAny(dst, item)
		}
		return amqp10.EndCompound(dst, start, len(v))
	case map[string]any:
		dst, start := amqp10.BeginMap(dst)
		for key, value := range v {
			dst = appendAny(amqp10.AppendString(dst, key), value)
		}
		return amqp10.EndCompound(dst, start, 2*len(v))
	}
	panic(fmt.Sprintf("no type for a %T", v))
}

func drawOptional[T any](t *rapid.T, name string, draw *rapid.Generator[T]) *T {
	if !rapid.Bool().Draw(t, name) {
		return nil
	}
	v := draw.Draw(t, name)
	return &v
}

func drawMessage(t *rapid.T) *amqp.Message {
	text, symbol := rapid.StringN(0, 30, 300), rapid.StringMatching(`[a-z/+]{0,40}`)
	moment := rapid.Map(rapid.Int64Range(0, 1e13), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() })
	id := rapid.SampledFrom([]any{nil, uint64(7), amqp.UUID{1, 2}, []byte("binary"), "string"})
	m := &amqp.Message{}
	if rapid.Bool().Draw(t, "header") {
		m.Header = &amqp.MessageHeader{
			Durable: rapid.Bool().Draw(t, "durable"), Priority: rapid.Uint8().Draw(t, "priority"), FirstAcquirer: rapid.Bool().Draw(t, "first-acquirer"),
			TTL: time.Duration(rapid.Uint32().Draw(t, "ttl")) * time.Millisecond, DeliveryCount: rapid.Uint32().Draw(t, "delivery-count"),
		}
	}
	if rapid.Bool().Draw(t, "properties") {
		m.Properties = &amqp.MessageProperties{
			MessageID: id.Draw(t, "message-id"), To: drawOptional(t, "to", text), Subject: drawOptional(t, "subject", text), ReplyTo: drawOptional(t, "reply-to", text),
			CorrelationID: id.Draw(t, "correlation-id"), ContentType: drawOptional(t, "content-type", symbol), ContentEncoding: drawOptional(t, "content-encoding", symbol),
			AbsoluteExpiryTime: drawOptional(t, "absolute-expiry-time", moment), CreationTime: drawOptional(t, "creation-time", moment),
			GroupID: drawOptional(t, "group-id", text), GroupSequence: drawOptional(t, "group-sequence", rapid.Uint32()), ReplyToGroupID: drawOptional(t, "reply-to-group-id", text),
		}
		if rapid.Bool().Draw(t, "user-id") {
			m.Properties.UserID = []byte("user")
		}
	}
	if rapid.Bool().Draw(t, "annotations") {
		m.Annotations = amqp.Annotations{"x-opt": drawAny(t, 2), "x-scalar": drawScalar(t)}
	}
	if rapid.Bool().Draw(t, "delivery-annotations") {
		m.DeliveryAnnotations = amqp.Annotations{"x-hop": drawScalar(t)}
	}
	if rapid.Bool().Draw(t, "footer") {
		m.Footer = amqp.Annotations{"crc": drawScalar(t)}
	}
	if rapid.Bool().Draw(t, "application-properties") {
		m.ApplicationProperties = map[string]any{}
		for range rapid.IntRange(1, 4).Draw(t, "pairs") {
			m.ApplicationProperties[text.Draw(t, "key")] = drawScalar(t)
		}
	}
	switch rapid.IntRange(0, 2).Draw(t, "body") {
	case 0:
		m.Data = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 400), 1, 3).Draw(t, "data")
	case 1:
		m.Sequence = [][]any{{drawAny(t, 1)}, {drawScalar(t), drawScalar(t)}}
	default:
		if m.Value = drawAny(t, 3); m.Value == nil {
			m.Value = "value"
		}
	}
	return m
}

// seen is a message as our decoder shows it, as go-amqp's type.
func seen(b []byte) (*amqp.Message, error) {
	m, err := amqp10.ParseMessage(b)
	if err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	out := &amqp.Message{}
	if m.Header.Type() != amqp10.TypeNone {
		var h amqp10.Header
		if err := h.Decode(m.Header); err != nil {
			return nil, err
		}
		out.Header = &amqp.MessageHeader{
			Durable: h.Durable, Priority: h.Priority.Value, TTL: time.Duration(h.TTL.Value) * time.Millisecond, FirstAcquirer: h.FirstAcquirer, DeliveryCount: h.DeliveryCount,
		}
	}
	if m.Properties.Type() != amqp10.TypeNone {
		var p amqp10.Properties
		if err := p.Decode(m.Properties); err != nil {
			return nil, err
		}
		out.Properties = &amqp.MessageProperties{
			MessageID: fromValue(p.MessageID), UserID: p.UserID, To: text(p.To), Subject: text(p.Subject), ReplyTo: text(p.ReplyTo),
			CorrelationID: fromValue(p.CorrelationID), ContentType: text(p.ContentType), ContentEncoding: text(p.ContentEncoding),
			AbsoluteExpiryTime: moment(p.AbsoluteExpiryTime), CreationTime: moment(p.CreationTime), GroupID: text(p.GroupID), ReplyToGroupID: text(p.ReplyToGroupID),
		}
		if p.GroupSequence.Set {
			out.Properties.GroupSequence = &p.GroupSequence.Value
		}
	}
	out.DeliveryAnnotations, out.Annotations = annotations(m.DeliveryAnnotations), annotations(m.MessageAnnotations)
	if m.ApplicationProperties.Type() != amqp10.TypeNone {
		out.ApplicationProperties = fromValue(m.ApplicationProperties.Underlying()).(map[string]any)
	}
	for rest := m.Body; len(rest) > 0; {
		d, v, next, err := amqp10.NextSection(rest)
		if err != nil {
			return nil, err
		}
		body := fromValue(v.Underlying())
		switch d {
		case amqp10.DescriptorData:
			out.Data = append(out.Data, body.([]byte))
		case amqp10.DescriptorAMQPSequence:
			out.Sequence = append(out.Sequence, body.([]any))
		case amqp10.DescriptorAMQPValue:
			out.Value = body
		}
		rest = next
	}
	if m.Footer != nil {
		_, v, _, err := amqp10.NextSection(m.Footer)
		if err != nil {
			return nil, err
		}
		out.Footer = annotations(v)
	}
	return out, nil
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func moment(ms amqp10.Optional[int64]) *time.Time {
	if !ms.Set {
		return nil
	}
	t := time.UnixMilli(ms.Value).UTC()
	return &t
}

func annotations(v amqp10.Value) amqp.Annotations {
	if v.Type() == amqp10.TypeNone {
		return nil
	}
	out := amqp.Annotations{}
	for key, value := range fromValue(v.Underlying()).(map[string]any) {
		out[key] = value
	}
	return out
}

// flattened has lists for all arrays in the message.
func flattened(m *amqp.Message) *amqp.Message {
	out := &amqp.Message{Header: m.Header, Properties: m.Properties, Data: m.Data, Value: flat(m.Value)}
	for _, sequence := range m.Sequence {
		out.Sequence = append(out.Sequence, flat(sequence).([]any))
	}
	if m.ApplicationProperties != nil {
		out.ApplicationProperties = flat(m.ApplicationProperties).(map[string]any)
	}
	of := func(a amqp.Annotations) amqp.Annotations {
		if a == nil {
			return nil
		}
		b := amqp.Annotations{}
		for key, value := range a {
			b[key] = flat(value)
		}
		return b
	}
	out.DeliveryAnnotations, out.Annotations, out.Footer = of(m.DeliveryAnnotations), of(m.Annotations), of(m.Footer)
	return out
}

// written is the message as our encoder writes it.
func written(m *amqp.Message) (b []byte) {
	if h := m.Header; h != nil {
		b = (&amqp10.Header{
			Durable: h.Durable, Priority: amqp10.Some(h.Priority), FirstAcquirer: h.FirstAcquirer, DeliveryCount: h.DeliveryCount,
			TTL: amqp10.Optional[uint32]{Value: uint32(h.TTL / time.Millisecond), Set: h.TTL != 0},
		}).Append(b)
	}
	section := func(d amqp10.Descriptor, a amqp.Annotations) {
		if a == nil {
			return
		}
		var start int
		b, start = amqp10.BeginMap(amqp10.AppendDescriptor(b, d))
		for key, value := range a {
			b = appendAny(amqp10.AppendSymbol(b, key.(string)), value)
		}
		b = amqp10.EndCompound(b, start, 2*len(a))
	}
	section(amqp10.DescriptorDeliveryAnnotations, m.DeliveryAnnotations)
	section(amqp10.DescriptorMessageAnnotations, m.Annotations)
	if p := m.Properties; p != nil {
		out := amqp10.Properties{
			UserID: p.UserID, To: octets(p.To), Subject: octets(p.Subject), ReplyTo: octets(p.ReplyTo), ContentType: octets(p.ContentType),
			ContentEncoding: octets(p.ContentEncoding), AbsoluteExpiryTime: millis(p.AbsoluteExpiryTime), CreationTime: millis(p.CreationTime),
			GroupID: octets(p.GroupID), ReplyToGroupID: octets(p.ReplyToGroupID),
			MessageID: amqp10.MustValue(appendAny(nil, p.MessageID)), CorrelationID: amqp10.MustValue(appendAny(nil, p.CorrelationID)),
		}
		if p.GroupSequence != nil {
			out.GroupSequence = amqp10.Some(*p.GroupSequence)
		}
		b = out.Append(b)
	}
	if m.ApplicationProperties != nil {
		b = appendAny(amqp10.AppendDescriptor(b, amqp10.DescriptorApplicationProperties), m.ApplicationProperties)
	}
	for _, data := range m.Data {
		b = amqp10.AppendData(b, data)
	}
	for _, sequence := range m.Sequence {
		b = appendAny(amqp10.AppendDescriptor(b, amqp10.DescriptorAMQPSequence), sequence)
	}
	if m.Value != nil {
		b = appendAny(amqp10.AppendDescriptor(b, amqp10.DescriptorAMQPValue), m.Value)
	}
	section(amqp10.DescriptorFooter, m.Footer)
	return b
}

func octets(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

func millis(t *time.Time) amqp10.Optional[int64] {
	if t == nil {
		return amqp10.Optional[int64]{}
	}
	return amqp10.Some(t.UnixMilli())
}

var sameMessage = cmp.Options{cmpopts.IgnoreUnexported(amqp.Message{}), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()}

func TestWeReadWhatGoAMQPWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		got, err := seen(b)
		if err != nil {
			t.Fatalf("%v: % x", err, b)
		}
		if diff := cmp.Diff(flattened(m), got, sameMessage); diff != "" {
			t.Fatalf("go-amqp wrote, and we read:\n%s", diff)
		}
	})
}

func TestGoAMQPReadsWhatWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := flattened(drawMessage(t))
		b := written(m)
		var got amqp.Message
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatalf("%v: % x", err, b)
		}
		if diff := cmp.Diff(m, flattened(&got), sameMessage); diff != "" {
			t.Fatalf("we wrote, and go-amqp read:\n%s", diff)
		}
		if again, err := seen(b); err != nil || cmp.Diff(m, again, sameMessage) != "" {
			t.Fatalf("we wrote, and read something else: %v", err)
		}
	})
}
