package letter_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

var (
	lineBytes    = rapid.SampledFrom([]string{"", "q", "\xff", "a\x00b"})
	lineTexts    = rapid.SampledFrom([]string{"", "q", "a/b %", "\x00", "<&>\u2028\"\\", "null", "日本", strings.Repeat("x", 255)})
	lineIntegers = rapid.SampledFrom([]int64{0, 1, -1, 255, 256, math.MaxInt32, 1 << 31, math.MaxUint32, 1<<53 + 1, math.MaxInt64, math.MinInt64})
	lineFloats   = rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 0.1, 1e300, 5e-324, math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff0000000000abc)})
)

func lineField(t *rapid.T, depth int) any {
	n, f, text := lineIntegers.Draw(t, "integer"), lineFloats.Draw(t, "float"), lineBytes.Draw(t, "text")
	all := []any{
		nil, n&1 == 0, int8(n), uint8(n), int16(n), uint16(n), int32(n), uint32(n), n, float32(f), f, amqp091.Timestamp(n),
		amqp091.Decimal{Scale: uint8(n), Value: uint32(n)}, text, []byte(text),
	}
	if depth > 0 {
		all = append(all, lineTable(t, depth-1), amqp091.Array{lineField(t, depth-1), lineField(t, 0)})
	}
	return rapid.SampledFrom(all).Draw(t, "value")
}

func lineTable(t *rapid.T, depth int) amqp091.Table {
	table := amqp091.Table{}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		table = append(table, amqp091.Field{Key: lineTexts.Draw(t, "key"), Value: lineField(t, depth)})
	}
	return table
}

func optionally[T any](t *rapid.T, of *rapid.Generator[T]) *T {
	if rapid.Bool().Draw(t, "there") {
		return nil
	}
	v := of.Draw(t, "value")
	return &v
}

func lineProperties(t *rapid.T) []byte {
	l := amqp091.PropertyList{DeliveryMode: optionally(t, rapid.Uint8()), Priority: optionally(t, rapid.Uint8()), Timestamp: optionally(t, rapid.Uint64())}
	for _, of := range []**string{&l.ContentType, &l.ContentEncoding, &l.CorrelationID, &l.ReplyTo, &l.Expiration, &l.MessageID, &l.Type, &l.UserID, &l.AppID, &l.ClusterID} {
		*of = optionally(t, lineTexts)
	}
	if rapid.Bool().Draw(t, "headers") {
		l.Headers = lineTable(t, 2)
	}
	return amqp091.AppendPropsFrom(nil, l)
}

func lineHistory(t *rapid.T) []byte {
	keys := func() []string { return rapid.SliceOfN(lineTexts, 1, 3).Draw(t, "keys") }
	var h deadletter.History
	for range rapid.IntRange(0, 5).Draw(t, "deaths") {
		h.Record(&deadletter.Event{
			Queue: lineTexts.Draw(t, "queue"), Reason: deadletter.Reason(rapid.IntRange(1, 5).Draw(t, "reason")), Time: rapid.Int64Range(0, math.MaxUint32*1000).Draw(t, "time"),
			Expiration: rapid.Int64Range(-1, 10).Draw(t, "expiration"), Exchange: lineTexts.Draw(t, "exchange"), Keys: keys(), NextExchange: lineTexts.Draw(t, "next"), NextKeys: keys(),
			Cause: deadletter.Cause{ConsumerTag: lineTexts.Draw(t, "tag"), User: lineTexts.Draw(t, "user"), Error: lineTexts.Draw(t, "error")},
		})
		for i := range h.Deaths {
			h.Deaths[i].First = min(h.Deaths[i].First, h.Deaths[i].Last)
		}
		if rapid.IntRange(0, 3).Draw(t, "replayed") == 0 {
			h = deadletter.History{Exchange: lineTexts.Draw(t, "to"), Keys: keys(), ReplayedFrom: lineTexts.Draw(t, "from"), Marks: h.Replayed(rapid.Uint64().Draw(t, "job"))}
		}
	}
	h.From, h.EditedFrom, h.Sent = lineTexts.Draw(t, "from"), lineTexts.Draw(t, "original"), false
	h.Imported = true
	h.Annotations = rapid.SampledFrom([]string{"", string(amqp10.EndCompound(amqp10.AppendLong(amqp10.AppendSymbol([]byte{0xc1, 0, 0}, "x-a"), 5), 0, 2))}).Draw(t, "annotations")
	return h.Append(nil)
}

// What is exported and imported is equal to the byte: properties with headers of every type at any depth, the body, the history. Only that
// it was imported is new, and no line can say that it was not.
func TestALineRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := letter.Line{
			ID: "a.1", VHost: lineTexts.Draw(t, "vhost"), Queue: lineTexts.Draw(t, "queue"), Exchange: lineBytes.Draw(t, "exchange"), Key: lineBytes.Draw(t, "key"),
			Properties: lineProperties(t), Body: rapid.SampledFrom([][]byte{{}, []byte("text\n<&>"), []byte("\x00\x01"), {0xff}, bytes.Repeat([]byte{0}, 100), []byte("日本")}).Draw(t, "body"),
		}
		if rapid.Bool().Draw(t, "bcc") {
			l.BCC = []byte("\x01k\x00\x02\xffz")
		}
		if rapid.Bool().Draw(t, "sections") {
			data := amqp10.AppendData(nil, l.Body)
			l.Sections = &message.Sections{Head: data[:len(data)-len(l.Body)]}
		}
		if rapid.IntRange(0, 4).Draw(t, "history") > 0 {
			l.History = lineHistory(t)
		}
		line, err := letter.AppendLine(nil, &l)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("%q is not one line", line)
		}
		back, err := letter.ParseLine(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !reflect.DeepEqual(back, l) {
			t.Fatalf("%s\n got %+v\nwant %+v", line, back, l)
		}
	})
}

