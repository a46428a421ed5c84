package convert_test

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// hotMessage is a typical message of AMQP 1.0 with a body of n bytes.
func hotMessage(tb testing.TB, n int) amqp10.Message {
	tb.Helper()
	b := (&amqp10.Header{Durable: true}).Append(nil)
	b = (&amqp10.Properties{
		MessageID: amqp10.MustValue(amqp10.AppendString(nil, "0123456789abcdef")), To: []byte("/exchanges/events/order.created"),
		ContentType: []byte("application/json"),
	}).Append(b)
	b, start := amqp10.BeginMap(amqp10.AppendDescriptor(b, amqp10.DescriptorApplicationProperties))
	b = amqp10.AppendInt(amqp10.AppendString(b, "attempt"), 1)
	b = amqp10.AppendString(amqp10.AppendString(b, "tenant"), "acme")
	b = amqp10.EndCompound(b, start, 4)
	return parse(tb, amqp10.AppendData(b, make([]byte, n)))
}

// parse reads a message that is right.
func parse(tb testing.TB, b []byte) amqp10.Message {
	tb.Helper()
	m, err := amqp10.ParseMessage(b)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		tb.Fatalf("% x: %v", b, err)
	}
	return m
}

// record stores a message as the broker does.
func record(tb testing.TB, exchange, key string, raw []byte, sections *message.Sections, body []byte) message.Record {
	tb.Helper()
	p, err := amqp091.ParseProps(raw)
	if err != nil {
		tb.Fatalf("properties % x: %v", raw, err)
	}
	e := message.Envelope{
		Serial: 1, Exchange: []byte(exchange), Key: []byte(key), Properties: amqp091.AppendProps(nil, raw, &p, nil), Sections: sections,
		BodySize: len(body), Persistent: p.DeliveryMode == 2, HasHeaders: p.Headers != nil, HasExpiration: p.Has(amqp091.FlagExpiration),
		HasPriority: p.Has(amqp091.FlagPriority), Priority: p.Priority,
	}
	b := make([]byte, e.Size())
	copy(e.Put(b), body)
	if err := message.CheckRecord(b); err != nil {
		tb.Fatal(err)
	}
	return b
}

// stored is the record of a message of AMQP 1.0.
func stored(tb testing.TB, m *amqp10.Message) message.Record {
	tb.Helper()
	var in convert.Incoming
	if err := convert.FromAMQP10(&in, m); err != nil {
		tb.Fatal(err)
	}
	return record(tb, "events", "order.created", in.Raw, &in.Sections, in.Body)
}

// hotProperties are those of hotMessage in AMQP 0-9-1.
func hotProperties() []byte {
	contentType, id, mode := "application/json", "0123456789abcdef", uint8(2)
	return amqp091.AppendPropsFrom(nil, amqp091.PropertyList{
		ContentType: &contentType, MessageID: &id, DeliveryMode: &mode,
		Headers: amqp091.Table{{Key: "attempt", Value: int32(1)}, {Key: "tenant", Value: "acme"}},
	})
}

// died is a history of one death.
func died() *deadletter.History {
	h := &deadletter.History{}
	h.Record(&deadletter.Event{
		Queue: "orders", Reason: deadletter.Rejected, Time: 1_700_000_000_123, Expiration: -1,
		Exchange: "events", NextExchange: "dlx", Keys: []string{"order.created"}, NextKeys: []string{"order.created"},
	})
	return h
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	m := hotMessage(t, 100)
	rec, rec091 := stored(t, &m), record(t, "events", "order.created", hotProperties(), nil, make([]byte, 100))
	var in convert.Incoming
	out := make([]byte, 0, 4096)
	plain, dead := &convert.Delivery{}, &convert.Delivery{History: died(), Counts: queue.Counts{Deliveries: 1, Acquired: 2}, Quorum: true}
	for name, f := range map[string]func(){
		"from AMQP 1.0":           func() { _ = convert.FromAMQP10(&in, &m) },
		"to AMQP 1.0":             func() { out, _, _ = convert.AppendAMQP10(out[:0], rec, plain) },
		"to AMQP 1.0, dead":       func() { out, _, _ = convert.AppendAMQP10(out[:0], rec, dead) },
		"0-9-1 to AMQP 1.0":       func() { out, _, _ = convert.AppendAMQP10(out[:0], rec091, plain) },
		"0-9-1 to AMQP 1.0, dead": func() { out, _, _ = convert.AppendAMQP10(out[:0], rec091, dead) },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkFromAMQP10(b *testing.B) {
	for _, n := range []int{16, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := hotMessage(b, n)
			var in convert.Incoming
			b.ReportAllocs()
			for b.Loop() {
				if err := convert.FromAMQP10(&in, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendAMQP10(b *testing.B) {
	for _, n := range []int{16, 1024} {
		m := hotMessage(b, n)
		for name, rec := range map[string]message.Record{
			"1.0": stored(b, &m), "0-9-1": record(b, "events", "order.created", hotProperties(), nil, make([]byte, n)),
		} {
			for state, d := range map[string]*convert.Delivery{"live": {}, "dead": {History: died()}} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, state, n), func(b *testing.B) {
					var head []byte
					b.ReportAllocs()
					for b.Loop() {
						head, _, _ = convert.AppendAMQP10(head[:0], rec, d)
					}
				})
			}
		}
	}
}
