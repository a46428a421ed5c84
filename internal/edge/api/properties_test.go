package api

import (
	"encoding/json"
	"math"
	"testing"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// DL-7.8: every type of field has a form in JSON; those RabbitMQ 4.3.6 gave.
func TestShowFields(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, `"undefined"`}, {true, `true`}, {int8(-1), `-1`}, {uint16(7), `7`}, {int64(math.MaxInt64), `9223372036854775807`},
		{1.5, `1.5`}, {math.Inf(1), `"+Inf"`}, {"s", `"s"`}, {[]byte{1, 255}, `"Not UTF-8, base64 is: Af8="`}, {[]byte("b"), `"b"`},
		{"\xff", `"Not UTF-8, base64 is: /w=="`}, {amqp091.Timestamp(5), `5`}, {amqp091.Decimal{Scale: 2, Value: 314}, `3.14`},
		{amqp091.Array{true, "s", nil}, `[true,"s","undefined"]`}, {amqp091.Table{{Key: "x", Value: int8(1)}}, `{"x":1}`},
	} {
		got, err := json.Marshal(topology.HeadersForm.Object(amqp091.Table{{Key: "k", Value: c.value}})["k"])
		if err != nil || string(got) != c.want {
			t.Errorf("%T %v: got %s, %v; want %s", c.value, c.value, got, err, c.want)
		}
	}
}

// Properties sent as JSON are shown as they were sent.
func TestPropertiesThereAndBack(t *testing.T) {
	const text = `{"app_id":"a","cluster_id":"c","content_encoding":"e","content_type":"t","correlation_id":"c","delivery_mode":2,` +
		`"expiration":"5","headers":{"a":1,"b":[true,{"c":"d"}],"e":1.5},"message_id":"m","priority":255,"reply_to":"r",` +
		`"timestamp":12,"type":"y","user_id":"u"}`
	v, err := topology.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := readProperties(v)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := showProperties(raw)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(shown)
	if err != nil || string(got) != text {
		t.Errorf("got  %s, %v\nwant %s", got, err, text)
	}
}

// Whatever a client sends, properties are refused or can be read back.
func FuzzReadProperties(f *testing.F) {
	f.Add(`{"headers":{"a":[1,{"b":null}]},"priority":3}`)
	f.Add(`{"timestamp":-1}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := topology.ParseJSON([]byte(text))
		if err != nil {
			return
		}
		raw, err := readProperties(v)
		if err != nil {
			return
		}
		shown, err := showProperties(raw)
		if err != nil {
			t.Fatalf("%s: properties we made cannot be read: %v", text, err)
		}
		if _, err := json.Marshal(shown); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