// fill gives each field a value of its own.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString("s" + strings.Repeat("x", *n%50))
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(1000 + *n))
	case reflect.Uint8, reflect.Uint64, reflect.Uint32:
		v.SetUint(uint64(2 + *n%3))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer: // a note: of a death that is under way
	default:
		panic("a field of type " + v.Type().String())
	}
}

// An export has every field of a history, also those that come after this was written.
func TestALineHasAllOfAHistory(t *testing.T) {
	var h deadletter.History
	n := 0
	fill(reflect.ValueOf(&h).Elem(), &n)
	h.Profile, h.First, h.Sent, h.Draft = deadletter.ApsaraMQ, 1, false, false
	h.Annotations = string(amqp10.EndCompound(amqp10.AppendLong(amqp10.AppendSymbol([]byte{0xc1, 0, 0}, "x-a"), 5), 0, 2))
	for _, list := range [][]deadletter.Death{h.Deaths, h.Earlier} {
		for i := range list {
			list[i].Last = list[i].First + 5
		}
	}
	l := letter.Line{Properties: []byte{0, 0}, Body: []byte{}, History: h.Append(nil)}
	line, err := letter.AppendLine(nil, &l)
	if err != nil {
		t.Fatal(err)
	}
	back, err := letter.ParseLine(line)
	if err != nil || !bytes.Equal(back.History, l.History) {
		now, _ := deadletter.Parse(back.History)
		t.Errorf("%v: %s\n got %+v\nwant %+v", err, line, now, h)
	}
}

// Lines that no export has written are refused, and the reason names what is wrong.
func TestLinesThatAreNoLetters(t *testing.T) {
	for line, want := range map[string]string{
		``: "no letter", `[]`: "no letter", `{"body":"x"}`: "body_encoding", `{"body_encoding":"text","colour":1}`: "colour", `{"body_encoding":"base64","body":"%"}`: "base64",
		`{"body_encoding":"text"} {}`: "something follows", `{"body_encoding":"text","headers":[["a","Q",1]]}`: "unknown field type",
		`{"body_encoding":"text","headers":` + strings.Repeat(`[["a","F",`, 200) + `[]` + strings.Repeat(`]]`, 200) + `}`: "deep",
		`{"body_encoding":"text","properties":{"type":"` + strings.Repeat("x", 256) + `"}}`:                               "255",
		`{"body_encoding":"text","history":{"deaths":[{"queue":"q","reason":"tired","count":1}]}}`:                        "tired",
		`{"body_encoding":"text","history":{"deaths":[{"queue":"q","reason":"rejected","count":0}]}}`:                     "count",
		`{"body_encoding":"text","body":"abc","amqp10":{"head":"AFN1oAI="}}`:                                              "format code", `{"body_encoding":"text","body":"a","amqp10":{"head":"AFN1oAI=","tail":"YQ=="}}`: "parts",
		`{"body_encoding":"text","amqp10":{"head":""}}`: "no body", `{"body_encoding":"text","body":"a","amqp10":{"head":"AFNwRQBTdaAB"}}`: "header",
		`{"body_encoding":"text","history":{"first":7}}`:                                     "first",
		`{"body_encoding":"text","history":{"first":-1}}`:                                    "first",
		`{"body_encoding":"text","history":{"profile":"x"}}`:                                 "profile",
		`{"body_encoding":"text","history":{"exchange":"` + strings.Repeat("x", 256) + `"}}`: "too long",
	} {
		if _, err := letter.ParseLine([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %s", line, err, want)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	h := deadletter.History{Keys: []string{"k"}}
	h.Record(&deadletter.Event{Queue: "q", Reason: deadletter.Nacked, Time: 5, Expiration: 7, Keys: []string{"k"}})
	line, _ := letter.AppendLine(nil, &letter.Line{Properties: []byte{0, 0}, History: h.Append(nil)})
	f.Add(line)
	f.Add([]byte(`{"properties":{},"body":"ab","body_encoding":"text","amqp10":{"head":"AFN1oAI="}}`))
	f.Add([]byte(`{"properties":{"type":"t"},"headers":[["a","I",1],["b","x","AA=="]],"body":"x","body_encoding":"text"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, err := letter.ParseLine(line)
		if err != nil {
			return
		}
		again, err := letter.AppendLine(nil, &l)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		back, err := letter.ParseLine(again)
		if err != nil || !bytes.Equal(back.Properties, l.Properties) || !bytes.Equal(back.History, l.History) || !bytes.Equal(back.Body, l.Body) ||
			!reflect.DeepEqual(back.Sections, l.Sections) {
			t.Fatalf("%s: %v\n%s", line, err, again)
		}
	})
}

// Numbers in a line that sums, catalogues or waits could overflow with are refused.
func TestALineHasBoundedNumbers(t *testing.T) {
	const line = `{"exchange":"","routing_key":"","properties":{},"body":"","body_encoding":"text","history":{"deaths":[{"queue":"q","reason":"rejected","count":%s,"first_ms":1,"last_ms":%s,"exchange":"","routing_keys":["k"]}],"first":0,"exchange":"","routing_keys":["k"],"rejected_by":{},"replays":%s}}`
	for _, c := range []struct {
		count, last, replays string
		ok                   bool
	}{{"1", "1", "1", true}, {"4294967297", "1", "0", false}, {"1", "9223372036854775807", "0", false}, {"1", "1", "18446744073709551615", false}} {
		if _, err := letter.ParseLine(fmt.Appendf(nil, line, c.count, c.last, c.replays)); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
