package letter_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// record10 is the record of a message of AMQP 1.0.
func record10(t *testing.T, whole []byte) message.Record {
	t.Helper()
	m, err := amqp10.ParseMessage(whole)
	if err == nil {
		err = m.Check()
	}
	var in convert.Incoming
	if err == nil {
		err = convert.FromAMQP10(&in, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return recordOf10(in.Raw, &in.Sections, in.Body)
}

func recordOf10(raw []byte, s *message.Sections, body []byte) message.Record {
	p, _ := amqp091.ParseProps(raw)
	e := message.Envelope{Properties: raw, Sections: s, BodySize: len(body), HasHeaders: p.Headers != nil, Persistent: p.DeliveryMode == 2,
		HasPriority: p.Has(amqp091.FlagPriority), Priority: p.Priority, HasExpiration: p.Has(amqp091.FlagExpiration)}
	b := make([]byte, e.Size())
	copy(e.Put(b), body)
	return b
}

// mapOf is a section with these keys and encoded values in turn.
func mapOf(section amqp10.Descriptor, pairs ...[]byte) []byte {
	b, start := amqp10.BeginMap(amqp10.AppendDescriptor(nil, section))
	return amqp10.EndCompound(append(b, slices.Concat(pairs...)...), start, len(pairs))
}

func sym10(s string) []byte { return amqp10.AppendSymbol(nil, s) }
func str10(s string) []byte { return amqp10.AppendString(nil, s) }

// full10 is a message with all that AMQP 0-9-1 has no place for; body is its body, as encoded.
func full10(body []byte) []byte {
	h := amqp10.Header{Durable: true, Priority: amqp10.Some[uint8](7), TTL: amqp10.Some[uint32](60000)}
	properties, start := amqp10.BeginList(amqp10.AppendDescriptor(nil, amqp10.DescriptorProperties))
	for _, field := range [][]byte{
		amqp10.AppendUlong(nil, 42), amqp10.AppendBinary(nil, "guest"), str10("/queues/to"), str10("a subject"), str10("/queues/re%20ply"), amqp10.AppendUUID(nil, [16]byte{1, 2, 3}),
		sym10("text/plain"), sym10("gzip"), amqp10.AppendTimestamp(nil, 1234567), amqp10.AppendTimestamp(nil, 7654321), str10("group"), amqp10.AppendUint(nil, 5), str10("replies"),
	} {
		properties = append(properties, field...)
	}
	inner, at := amqp10.BeginMap(nil)
	inner = amqp10.EndCompound(slices.Concat(inner, str10("n"), amqp10.AppendUbyte(nil, 3), sym10("d"), amqp10.AppendDecimal32(nil, [4]byte{1})), at, 4)
	array, err := amqp10.AppendArray(nil, amqp10.MustValue(str10("a")), amqp10.MustValue(str10("b")))
	if err != nil {
		panic(err)
	}
	return slices.Concat(h.Append(nil),
		mapOf(amqp10.DescriptorMessageAnnotations, sym10("x-note"), sym10("y"), sym10("x-basic-type"), str10("kind"), sym10("x-n"), amqp10.AppendShort(nil, -3)),
		amqp10.EndCompound(properties, start, 13),
		mapOf(amqp10.DescriptorApplicationProperties, str10("symbol"), sym10("s"), str10("ubyte"), amqp10.AppendUbyte(nil, 1), str10("float"), amqp10.AppendFloat(nil, 1.5),
			str10("decimal"), amqp10.AppendDecimal64(nil, [8]byte{9}), str10("at"), amqp10.AppendTimestamp(nil, 99999), str10("char"), amqp10.AppendChar(nil, 'c'),
			str10("map"), inner, str10("array"), array, str10("binary"), amqp10.AppendBinary(nil, "\xff\x00"), str10("x-own"), str10("o")),
		body, mapOf(amqp10.DescriptorFooter, sym10("x-hash"), amqp10.AppendLong(nil, 1)))
}

var bodies10 = map[string][]byte{
	"data":     amqp10.AppendData(nil, []byte("content")),
	"two":      slices.Concat(amqp10.AppendData(nil, []byte("con")), amqp10.AppendData(nil, []byte("tent"))),
	"value":    append(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue), str10("text")...),
	"sequence": append(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPSequence), 0x45),
}

