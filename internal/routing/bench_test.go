package routing

import (
	"fmt"
	"testing"
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
