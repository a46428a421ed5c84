package routing

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

func BenchmarkRoute(b *testing.B) {
	for _, c := range []struct {
		kind Kind
		key  func(i int) string
		sent string
	}{
		{Direct, func(i int) string { return fmt.Sprint("key.", i) }, "key.77"},
		{Fanout, func(int) string { return "" }, "any"},
		{Topic, func(i int) string { return fmt.Sprintf("orders.*.%d.#", i) }, "orders.eu.77.created"},
		{Headers, func(int) string { return "" }, ""},
		{ConsistentHash, func(int) string { return "10" }, "orders"},
		{Topic, func(i int) string { return fmt.Sprintf("#.%d.#.created", i) }, "orders.eu.77.shop.created"},
	} {
		b.Run(string(c.kind), func(b *testing.B) {
			table, err := New(c.kind, nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := range 100 {
				name := fmt.Sprint("q", i)
				table.Add(&Binding{Destination: name, Name: name, Key: c.key(i)})
			}
			m := &Message{Key: []byte(c.sent)}
			var dst []Destination
			b.ReportAllocs()
			for b.Loop() {
				dst = table.Route(dst[:0], m)
			}
		})
	}
}

func BenchmarkHeaders(b *testing.B) {
	for _, n := range []int{0, 5, 30, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := &headers{}
			for i := range 100 {
				table.Add(&Binding{Arguments: amqp091.Table{{Key: fmt.Sprint("h", i%7), Value: "x"}, {Key: "h2", Value: "no"}}})
			}
			var fields amqp091.Table
			for i := range n {
				fields = append(fields, amqp091.Field{Key: fmt.Sprint("h", i), Value: "x"})
			}
			headers := amqp091.AppendTable(nil, fields)[4:]
			var dst []Destination
			b.ReportAllocs()
			for b.Loop() {
				m := Message{Headers: headers}
				dst = table.Route(dst[:0], &m)
			}
		})
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	for _, kind := range []Kind{Direct, Fanout, Topic} {
		f := newFixture(t, kind)
		f.bind("a", "a.b")
		f.bind("b", "a.#")
		f.bind("c", "#.b")
		m := key("a.b", "c.d")
		dst := make([]Destination, 0, 16)
		if n := testing.AllocsPerRun(100, func() { dst = f.table.Route(dst[:0], m) }); n != 0 {
			t.Errorf("routing through a %s exchange allocates %v times", kind, n)
		}
	}
}

func TestBR_6_8_AFewHeadersDoNotAllocate(t *testing.T) {
	f := newFixture(t, Headers)
	f.bind("a", "", arg("a", "x"), arg("b", int32(1)))
	m := withHeaders(arg("b", int64(1)), arg("a", "x"))
	dst := make([]Destination, 0, 16)
	if n := testing.AllocsPerRun(100, func() { dst = f.table.Route(dst[:0], m) }); n != 0 || len(dst) != 1 {
		t.Errorf("routing allocates %v times and finds %d destinations", n, len(dst))
	}
}