func shown10(t *testing.T, rec message.Record) amqp10.Message {
	t.Helper()
	head, body, tail := convert.AppendAMQP10(nil, rec, &convert.Delivery{})
	m, err := amqp10.ParseMessage(slices.Concat(head, body, tail))
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An edit and then the conversion: in both protocols only what was edited differs, and all other sections are byte for byte what they were.
func TestAnEditOfAMessageOfAMQP10ChangesOnlyWhatItNames(t *testing.T) {
	headers := map[string][]string{
		"symbol": {`"t"`, `5`, `null`}, "ubyte": {`2`, `300`, `null`}, "float": {`2.5`, `null`}, "at": {`5`, `null`}, "char": {`"d"`, `null`}, "map": {`{"n":4,"new":"x"}`, `null`},
		"array": {`null`}, "binary": {`"b"`, `null`}, "x-own": {`"p"`, `null`}, "x-note": {`"z"`, `7`, `null`}, "x-n": {`-4`, `null`}, "new": {`"v"`, `[1,"a",{"b":true}]`}, "x-new": {`1`},
		"decimal": {`null`, `1`},
	}
	properties := map[string][]string{
		"message_id": {`"43"`, `"m"`, `null`}, "correlation_id": {`"urn:uuid:01020304-0000-0000-0000-000000000000"`, `"c"`, `null`}, "reply_to": {`"other queue"`, `"/exchanges/x/k"`, `null`},
		"content_type": {`"a/b"`, `null`}, "content_encoding": {`null`}, "timestamp": {`9`, `null`}, "app_id": {`"h"`, `null`}, "user_id": {`"guest2"`}, "priority": {`3`, `null`}, "delivery_mode": {`1`, `null`},
	}
	places := map[string]amqp10.Property{"message_id": 0, "user_id": 1, "reply_to": 4, "correlation_id": 5, "content_type": 6, "content_encoding": 7, "timestamp": 9, "app_id": 10}
	random := rand.New(rand.NewPCG(1, 2))
	some := func(of map[string][]string) map[string]json.RawMessage {
		picked := map[string]json.RawMessage{}
		for name, values := range of {
			if random.IntN(6) == 0 {
				picked[name] = json.RawMessage(values[random.IntN(len(values))])
			}
		}
		return picked
	}
	for round := range 2000 {
		kinds := []string{"data", "two", "value", "sequence"}
		kind := kinds[round%4]
		rec := record10(t, full10(bodies10[kind]))
		edit := map[string]any{"headers": some(headers), "properties": some(properties)}
		if random.IntN(3) == 0 {
			edit["body"] = "another body"
		}
		sent, _ := json.Marshal(edit)
		e := editFrom(t, string(sent))
		if len(e.Headers)+len(e.Properties) == 0 && e.Body == nil {
			continue
		}
		d, changes, err := e.Apply(rec, &deadletter.History{})
		if err != nil {
			t.Fatalf("%s, %s: %v", kind, sent, err)
		}
		if err := convert.CheckSections(d.Sections, d.Body); err != nil {
			t.Fatalf("%s, %s: %v", kind, sent, err)
		}
		edited := recordOf10(d.Properties, d.Sections, d.Body)
		named := map[string]bool{}
		for _, c := range changes {
			named[c.What] = true
		}

		a, b := shown10(t, rec), shown10(t, edited) // AMQP 1.0
		for place := range amqp10.PropertyReplyToGroupID + 1 {
			was, is, of := a.Property(place), b.Property(place), ""
			for name, at := range places {
				if at == place {
					of = name
				}
			}
			if _, asked := e.Properties[of]; !asked && string(was.Append(nil)) != string(is.Append(nil)) {
				t.Fatalf("%s, %s: property %d differs", kind, sent, place)
			}
		}
		same := func(what string, x, y amqp10.Value) {
			was, is := pairsOf(x), pairsOf(y)
			for key := range was {
				if _, asked := e.Headers[key]; !asked && was[key] != is[key] {
					t.Fatalf("%s, %s: %s %s differs: % x, % x", kind, sent, what, key, was[key], is[key])
				}
			}
			for key := range is {
				if _, there := was[key]; !there && e.Headers[key] == nil {
					t.Fatalf("%s, %s: %s %s is new", kind, sent, what, key)
				}
			}
		}
		same("annotation", a.MessageAnnotations, b.MessageAnnotations)
		same("application property", a.ApplicationProperties, b.ApplicationProperties)
		if string(a.Footer) != string(b.Footer) || e.Body == nil && string(a.Body) != string(b.Body) || e.Body != nil && string(b.Body) != string(amqp10.AppendData(nil, []byte(*e.Body))) {
			t.Fatalf("%s, %s: body % x, footer % x", kind, sent, b.Body, b.Footer)
		}
		if len(e.Properties) == 0 && string(a.Properties.Append(nil)) != string(b.Properties.Append(nil)) {
			t.Fatalf("%s, %s: the section properties differs", kind, sent)
		}

		x, _ := amqp091.DecodeProps(rec.Properties()) // AMQP 0-9-1
		y, err := amqp091.DecodeProps(edited.Properties())
		if err != nil {
			t.Fatal(err)
		}
		for name, of := range letter.TextProperties {
			was, is := *of(&x), *of(&y)
			if _, asked := e.Properties[name]; !asked && name != "type" && (was == nil) != (is == nil) || !asked && name != "type" && was != nil && *was != *is {
				t.Fatalf("%s, %s: %s differs", kind, sent, name)
			}
		}
		for _, name := range slices.Concat(keysOf(x.Headers), keysOf(y.Headers)) {
			was, _ := x.Headers.Get(name)
			is, _ := y.Headers.Get(name)
			if _, asked := e.Headers[name]; !asked && string(amqp091.AppendValue(nil, was)) != string(amqp091.AppendValue(nil, is)) {
				t.Fatalf("%s, %s: header %s differs", kind, sent, name)
			}
		}
		if wantType := kind == "value" || kind == "sequence"; e.Body == nil && wantType != (*y.Type == "amqp-1.0") || e.Body != nil && *y.Type != "kind" || named["body.section"] != (wantType && e.Body != nil) {
			t.Fatalf("%s, %s: type %s, changes %v", kind, sent, *y.Type, changes)
		}
		if *y.Expiration != "60000" {
			t.Fatalf("%s, %s: the time to live is %s", kind, sent, *y.Expiration)
		}
	}
}

func pairsOf(v amqp10.Value) map[string]string {
	found := map[string]string{}
	items := v.ItemsBelow()
	for key, ok := items.Next(); ok; key, ok = items.Next() {
		value, _ := items.Next()
		s, isSymbol := key.Symbol()
		if !isSymbol {
			s, _ = key.Text()
		}
		found[string(s)] = string(value.Append(nil))
	}
	return found
}

func keysOf(t amqp091.Table) (keys []string) {
	for _, f := range t {
		keys = append(keys, f.Key)
	}
	return keys
}

// The values of AMQP 1.0 keep their types, and a map what clients of AMQP 0-9-1 do not see of it.
func TestEditedValuesOfAMQP10KeepTheirTypes(t *testing.T) {
	rec := record10(t, full10(bodies10["data"]))
	e := editFrom(t, `{"headers":{"symbol":"t","ubyte":2,"at":5,"char":"d","map":{"n":4},"x-n":-4,"x-new":"a"},"properties":{"message_id":"43","type":"order"}}`)
	d, changes, err := e.Apply(rec, &deadletter.History{})
	if err != nil {
		t.Fatal(err)
	}
	m := shown10(t, recordOf10(d.Properties, d.Sections, d.Body))
	inner, start := amqp10.BeginMap(nil)
	inner = amqp10.EndCompound(slices.Concat(inner, str10("n"), amqp10.AppendUbyte(nil, 4), sym10("d"), amqp10.AppendDecimal32(nil, [4]byte{1})), start, 4)
	for key, want := range map[string][]byte{"symbol": sym10("t"), "ubyte": amqp10.AppendUbyte(nil, 2), "at": amqp10.AppendTimestamp(nil, 5000), "char": amqp10.AppendChar(nil, 'd'), "map": inner} {
		if v, _ := m.ApplicationProperty(key); string(v.Append(nil)) != string(want) {
			t.Errorf("%s: % x, want % x", key, v.Append(nil), want)
		}
	}
	for key, want := range map[string][]byte{"x-n": amqp10.AppendShort(nil, -4), "x-new": str10("a"), "x-basic-type": str10("order"), "x-note": sym10("y")} {
		if v, _ := m.MessageAnnotation(key); string(v.Append(nil)) != string(want) {
			t.Errorf("%s: % x, want % x", key, v.Append(nil), want)
		}
	}
	if n, ok := m.Property(amqp10.PropertyMessageID).Uint64(); !ok || n != 43 {
		t.Errorf("the message-id is % x", m.Property(amqp10.PropertyMessageID).Append(nil))
	}
	if len(changes) != 9 {
		t.Errorf("changes: %v", changes)
	}
}

// What an edit would lose, or could not do, is refused with the name of it.
func TestWhatAnEditOfAMQP10CannotDo(t *testing.T) {
	merged, err := convert.OutcomeAnnotations(amqp10.MustValue(mapOf(amqp10.DescriptorMessageAnnotations, sym10("x-said"), str10("s"))).Underlying())
	if err != nil {
		t.Fatal(err)
	}
	history := &deadletter.History{Annotations: merged}
	for sent, why := range map[string]string{
		`{"properties":{"type":"t"}}`:                                "property.type cannot be changed",
		`{"properties":{"cluster_id":"t"}}`:                          "property.cluster_id",
		`{"properties":{"delivery_mode":3}}`:                         "property.delivery_mode",
		`{"properties":{"content_type":"ü"}}`:                        "property.content_type",
		`{"headers":{"x-basic-type":"t"}}`:                           "property.type",
		`{"headers":{"x-cc":["a"]}}`:                                 "header.CC",
		`{"headers":{"CC":"a"}}`:                                     "header.CC",
		`{"headers":{"BCC":["a"]}}`:                                  "header.BCC",
		`{"headers":{"array":["a"]}}`:                                "header.array",
		`{"headers":{"x-said":"t"}}`:                                 "header.x-said",
		`{"headers":{"x-opt-deaths":1}}`:                             "header.x-opt-deaths",
		`{"headers":{"big":"` + strings.Repeat("a", 121<<10) + `"}}`: "header.big",
		`{"headers":{"symbol":"s"}}`:                                 "changes nothing",
		`{"body":"text"}`:                                            "changes nothing",
	} {
		e := editFrom(t, sent)
		if _, _, err := e.Apply(record10(t, full10(bodies10["value"])), history); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.80s: %v", sent, err)
		}
	}
	many := []([]byte){}
	for _, name := range []string{"a", "b", "c"} {
		many = append(many, str10(name), str10(strings.Repeat(name, 39<<10)))
	}
	e := editFrom(t, `{"headers":{"a":"`+strings.Repeat("b", 60<<10)+`"}}`)
	rec := record10(t, append(mapOf(amqp10.DescriptorApplicationProperties, many...), bodies10["data"]...))
	if _, _, err := e.Apply(rec, history); err == nil || !strings.Contains(err.Error(), "header.c would change too") {
		t.Errorf("a header for which there is no room any more: %v", err)
	}
}
