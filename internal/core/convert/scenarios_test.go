package convert_test

import (
	"math"
	"slices"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// A scenario is a message whose conversions TestRecord asks RabbitMQ for.
type scenario struct {
	name       string
	journey    journey
	quorum     bool
	message    []byte // of AMQP 1.0; nil if it is one of AMQP 0-9-1
	properties amqp091.PropertyList
	body       []byte
}

// Values of AMQP 1.0, encoded.

func str(s string) []byte    { return amqp10.AppendString(nil, s) }
func sym(s string) []byte    { return amqp10.AppendSymbol(nil, s) }
func ms(n int64) []byte      { return amqp10.AppendTimestamp(nil, n) }
func ulong(n uint64) []byte  { return amqp10.AppendUlong(nil, n) }
func ubyte(n uint8) []byte   { return amqp10.AppendUbyte(nil, n) }
func binary(s string) []byte { return amqp10.AppendBinary(nil, s) }

func list(items ...[]byte) []byte {
	b, start := amqp10.BeginList(nil)
	return amqp10.EndCompound(append(b, slices.Concat(items...)...), start, len(items))
}

func mapping(items ...[]byte) []byte {
	b, start := amqp10.BeginMap(nil)
	return amqp10.EndCompound(append(b, slices.Concat(items...)...), start, len(items))
}

func array(elements ...[]byte) []byte {
	values := make([]amqp10.Value, len(elements))
	for i, e := range elements {
		values[i] = amqp10.MustValue(e)
	}
	b, err := amqp10.AppendArray(nil, values...)
	if err != nil {
		panic(err)
	}
	return b
}

func described(d amqp10.Descriptor, value []byte) []byte {
	return append(amqp10.AppendDescriptor(nil, d), value...)
}

// Sections.

func head(h amqp10.Header) []byte { return h.Append(nil) }

func annotations(items ...[]byte) []byte {
	return described(amqp10.DescriptorMessageAnnotations, mapping(items...))
}

func properties(p amqp10.Properties) []byte { return p.Append(nil) }

func appProperties(items ...[]byte) []byte {
	return described(amqp10.DescriptorApplicationProperties, mapping(items...))
}

func data(s string) []byte { return amqp10.AppendData(nil, []byte(s)) }

func value(v []byte) []byte { return described(amqp10.DescriptorAMQPValue, v) }

func message10(sections ...[]byte) []byte { return slices.Concat(sections...) }

func ptr[T any](v T) *T { return &v }

var uuid = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xc, 0xd, 0xe, 0xff}

// opaqueDeath is an entry of x-opt-deaths as a broker writes it, all its keys there.
func opaqueDeath(keys ...[]byte) []byte {
	return mapping(append([][]byte{
		sym("ttl"), amqp10.AppendUint(nil, 70000), sym("queue"), str("q1"), sym("reason"), sym("expired"), sym("count"), ulong(3),
		sym("first-time"), ms(1_700_000_000_123), sym("last-time"), ms(1_700_000_009_999), sym("exchange"), str("x1"), sym("routing-keys"),
		array(str("k1"), str("k2")),
	}, keys...)...)
}

func scenarios() []scenario {
	var all []scenario
	for _, more := range [][]scenario{messages10(), oneValue(), messages091(), journeys()} {
		all = append(all, more...)
	}
	for i := range all {
		if all[i].journey == "" {
			all[i].journey = straight
		}
	}
	return all
}

