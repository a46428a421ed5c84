package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// fixture is an exchange with bindings to names.
type fixture struct {
	t     *testing.T
	table Table
}

func newFixture(t *testing.T, kind Kind, args ...amqp091.Field) *fixture {
	t.Helper()
	table, err := New(kind, args)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, table}
}

func (f *fixture) bind(name, key string, args ...amqp091.Field) *Binding {
	f.t.Helper()
	b := &Binding{Destination: name, Name: name, QueueType: "rabbit_classic_queue", Key: key, Arguments: args}
	if err := f.table.Check(b); err != nil {
		f.t.Fatalf("binding %q by %q: %v", name, key, err)
	}
	f.table.Add(b)
	return b
}

// route returns the names that match, sorted, each once.
func (f *fixture) route(m *Message) []string {
	var names []string
	for _, d := range f.table.Route(nil, m) {
		names = append(names, d.(string))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (f *fixture) expect(m *Message, want ...string) {
	f.t.Helper()
	if got := f.route(m); !slices.Equal(got, want) {
		f.t.Errorf("message with key %q goes to %q, want %q", m.Key, got, want)
	}
}

func key(s string, more ...string) *Message {
	m := &Message{Key: []byte(s)}
	for _, k := range more {
		m.More = append(m.More, []byte(k))
	}
	return m
}

func TestBR_5_5_TypeErrors(t *testing.T) {
	for kind, want := range map[Kind]string{
		"bogus":   "unknown exchange type 'bogus'",
		"classic": "invalid exchange type 'classic'",
		"unknown": "invalid exchange type 'unknown'",
	} {
		if _, err := New(kind, nil); err == nil || err.Error() != want {
			t.Errorf("New(%q) = %v, want %q", kind, err, want)
		}
	}
	for _, kind := range Kinds() {
		if err := Check(kind, false); err != nil {
			t.Errorf("Check(%q): %v", kind, err)
		}
		if _, err := New(kind, amqp091.Table{{Key: "x-delayed-type", Value: "direct"}}); err != nil {
			t.Errorf("New(%q): %v", kind, err)
		}
	}
}

// An exchange that delays messages routes as the type does that it names, with that type's arguments.
func TestDelayedRoutesByAnotherType(t *testing.T) {
	for _, test := range []struct {
		value any
		err   string
	}{
		{"topic", ""},
		{[]byte("topic"), ""},
		{nil, "Invalid argument, 'x-delayed-type' must be an existing exchange type"},
		{int64(1), "Invalid argument, 'x-delayed-type' must be an existing exchange type"},
		{"x-delayed-message", "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"},
		{"bogus", "unknown exchange type 'bogus'"},
		{"", "invalid exchange type ''"},
		{"quorum", "invalid exchange type 'quorum'"},
	} {
		args := amqp091.Table{{Key: "x-delayed-type", Value: test.value}}
		table, err := New(Delayed, args)
		if test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%v: %v, want %q", test.value, err, test.err)
			}
			continue
		}
		if _, ok := table.(*topic); !ok || err != nil {
			t.Errorf("%v makes a %T, %v", test.value, table, err)
		}
		if kind, err := Acts(Delayed, args); kind != Topic || err != nil {
			t.Errorf("%v acts as %s, %v", test.value, kind, err)
		}
	}
	if _, err := New(Delayed, nil); err == nil {
		t.Error("an exchange delays messages without a type by which it routes them")
	}
}

func TestBR_6_5_Direct(t *testing.T) {
	f := newFixture(t, Direct)
	f.bind("a", "k")
	f.bind("b", "k")
	gone := f.bind("c", "other")
	f.expect(key("k"), "a", "b")
	f.expect(key("other", "k"), "a", "b", "c")
	f.expect(key("nothing"))
	f.table.Remove(gone)
	f.expect(key("other"))
}

func TestBR_6_5_Fanout(t *testing.T) {
	f := newFixture(t, Fanout)
	var bs []*Binding
	for i := range 3 * indexFrom {
		bs = append(bs, f.bind(fmt.Sprintf("q%02d", i), ""))
	}
	for i := range bs[2:] {
		f.table.Remove(bs[i+2])
	}
	f.expect(key("any"), "q00", "q01")
}

