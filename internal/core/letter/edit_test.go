package letter_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

func recordWith(l amqp091.PropertyList, body string) message.Record {
	e := message.Envelope{Properties: amqp091.AppendPropsFrom(nil, l), BodySize: len(body), HasHeaders: l.Headers != nil}
	b := make([]byte, e.Size())
	copy(e.Put(b), body)
	return b
}

func editFrom(t *testing.T, text string) (e letter.Edit) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e
}

// A header keeps its type wherever the new value fits, at any depth; what is sent back as it was shown stays the same value.
func TestEditedHeadersKeepTheirTypes(t *testing.T) {
	for _, c := range []struct {
		old  any
		sent string
		want any
	}{
		{int8(1), "2", int8(2)}, {int8(1), "200", int64(200)}, {int16(1), "-2", int16(-2)}, {int32(1), "2", int32(2)}, {int64(1), "2", int64(2)},
		{uint8(1), "255", uint8(255)}, {uint8(1), "-1", int64(-1)}, {uint16(1), "2", uint16(2)}, {uint32(1), "2", uint32(2)},
		{float32(1), "1.5", float32(1.5)}, {float32(1), "0.1", float32(0.1)}, {float32(1), "0.12345678901", 0.12345678901}, {1.5, "2", float64(2)}, {int32(1), "1.5", 1.5},
		{amqp091.Timestamp(7), "9", amqp091.Timestamp(9)}, {amqp091.Timestamp(7), "18446744073709551615", amqp091.Timestamp(math.MaxUint64)},
		{amqp091.Decimal{Scale: 2, Value: 314}, "2.72", amqp091.Decimal{Scale: 2, Value: 272}}, {amqp091.Decimal{Scale: 2, Value: 314}, "2.721", 2.721},
		{"a", `"b"`, "b"}, {[]byte("a"), `"b"`, []byte("b")}, {"\xff", `"Not UTF-8, base64 is: /w=="`, "\xff"}, {[]byte{0xff}, `"Not UTF-8, base64 is: /w=="`, []byte{0xff}},
		{math.Inf(1), `"+Inf"`, math.Inf(1)}, {nil, `"undefined"`, nil}, {true, "false", false}, {"5", "5", int64(5)}, {int64(5), `"5"`, "5"},
		{
			amqp091.Table{{Key: "z", Value: int8(1)}, {Key: "a", Value: amqp091.Array{int16(1), []byte("x")}}}, `{"a":[2,"y",3],"b":4,"z":5}`,
			amqp091.Table{{Key: "z", Value: int8(5)}, {Key: "a", Value: amqp091.Array{int16(2), []byte("y"), int64(3)}}, {Key: "b", Value: int64(4)}},
		},
	} {
		rec := recordWith(amqp091.PropertyList{Headers: amqp091.Table{{Key: "k", Value: c.old}, {Key: "other", Value: uint32(7)}}}, "")
		e := editFrom(t, `{"headers":{"k":`+c.sent+`,"new":1}}`)
		d, _, err := e.Apply(rec, &deadletter.History{})
		if err != nil {
			t.Errorf("%v %T and %s: %v", c.old, c.old, c.sent, err)
			continue
		}
		l, err := amqp091.DecodeProps(d.Properties)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := l.Headers.Get("k")
		if other, _ := l.Headers.Get("other"); other != uint32(7) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v %T and %s: %v %T, want %v %T", c.old, c.old, c.sent, got, got, c.want, c.want)
		}
		if added, _ := l.Headers.Get("new"); added != int64(1) {
			t.Errorf("a new header: %v %T", added, added)
		}
	}
}

// The difference names what changes and nothing else; what is null is taken out.
func TestTheDifferenceOfAnEdit(t *testing.T) {
	kind, id, mode, at := "order", "m1", uint8(2), uint64(5)
	rec := recordWith(amqp091.PropertyList{Type: &kind, MessageID: &id, DeliveryMode: &mode, Timestamp: &at, Headers: amqp091.Table{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}}, "old")
	e := editFrom(t, `{"body":"new","properties":{"type":null,"message_id":"m1","priority":3,"timestamp":6},"headers":{"a":null,"b":"2","c":"3","d":null}}`)
	d, diff, err := e.Apply(rec, &deadletter.History{})
	if err != nil || string(d.Body) != "new" {
		t.Fatal(string(d.Body), err)
	}
	got, _ := json.Marshal(diff)
	if want := `[{"what":"body","before":"old","after":"new"},{"what":"property.priority","before":null,"after":3},{"what":"property.timestamp","before":5,"after":6},` +
		`{"what":"property.type","before":"order","after":null},{"what":"header.a","before":"1","after":null},{"what":"header.c","before":null,"after":"3"}]`; string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	l, err := amqp091.DecodeProps(d.Properties)
	if err != nil || l.Type != nil || *l.Priority != 3 || *l.Timestamp != 6 || *l.MessageID != id || *l.DeliveryMode != mode || len(l.Headers) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}

// What an edit costs does not grow with the square of what it names: else this would take minutes.
func TestAnEditOfVeryManyHeaders(t *testing.T) {
	named := func(n int) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprint("key", i)] = true
		}
		return m
	}
	for what, rec := range map[string]message.Record{
		"AMQP 0-9-1": recordWith(amqp091.PropertyList{}, "b"),
		"AMQP 1.0":   record10(t, amqp10.AppendData(nil, []byte("b"))),
	} {
		for why, e := range map[string]letter.Edit{
			"it names 100000 headers, the limit is 4096": {Headers: named(100_000)},
			"header": {Headers: map[string]any{"k": named(100_000)}}, // they are too large
		} {
			if _, _, err := e.Apply(rec, &deadletter.History{}); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %s", what, err, why)
			}
		}
		e := letter.Edit{Headers: named(4096)}
		if _, changes, err := e.Apply(rec, &deadletter.History{}); err != nil || len(changes) != 4096 {
			t.Errorf("%s: %d changes (%v)", what, len(changes), err)
		}
	}
}