// messages10 are messages of AMQP 1.0.
func messages10() []scenario {
	everything := amqp10.Properties{
		MessageID: amqp10.MustValue(str("m-1")), UserID: []byte("guest"), To: []byte("/queues/dead"), Subject: []byte("sub"), ReplyTo: []byte("/queues/answers"),
		CorrelationID: amqp10.MustValue(str("c-1")), ContentType: []byte("application/json"), ContentEncoding: []byte("gzip"),
		AbsoluteExpiryTime: amqp10.Some(int64(4_000_000_000_000)), CreationTime: amqp10.Some(int64(1_700_000_000_123)), GroupID: []byte("g"),
		GroupSequence: amqp10.Some(uint32(7)), ReplyToGroupID: []byte("rg"),
	}
	id := func(v []byte) []byte {
		return properties(amqp10.Properties{MessageID: amqp10.MustValue(v), CorrelationID: amqp10.MustValue(v)})
	}
	reply := func(s string) []byte { return properties(amqp10.Properties{ReplyTo: []byte(s)}) }
	long := strings.Repeat("k", 256)
	return []scenario{
		{name: "1.0: all properties", message: message10(head(amqp10.Header{Durable: true, Priority: amqp10.Some(uint8(5))}), properties(everything), data("b"))},
		{name: "1.0: no header", message: message10(properties(everything), data("b"))},
		{name: "1.0: an empty header", message: message10(head(amqp10.Header{}), data("b"))},
		{name: "1.0: not durable", message: message10(described(amqp10.DescriptorHeader, []byte{0xc0, 2, 1, 0x42}), data("b"))},
		{name: "1.0: priority and ttl", message: message10(head(amqp10.Header{Priority: amqp10.Some(uint8(200)), TTL: amqp10.Some(uint32(600000))}), data("b"))},
		{name: "1.0: only a body", message: data("b")},
		{name: "1.0: an empty body", message: data("")},
		{name: "1.0: a body of 300 bytes", message: data(strings.Repeat("b", 300))},
		{name: "1.0: two data sections", message: message10(data("one"), data("two"))},
		{name: "1.0: a value", message: message10(properties(amqp10.Properties{ContentType: []byte("text/plain")}), value(str("text")))},
		{name: "1.0: a value with a footer", message: message10(value(mapping(str("k"), str("v"))), described(amqp10.DescriptorFooter, mapping(sym("x-f"), str("f"))))},
		{name: "1.0: data with a footer", message: message10(data("b"), described(amqp10.DescriptorFooter, mapping(sym("x-f"), str("f"))))},
		{name: "1.0: two sequences", message: message10(described(amqp10.DescriptorAMQPSequence, list(str("a"))), described(amqp10.DescriptorAMQPSequence, list(str("b"))))},
		{name: "1.0: delivery-annotations", message: message10(described(amqp10.DescriptorDeliveryAnnotations, mapping(sym("x-d"), str("d"))), data("b"))},
		{name: "1.0: a message-id that is a ulong", message: message10(id(ulong(math.MaxUint64)), data("b"))},
		{name: "1.0: a message-id that is a uuid", message: message10(id(amqp10.AppendUUID(nil, uuid)), data("b"))},
		{name: "1.0: a message-id that is a binary", message: message10(id(binary("\x00\xff")), data("b"))},
		{name: "1.0: a message-id of 256 bytes", message: message10(id(str(long)), data("b"))},
		{name: "1.0: a message-id of 255 bytes", message: message10(id(str(long[:255])), data("b"))},
		{name: "1.0: reply-to, encoded", message: message10(reply("/queues/a%20b%C3%A9+%2f"), data("b"))},
		{name: "1.0: reply-to, not encoded", message: message10(reply("/queues/a b/é"), data("b"))},
		{name: "1.0: reply-to, badly encoded", message: message10(reply("/queues/a%zz"), data("b"))},
		{name: "1.0: reply-to an exchange", message: message10(reply("/exchanges/x/k"), data("b"))},
		{name: "1.0: reply-to of 256 bytes", message: message10(reply("/queues/"+long), data("b"))},
		{name: "1.0: group-id of 256 bytes", message: message10(properties(amqp10.Properties{GroupID: []byte(long)}), data("b"))},
		{name: "1.0: creation-time before 1970", message: message10(properties(amqp10.Properties{CreationTime: amqp10.Some(int64(-1500))}), data("b"))},
		{name: "1.0: annotations", message: message10(annotations(
			sym("x-text"), str("t"), sym("x-symbol"), sym("s"), sym("x-number"), amqp10.AppendLong(nil, 5), sym("x-list"), list(str("a"), ubyte(1)),
			sym("x-map"), mapping(sym("k"), str("v")), sym("x-opt-own"), amqp10.AppendBool(nil, true),
		), data("b"))},
		{name: "1.0: an annotation that is null", message: message10(annotations(sym("x-null"), amqp10.AppendNull(nil)), data("b"))},
		{name: "1.0: annotations of the broker", message: message10(annotations(
			sym("x-exchange"), str("e"), sym("x-routing-key"), str("k"), sym("x-death"), str("d"), sym("x-first-death-queue"), str("q"),
			sym("x-delivery-count"), amqp10.AppendLong(nil, 9), sym("x-basic-other"), str("o"), sym("x-opt-rabbitmq-received-time"), ms(1_700_000_000_123),
		), data("b"))},
		{name: "1.0: x-opt-rabbitmq-received-time that is none", message: message10(annotations(sym("x-opt-rabbitmq-received-time"), str("now")), data("b"))},
		{name: "1.0: properties of AMQP 0-9-1", message: message10(annotations(
			sym("x-basic-type"), str("t"), sym("x-basic-priority"), ubyte(4), sym("x-basic-delivery-mode"), ubyte(2), sym("x-basic-expiration"), str("600000"),
		), data("b"))},
		{name: "1.0: properties of AMQP 0-9-1 and a header", message: message10(
			head(amqp10.Header{Priority: amqp10.Some(uint8(1)), TTL: amqp10.Some(uint32(500000))}),
			annotations(sym("x-basic-priority"), ubyte(4), sym("x-basic-expiration"), str("600000")), data("b"))},
		{name: "1.0: x-cc", message: message10(annotations(sym("x-cc"), list(str("a"), str("b"))), data("b"))},
		{name: "1.0: x-cc that is a string", message: message10(annotations(sym("x-cc"), str("a")), data("b"))},
		{name: "1.0: x-cc with a symbol", message: message10(annotations(sym("x-cc"), list(sym("a"))), data("b"))},
		{name: "1.0: x-cc that is an array", message: message10(annotations(sym("x-cc"), array(str("a"))), data("b"))},
		{name: "1.0: x-opt-deaths of a client", message: message10(annotations(sym("x-opt-deaths"), array(opaqueDeath())), data("b"))},
		{name: "1.0: x-opt-deaths that is text", message: message10(annotations(sym("x-opt-deaths"), str("none")), data("b"))},
		{name: "1.0: x-opt-deaths with a key too many", message: message10(annotations(sym("x-opt-deaths"), array(opaqueDeath(sym("more"), str("m")))), data("b"))},
		{name: "1.0: a reserved annotation", message: message10(annotations(sym("own"), str("o")), data("b"))},
		{name: "1.0: an annotation that is a number", message: message10(annotations(ulong(7), str("o")), data("b"))},
		{name: "1.0: no body", message: properties(everything)},
		{name: "1.0: application-properties", message: message10(appProperties(
			str("text"), str("t"), str("symbol"), sym("s"), str("binary"), binary("\x00\xff"), str("true"), amqp10.AppendBool(nil, true), str("null"), amqp10.AppendNull(nil),
			str("ubyte"), ubyte(200), str("ushort"), amqp10.AppendUshort(nil, 60000), str("uint"), amqp10.AppendUint(nil, math.MaxUint32),
			str("ulong"), ulong(math.MaxUint64), str("byte"), amqp10.AppendByte(nil, -1), str("short"), amqp10.AppendShort(nil, -300), str("int"), amqp10.AppendInt(nil, -70000),
			str("long"), amqp10.AppendLong(nil, math.MinInt64), str("float"), amqp10.AppendFloat(nil, 1.5), str("double"), amqp10.AppendDouble(nil, 2.25),
			str("timestamp"), ms(1_700_000_000_999), str("early"), ms(-1500), str("x-own"), str("x"), str("x-death"), str("d"), str(""), str("no key"),
		), data("b"))},
		{name: "1.0: application-properties whose keys are long", message: message10(appProperties(str(long), str("256"), str(long[:255]), str("255")), data("b"))},
		{name: "1.0: application-properties with equal keys", message: message10(
			annotations(sym("x-a"), str("annotation")), appProperties(str("b"), str("1"), str("a"), str("2"), str("b"), str("3"), str("x-a"), str("4")), data("b"))},
		{name: "1.0: application-properties CC and BCC", message: message10(appProperties(str("CC"), str("a"), str("BCC"), list(str("a"))), data("b"))},
		{name: "1.0: empty application-properties", message: message10(appProperties(), data("b"))},
	}
}