func TestBR_6_6_TopicWords(t *testing.T) {
	for _, c := range []struct {
		binding, key string
		want         bool
	}{
		{"a.#", "a", true},
		{"a.#", "a.b.c", true},
		{"#.b.#", "a.b.c", true},
		{"#.b.#", "b", true},
		{"#.b.#", "a.c", false},
		{"*.#", "a", true},
		{"*.#", "", false},
		{"a.*.c", "a..c", true},
		{"#.*", "a", true},
		{"#.*", "", false},
		{"*", "", false},
		{"*", "a", true},
		{"*", "a.", false},
		{"a.*", "a.", true},
		{"a.*", "a", false},
		{"#", "", true},
		{"#", "a.b", true},
		{"", "", true},
		{"", "a", false},
		{"", ".", false},
		{"a*", "a*", true},
		{"a*", "ab", false},
		{"a.b", "a.b", true},
		{"a.b", "a.b.c", false},
		{"#.#", "a", true},
	} {
		f := newFixture(t, Topic)
		f.bind("q", c.binding)
		if got := len(f.route(key(c.key))) > 0; got != c.want {
			t.Errorf("binding %q matches key %q: %v, want %v", c.binding, c.key, got, c.want)
		}
	}
}

func TestBR_6_7_TooManyHashes(t *testing.T) {
	f := newFixture(t, Topic)
	err := f.table.Check(&Binding{Key: "#.a.#.b.#"})
	want := "Topic binding key '#.a.#.b.#' uses 3 '#' wildcards, at most 2 are allowed"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := f.table.Check(&Binding{Key: "#.a#.#"}); err != nil {
		t.Errorf("two '#' words and one inside a word: %v", err)
	}
}

// withHeaders encodes headers as a message carries them.
func withHeaders(fields ...amqp091.Field) *Message {
	return &Message{Headers: amqp091.AppendTable(nil, fields)[4:]}
}

func arg(key string, value any) amqp091.Field { return amqp091.Field{Key: key, Value: value} }

func TestBR_6_8_HeadersMatch(t *testing.T) {
	f := newFixture(t, Headers)
	f.bind("all", "", arg("x-match", "all"), arg("a", int32(1)), arg("b", "two"))
	f.bind("any", "", arg("x-match", "any"), arg("a", int32(1)), arg("b", "two"))
	f.bind("default", "", arg("a", int32(1)), arg("b", "two"))
	f.bind("void", "", arg("c", nil))
	f.bind("any-nothing", "", arg("x-match", "any"), arg("x-ignored", "1"))
	f.expect(withHeaders(arg("a", int32(1)), arg("b", "two")), "all", "any", "default")
	f.expect(withHeaders(arg("a", int64(1)), arg("b", "two")), "all", "any", "default")
	f.expect(withHeaders(arg("a", int32(1))), "any")
	f.expect(withHeaders(arg("a", "1"), arg("b", "two")), "any")
	f.expect(withHeaders(arg("c", amqp091.Table{})), "void")
	f.expect(key(""))

	f = newFixture(t, Headers)
	f.bind("all", "", arg("x-match", "all"), arg("x-a", int32(1)))
	f.bind("with-x", "", arg("x-match", "all-with-x"), arg("x-a", int32(1)))
	f.bind("any-with-x", "", arg("x-match", "any-with-x"), arg("x-a", int32(2)), arg("x-b", int32(2)))
	f.expect(key(""), "all")
	f.expect(withHeaders(arg("x-a", int8(1))), "all", "with-x")
	f.expect(withHeaders(arg("x-b", int8(2))), "all", "any-with-x")
}

// BR-6.8: what a binding of many arguments costs for a message of many headers does not grow with their product.
func TestBR_6_8_ManyHeadersAreNotComparedWithEachOther(t *testing.T) {
	const headers = 2000
	f := newFixture(t, Headers)
	args := amqp091.Table{arg("x-match", "all")}
	for i := range headers {
		args = append(args, arg(fmt.Sprint("h", i), int32(i)))
	}
	f.bind("q", "", args...)
	more := make(amqp091.Table, 0, headers)
	for i := range headers {
		more = append(more, arg(fmt.Sprint("h", headers-1-i), int32(headers-1-i)))
	}
	m := withHeaders(more...)
	f.expect(m, "q")
	many := &m.many[0]
	f.expect(m, "q")
	if &m.many[0] != many {
		t.Error("the headers are listed again for the next exchange")
	}
	delete(m.first, "h0") // which is still in the list
	f.expect(m)
}