// oneValue are messages of AMQP 1.0 with one application property, of types that AMQP 0-9-1 does not have.
func oneValue() (scenarios []scenario) {
	for _, c := range []struct {
		name  string
		value []byte
	}{
		{"a uuid", amqp10.AppendUUID(nil, uuid)},
		{"a char", amqp10.AppendChar(nil, 'é')},
		{"a decimal", amqp10.AppendDecimal64(nil, [8]byte{0x31, 0xc0})},
		{"NaN", amqp10.AppendDouble(nil, math.NaN())},
		{"infinity", amqp10.AppendFloat(nil, float32(math.Inf(1)))},
		{"a list", list(str("a"), ubyte(1), amqp10.AppendNull(nil), list(sym("b")))},
		{"a list with a ulong", list(ulong(1))},
		{"a list with a decimal", list(amqp10.AppendDecimal32(nil, [4]byte{}), str("a"))},
		{"a map", mapping(str("k"), str("v"), sym("s"), amqp10.AppendInt(nil, 1))},
		{"a map with a number for a key", mapping(ulong(1), str("v"))},
		{"an array", array(amqp10.AppendInt(nil, 1), amqp10.AppendInt(nil, -1))},
		{"an array of arrays", array(array(str("a")))},
		{"an array of nulls", array(amqp10.AppendNull(nil), amqp10.AppendNull(nil))},
		{"a described value", described(0x1234, str("d"))},
	} {
		scenarios = append(scenarios, scenario{name: "1.0: an application property that is " + c.name, message: message10(appProperties(str("k"), c.value), data("b"))})
	}
	return scenarios
}

// messages091 are messages of AMQP 0-9-1.
func messages091() []scenario {
	type props = amqp091.PropertyList
	headers := func(fields ...amqp091.Field) props { return props{Headers: fields} }
	h := func(key string, v any) amqp091.Field { return amqp091.Field{Key: key, Value: v} }
	b := []byte("b")
	return []scenario{
		{name: "0-9-1: no properties", body: b},
		{name: "0-9-1: no body"},
		{name: "0-9-1: a body of 300 bytes", body: []byte(strings.Repeat("b", 300))},
		{name: "0-9-1: all properties", body: b, properties: props{
			ContentType: ptr("application/json"), ContentEncoding: ptr("gzip"), DeliveryMode: ptr(uint8(2)), Priority: ptr(uint8(5)), CorrelationID: ptr("c-1"),
			ReplyTo: ptr("answers"), Expiration: ptr("600000"), MessageID: ptr("m-1"), Timestamp: ptr(uint64(1_700_000_000)), Type: ptr("t"), UserID: ptr("guest"),
			AppID: ptr("a"), ClusterID: ptr("cl"), Headers: amqp091.Table{h("k", "v")},
		}},
		{name: "0-9-1: delivery-mode 1", body: b, properties: props{DeliveryMode: ptr(uint8(1))}},
		{name: "0-9-1: an empty table", body: b, properties: props{Headers: amqp091.Table{}}},
		{name: "0-9-1: headers", body: b, properties: headers(
			h("text", "t"), h("utf8", "é"), h("bytes", "\xff"), h("nul", "a\x00b"), h("4096", strings.Repeat("x", 4096)), h("4097", strings.Repeat("x", 4097)), h("bool", true), h("i8", int8(-1)), h("u8", uint8(200)),
			h("i16", int16(-300)), h("u16", uint16(60000)), h("i32", int32(-70000)), h("u32", uint32(4e9)), h("i64", int64(math.MinInt64)), h("f32", float32(1.5)),
			h("f64", 2.25), h("binary", []byte("\x00\xff")), h("void", nil), h("time", amqp091.Timestamp(1_700_000_000)), h("x-own", "x"), h("x-number", int64(5)),
			h("timestamp_in_ms", int64(5)),
		)},
		{name: "0-9-1: headers that are tables and arrays", body: b, properties: headers(
			h("table", amqp091.Table{h("k", "v")}), h("array", amqp091.Array{"a", int32(1), amqp091.Array{true}}), h("x-table", amqp091.Table{h("k", nil)}),
			h("x-array", amqp091.Array{"a", amqp091.Table{h("k", amqp091.Timestamp(7))}}), h("z", "last"),
		)},
		{name: "0-9-1: a decimal", body: b, properties: headers(h("d", amqp091.Decimal{Scale: 2, Value: 314}))},
		{name: "0-9-1: CC", body: b, properties: headers(h("CC", amqp091.Array{"nowhere"}))},
		{name: "0-9-1: CC and x-cc", body: b, properties: headers(h("CC", amqp091.Array{"nowhere"}), h("x-cc", "own"))},
		{name: "0-9-1: x-death of a client", body: b, properties: headers(h("x-death", amqp091.Array{amqp091.Table{h("queue", "q"), h("count", int64(1))}}), h("x-first-death-queue", "q"))},
		{name: "0-9-1: a key that is no ASCII", body: b, properties: headers(h("x-é", "v"), h("é", "w"))},
		{name: "0-9-1: a uuid for a message-id", body: b, properties: props{MessageID: ptr("urn:uuid:00010203-0405-0607-0809-0a0b0c0d0eff"), CorrelationID: ptr("urn:uuid:00010203-0405-0607-0809-0A0B0C0D0EFF")}},
		{name: "0-9-1: a uuid that is none", body: b, properties: props{MessageID: ptr("urn:uuid:00010203-0405-0607-0809-0a0b0c0d0efg")}},
		{name: "0-9-1: a reply-to with any characters", body: b, properties: props{ReplyTo: ptr("a b/é+%~_.-")}},
		{name: "0-9-1: the type amqp-1.0 and a value", body: value(str("text")), properties: props{Type: ptr("amqp-1.0")}},
		{name: "0-9-1: the type amqp-1.0 and no sections", body: []byte("text"), properties: props{Type: ptr("amqp-1.0")}},
		{name: "0-9-1: a content-type that is no ASCII", body: b, properties: props{ContentType: ptr("é")}},
		{name: "0-9-1: a late timestamp", body: b, properties: props{Timestamp: ptr(uint64(1 << 40))}},
		{name: "0-9-1: a long expiration", body: b, properties: props{Expiration: ptr("315360000000")}},
	}
}

// journeys are messages that have died or come back.
func journeys() (all []scenario) {
	for _, quorum := range []bool{false, true} {
		for _, j := range []journey{rejected, expired, failed} {
			ttl := uint32(600000)
			if j == expired {
				ttl = 30
			}
			name := string(j) + " in a classic queue"
			if quorum {
				name = string(j) + " in a quorum queue"
			}
			expiration := "600000"
			if j == expired {
				expiration = "30"
			}
			all = append(all,
				scenario{name: "1.0: " + name, journey: j, quorum: quorum, message: message10(
					head(amqp10.Header{Durable: true, TTL: amqp10.Some(ttl)}), annotations(sym("x-own"), str("o"), sym("x-opt-deaths"), str("of the client")), data("b"))},
				scenario{name: "0-9-1: " + name, journey: j, quorum: quorum, body: []byte("b"), properties: amqp091.PropertyList{
					Expiration: ptr(expiration), DeliveryMode: ptr(uint8(2)), Headers: amqp091.Table{{Key: "k", Value: "v"}, {Key: "t", Value: amqp091.Table{}}, {Key: "x-first-death-queue", Value: "of the client"}},
				}})
		}
	}
	return all
}