// Of equal names the first counts, whether there are a few headers or many, and those of a death stand before all.
func TestBR_6_8_TheFirstOfEqualHeadersCounts(t *testing.T) {
	for _, others := range []int{0, 3 * fewHeaders} {
		f := newFixture(t, Headers)
		f.bind("first", "", arg("h", int32(1)))
		f.bind("second", "", arg("h", int32(2)))
		f.bind("death", "", arg("h", int32(3)))
		f.bind("missing", "", arg("a", nil))
		f.bind("last", "", arg("zz", nil))
		var fields []amqp091.Field
		for i := range others {
			fields = append(fields, arg(fmt.Sprint("o", i), "x"), arg("h", int32(1)))
		}
		fields = append(fields, arg("zz", "x"), arg("h", int32(1)), arg("h", int32(2)))
		m := withHeaders(fields...)
		f.expect(m, "first", "last")
		m.Extra = []amqp091.RawField{{Key: "h", Encoded: amqp091.AppendValue(nil, int32(3))}}
		f.expect(m, "death", "last")
	}
}

func TestBR_6_9_HeaderValues(t *testing.T) {
	for _, c := range []struct {
		binding, header any
		want            bool
	}{
		{int64(200), uint8(200), true},
		{int8(-1), int64(-1), true},
		{int64(1), 1.0, false},
		{1.5, float32(1.5), true},
		{true, int8(1), false},
		{true, true, true},
		{true, false, false},
		{"1", int64(1), false},
		{int64(1), "1", false},
		{"a", []byte("a"), false},
		{amqp091.Timestamp(7), amqp091.Timestamp(7), true},
		{amqp091.Timestamp(7), int64(7), false},
		{amqp091.Decimal{Scale: 1, Value: 5}, amqp091.Decimal{Scale: 1, Value: 5}, true},
		{"a", nil, false},
		{nil, nil, true},
		{amqp091.Array{int8(1), "a"}, amqp091.Array{int64(1), "a"}, true},
		{amqp091.Array{"a", int8(1)}, amqp091.Array{int8(1), "a"}, false},
		{amqp091.Array{"a"}, "a", false},
		{amqp091.Table{{Key: "a", Value: int8(1)}, {Key: "b", Value: "x"}}, amqp091.Table{{Key: "b", Value: "x"}, {Key: "a", Value: int64(1)}}, true},
		{amqp091.Table{{Key: "a", Value: []byte("b")}}, amqp091.Table{{Key: "a", Value: amqp091.Table{}}}, false},
		{amqp091.Table{arg("a", true), arg("a", "x")}, amqp091.Table{arg("a", true), arg("a", "y")}, true},
		{amqp091.Table{arg("a", true), arg("a", "x")}, amqp091.Table{arg("a", "x"), arg("a", true)}, false},
		{amqp091.Table{arg("a", true), arg("a", "x")}, amqp091.Table{arg("a", true)}, false},
		{amqp091.Table{arg("a", 1.5)}, amqp091.Table{arg("a", float32(1.5))}, true},
		{amqp091.Table{arg("a", 0.0)}, amqp091.Table{arg("a", math.Copysign(0, -1))}, true},
		{amqp091.Table{arg("a", math.NaN())}, amqp091.Table{arg("a", math.NaN())}, false},
		{amqp091.Table{arg("a", 1.0)}, amqp091.Table{arg("a", int64(1))}, false},
		{amqp091.Array{nil}, amqp091.Array{nil}, true},
		{amqp091.Array{nil}, amqp091.Array{"x"}, false},
		{amqp091.Array{amqp091.Array{}, "x"}, amqp091.Array{amqp091.Array{"x"}}, false},
	} {
		f := newFixture(t, Headers)
		f.bind("q", "", arg("h", c.binding))
		if got := len(f.route(withHeaders(arg("h", c.header)))) > 0; got != c.want {
			t.Errorf("binding %#v matches header %#v: %v, want %v", c.binding, c.header, got, c.want)
		}
	}
}

// BR-6.9: what it costs to read a header does not grow with the bindings that ask for it.
func TestBR_6_9_ATableIsDecodedOnceForAllBindings(t *testing.T) {
	large := make(amqp091.Table, 500)
	for i := range large {
		large[i] = arg(fmt.Sprint("k", i), amqp091.Array{"x"})
	}
	allocated := func(bindings int) float64 {
		f := newFixture(t, Headers)
		for i := range bindings {
			f.bind(fmt.Sprint("table", i), "", arg("h", amqp091.Table{arg("k", "x")}))
			f.bind(fmt.Sprint("array", i), "", arg("h", amqp091.Array{"x"}))
			f.bind(fmt.Sprint("other", i), "", arg("h", "x"))
			f.bind(fmt.Sprint("float", i), "", arg("h", 1.5))
		}
		m := withHeaders(arg("h", large))
		var dst []Destination
		return testing.AllocsPerRun(10, func() {
			m := Message{Headers: m.Headers}
			if dst = f.table.Route(dst[:0], &m); len(dst) != 0 {
				t.Error("another table matches")
			}
		})
	}
	if one, hundred := allocated(1), allocated(100); hundred > one {
		t.Errorf("a table of %d fields costs %v allocations for the bindings of one queue, %v for those of a hundred", len(large), one, hundred)
	}
}

// BR-6.9: nor does what it costs to put a table in order, where the bindings have as many fields in another order.
func TestBR_6_9_ATableIsPutInOrderOnceForAllBindings(t *testing.T) {
	const fields = 500
	table := func(first int) amqp091.Table {
		inner, outer := make(amqp091.Table, fields), make(amqp091.Table, fields)
		for i := range fields {
			inner[i] = arg(fmt.Sprint("k", (first+i)%fields), "x")
			outer[i] = arg(inner[i].Key, "x")
		}
		outer[0].Value = amqp091.Array{inner}
		return outer
	}
	allocated := func(bindings int) float64 {
		f := newFixture(t, Headers)
		for i := range bindings {
			bound := table(1)
			bound[0].Value, bound[fields-1].Value = "x", table(1)[0].Value // where table(0) has it
			f.bind(fmt.Sprint("equal", i), "", arg("h", bound))
			f.bind(fmt.Sprint("other", i), "", arg("h", table(1)))
		}
		m := withHeaders(arg("h", table(0)))
		dst := make([]Destination, 0, bindings)
		return testing.AllocsPerRun(10, func() {
			m := Message{Headers: m.Headers}
			if dst = f.table.Route(dst[:0], &m); len(dst) != bindings {
				t.Errorf("%d of %d equal tables match", len(dst), bindings)
			}
		})
	}
	if one, hundred := allocated(1), allocated(100); hundred > one {
		t.Errorf("a table of %d fields costs %v allocations for the bindings of one queue, %v for those of a hundred", fields, one, hundred)
	}
}

func TestBR_6_10_BadMatch(t *testing.T) {
	f := newFixture(t, Headers)
	for _, c := range []struct {
		value any
		want  string
	}{
		{"foo", `Invalid x-match field value <<"foo">>; expected all, any, all-with-x, or any-with-x`},
		{int64(5), "Invalid x-match field type long (value 5); expected longstr"},
		{int32(5), "Invalid x-match field type signedint (value 5); expected longstr"},
	} {
		err := f.table.Check(&Binding{Arguments: amqp091.Table{arg("x-match", c.value)}})
		if err == nil || err.Error() != c.want {
			t.Errorf("x-match %#v: %v, want %q", c.value, err, c.want)
		}
	}
}

func TestDL_6_8_DeathHeadersStandFirst(t *testing.T) {
	f := newFixture(t, Headers)
	f.bind("q", "", arg("x-match", "all-with-x"), arg("x-first-death-reason", "expired"))
	m := withHeaders(arg("x-first-death-reason", "forged"))
	f.expect(m)
	m.Extra = []amqp091.RawField{{Key: "x-first-death-reason", Encoded: amqp091.AppendValue(nil, "expired")}}
	f.expect(m, "q")
}

func TestBR_6_11_ConsistentHashChecks(t *testing.T) {
	f := newFixture(t, ConsistentHash)
	for k, want := range map[string]string{
		"a":  `The binding key must be an integer: <<"a">>`,
		"":   `The binding key must be an integer: <<>>`,
		"1x": `The binding key must be an integer: <<"1x">>`,
		"0":  "The binding key must be greater than 0",
		"-3": "The binding key must be greater than 0",
	} {
		if err := f.table.Check(&Binding{Key: k}); err == nil || err.Error() != want {
			t.Errorf("key %q: %v, want %q", k, err, want)
		}
	}
	for _, args := range []struct {
		table amqp091.Table
		want  string
	}{
		{amqp091.Table{arg("hash-header", "h"), arg("hash-property", "message_id")}, "hash-header and hash-property are mutually exclusive"},
		{amqp091.Table{arg("hash-property", "bogus")}, "Unsupported property: bogus"},
	} {
		if _, err := New(ConsistentHash, args.table); err == nil || err.Error() != args.want {
			t.Errorf("New with %v: %v, want %q", args.table, err, args.want)
		}
	}
}

func TestBR_6_11_ConsistentHashSpreadsByWeight(t *testing.T) {
	f := newFixture(t, ConsistentHash)
	f.bind("one", "1")
	f.bind("three", "3")
	f.bind("one", "100") // a second binding of the same destination is ignored
	counts := map[string]int{}
	before := map[string]string{}
	const total = 20000
	for i := range total {
		k := fmt.Sprint("key", i)
		to := f.route(key(k))
		if len(to) != 1 {
			t.Fatalf("key %q goes to %q, want exactly one destination", k, to)
		}
		counts[to[0]]++
		before[k] = to[0]
	}
	if share := float64(counts["three"]) / total; share < 0.72 || share > 0.78 {
		t.Errorf("weight 3 of 4 got %.3f of the messages, want about 0.75", share)
	}
	f.bind("new", "4")
	for k, old := range before {
		if now := f.route(key(k))[0]; now != old && now != "new" {
			t.Fatalf("key %q moved from %q to %q though only %q was added", k, old, now, "new")
		}
	}
}

func TestBR_6_11_ConsistentHashInputs(t *testing.T) {
	const bindings = 8
	for _, c := range []struct {
		name string
		args amqp091.Table
		vary func(i int) *Message
	}{
		{"header", amqp091.Table{arg("hash-header", "h")}, func(i int) *Message { return withHeaders(arg("h", fmt.Sprint(i))) }},
		{"message id", amqp091.Table{arg("hash-property", "message_id")}, func(i int) *Message { return &Message{MessageID: fmt.Append(nil, i)} }},
		{"correlation id", amqp091.Table{arg("hash-property", "correlation_id")}, func(i int) *Message { return &Message{CorrelationID: fmt.Append(nil, i)} }},
		{"timestamp", amqp091.Table{arg("hash-property", "timestamp")}, func(i int) *Message { return &Message{Timestamp: uint64(i), HasTimestamp: true} }},
	} {
		f := newFixture(t, ConsistentHash, c.args...)
		for i := range bindings {
			f.bind(fmt.Sprint("q", i), "1")
		}
		seen := map[string]bool{}
		for i := range 200 {
			m := c.vary(i)
			first := f.route(m)[0]
			seen[first] = true
			m.Key = []byte(fmt.Sprint("other", i))
			if again := f.route(m)[0]; again != first {
				t.Errorf("%s: the routing key changed the choice", c.name)
			}
		}
		if len(seen) != bindings {
			t.Errorf("%s: only %d of %d destinations were used", c.name, len(seen), bindings)
		}
	}
}

func TestBR_6_12_ModulusHash(t *testing.T) {
	f := newFixture(t, ModulusHash)
	f.expect(key("k"))
	var bs []*Binding
	for i := range 4 {
		bs = append(bs, f.bind(fmt.Sprint("q", i), ""))
	}
	seen := map[string]bool{}
	for i := range 100 {
		to := f.table.Route(nil, key(fmt.Sprint(i)))
		if len(to) != 1 {
			t.Fatalf("got %d destinations, want one", len(to))
		}
		seen[to[0].(string)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d of 4 queues were used", len(seen))
	}
	for _, b := range bs[1:] {
		f.table.Remove(b)
	}
	f.expect(key("k"), "q0")
}

func TestBR_6_12_LocalRandom(t *testing.T) {
	f := newFixture(t, LocalRandom)
	for _, c := range []struct {
		b    Binding
		want string
	}{
		{Binding{Key: "whatever", QueueType: "rabbit_classic_queue"}, "Non empty binding 'whatever' key not permitted"},
		{Binding{QueueType: "rabbit_quorum_queue"}, "Queue type rabbit_quorum_queue not valid for this exchange type"},
	} {
		if err := f.table.Check(&c.b); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	f.expect(key("k"))
	f.bind("a", "")
	f.bind("b", "")
	f.expect(&Message{Chance: 2}, "a")
	f.expect(&Message{Chance: 3}, "b")
}
