package convert_test

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// drawValue is any value of AMQP 1.0.
func drawValue(t *rapid.T, depth int) []byte {
	kinds := 20
	if depth > 0 {
		kinds = 24
	}
	some := func() (items [][]byte) {
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			items = append(items, drawValue(t, depth-1))
		}
		return items
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return amqp10.AppendNull(nil)
	case 1:
		return amqp10.AppendBool(nil, rapid.Bool().Draw(t, "boolean"))
	case 2:
		return ubyte(rapid.Uint8().Draw(t, "ubyte"))
	case 3:
		return amqp10.AppendUshort(nil, rapid.Uint16().Draw(t, "ushort"))
	case 4:
		return amqp10.AppendUint(nil, rapid.Uint32().Draw(t, "uint"))
	case 5:
		return ulong(rapid.Uint64().Draw(t, "ulong"))
	case 6:
		return amqp10.AppendByte(nil, rapid.Int8().Draw(t, "byte"))
	case 7:
		return amqp10.AppendShort(nil, rapid.Int16().Draw(t, "short"))
	case 8:
		return amqp10.AppendInt(nil, rapid.Int32().Draw(t, "int"))
	case 9:
		return amqp10.AppendLong(nil, rapid.Int64().Draw(t, "long"))
	case 10:
		return amqp10.AppendFloat(nil, rapid.Float32().Draw(t, "float"))
	case 11:
		return amqp10.AppendDouble(nil, rapid.Float64().Draw(t, "double"))
	case 12:
		return amqp10.AppendDecimal64(nil, [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "decimal")))
	case 13:
		return amqp10.AppendChar(nil, rapid.Rune().Draw(t, "char"))
	case 14:
		return ms(rapid.Int64().Draw(t, "timestamp"))
	case 15:
		return amqp10.AppendUUID(nil, [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")))
	case 16:
		return amqp10.AppendBinary(nil, rapid.SliceOf(rapid.Byte()).Draw(t, "binary"))
	case 17, 18:
		return str(rapid.String().Draw(t, "string"))
	case 19:
		return sym(rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "symbol"))
	case 20:
		return list(some()...)
	case 21:
		items := some()
		return mapping(append(items, items...)...)
	case 22:
		return described(amqp10.Descriptor(rapid.Uint64().Draw(t, "descriptor")), drawValue(t, depth-1))
	}
	element := drawValue(t, depth-1)
	return array(slices.Repeat([][]byte{element}, rapid.IntRange(0, 4).Draw(t, "elements"))...)
}

// drawPairs are the keys and values of a section that is a map.
func drawPairs(t *rapid.T, key func(string) []byte, keys *rapid.Generator[string]) (items [][]byte) {
	for range rapid.IntRange(0, 5).Draw(t, "pairs") {
		items = append(items, key(keys.Draw(t, "key")), drawValue(t, 3))
	}
	return items
}

var annotationKeys = rapid.OneOf(rapid.StringMatching(`x-[ -~]{0,10}`), rapid.SampledFrom([]string{
	"x-exchange", "x-routing-key", "x-opt-deaths", "x-death", "x-first-death-queue", "x-delivery-count", "x-delay", "x-basic-type", "x-basic-priority",
	"x-basic-expiration", "x-basic-delivery-mode", "x-opt-rabbitmq-received-time", "x-message-id",
}))

// drawMessage is any message of AMQP 1.0 that is not refused.
func drawMessage(t *rapid.T) []byte {
	var b []byte
	if rapid.Bool().Draw(t, "header") {
		h := amqp10.Header{Durable: rapid.Bool().Draw(t, "durable"), DeliveryCount: rapid.Uint32().Draw(t, "count")}
		if rapid.Bool().Draw(t, "more") {
			h.Priority, h.TTL = amqp10.Some(rapid.Uint8().Draw(t, "priority")), amqp10.Some(rapid.Uint32().Draw(t, "ttl"))
		}
		b = h.Append(b)
	}
	if rapid.Bool().Draw(t, "delivery-annotations") {
		b = append(b, described(amqp10.DescriptorDeliveryAnnotations, mapping(sym("x-d"), str("d")))...)
	}
	if rapid.Bool().Draw(t, "annotations") {
		b = append(b, annotations(drawPairs(t, sym, annotationKeys)...)...)
	}
	if rapid.Bool().Draw(t, "properties") {
		text := func(name string) []byte {
			if rapid.Bool().Draw(t, "no "+name) {
				return nil
			}
			return []byte(rapid.StringN(0, 300, -1).Draw(t, name))
		}
		p := amqp10.Properties{UserID: text("user-id"), To: text("to"), Subject: text("subject"), ReplyTo: text("reply-to"), GroupID: text("group-id")}
		p.MessageID = amqp10.MustValue(rapid.SampledFrom([][]byte{str("m"), ulong(7), amqp10.AppendUUID(nil, uuid), binary("\xff"), str(strings.Repeat("m", 300))}).Draw(t, "message-id"))
		p.CreationTime = amqp10.Some(rapid.Int64().Draw(t, "creation-time"))
		p.ContentType = []byte(rapid.StringMatching(`[ -~]{0,300}`).Draw(t, "content-type"))
		b = p.Append(b)
	}
	if rapid.Bool().Draw(t, "application-properties") {
		b = append(b, appProperties(drawPairs(t, str, rapid.StringN(0, 300, -1))...)...)
	}
	switch rapid.IntRange(0, 3).Draw(t, "body") {
	case 0:
		b = append(b, data(rapid.String().Draw(t, "content"))...)
	case 1:
		b = append(b, value(drawValue(t, 3))...)
	case 2:
		b = append(append(b, data("1")...), data("2")...)
	case 3:
		b = append(b, described(amqp10.DescriptorAMQPSequence, list(drawValue(t, 2)))...)
	}
	if rapid.Bool().Draw(t, "footer") {
		b = append(b, described(amqp10.DescriptorFooter, mapping(sym("x-f"), drawValue(t, 2)))...)
	}
	return b
}

// deliveries are states in which a message is delivered.
func deliveries() []*convert.Delivery {
	replayed := died()
	replayed.Deaths, replayed.ReplayedFrom, replayed.StripCC = nil, "dead", true
	apsara := died()
	apsara.Profile, apsara.LimitReason, apsara.Deaths[0].Reason = deadletter.ApsaraMQ, "límite", deadletter.DeliveryLimit
	modified, modifiedAlone := died(), &deadletter.History{Annotations: string(mapping(sym("x-own"), str("modified"), sym("x-exchange"), str("not this")))}
	modified.Annotations = modifiedAlone.Annotations
	return []*convert.Delivery{
		{},
		{Strict: true},
		{Redelivered: true, Quorum: true, Counts: queue.Counts{Deliveries: 2, Acquired: 3}, History: modifiedAlone},
		{History: died()},
		{History: modified, Strict: true},
		{History: replayed},
		{History: apsara},
		{History: &deadletter.History{Exchange: "waited", Keys: []string{"k\xff"}, Delayed: true}},
	}
}

// checkOut says what is wrong with a message that AppendAMQP10 made.
func checkOut(tb interface{ Fatalf(string, ...any) }, rec message.Record, d *convert.Delivery) amqp10.Message {
	h, body, tail := convert.AppendAMQP10([]byte("before"), rec, d)
	if !bytes.HasPrefix(h, []byte("before")) {
		tb.Fatalf("what dst had is gone")
	}
	b := slices.Concat(h[len("before"):], body, tail)
	m, err := amqp10.ParseMessage(b)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		tb.Fatalf("% x: %v", b, err)
	}
	keys := map[string]bool{}
	items := m.MessageAnnotations.Underlying().Items()
	for k, ok := items.Next(); ok; k, ok = items.Next() {
		items.Next()
		key, ok := k.Symbol()
		if !ok || !bytes.HasPrefix(key, []byte("x-")) {
			tb.Fatalf("a key of an annotation is % x", k.Append(nil))
		}
		if keys[string(key)] && !rec.HasSections() { // a client may send a key twice
			tb.Fatalf("the annotation %s is there twice", key)
		}
		keys[string(key)] = true
	}
	return m
}

func TestTheBareMessageComesThroughUntouched(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawMessage(rt)
		m := parse(t, b)
		var in convert.Incoming
		if err := convert.FromAMQP10(&in, &m); err != nil {
			rt.Fatal(err)
		}
		if err := convert.CheckSections(&in.Sections, in.Body); err != nil {
			rt.Fatal(err)
		}
		if !amqp091.Canonical(&in.Props) {
			rt.Fatalf("not canonical: % x", in.Raw)
		}
		rec := record(t, "x", "k", in.Raw, &in.Sections, in.Body)
		if !bytes.Equal(rec.Properties(), in.Raw) {
			rt.Fatalf("stored as % x", rec.Properties())
		}
		for _, d := range deliveries() {
			out := checkOut(rt, rec, d)
			if !bytes.Equal(out.Bare, m.Bare) || !bytes.Equal(out.Footer, m.Footer) {
				rt.Fatalf("sent % x\ngot  % x", m.Bare, out.Bare)
			}
		}
	})
}

// drawField is a field value of AMQP 0-9-1, and what is left of it after two conversions; kept is false if that is nothing.
func drawField(t *rapid.T, depth int) (v, after any, kept bool) {
	kinds := 15
	if depth > 0 {
		kinds = 17
	}
	same := func(v any) (any, any, bool) { return v, v, true }
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return same(rapid.Bool().Draw(t, "t"))
	case 1:
		return same(rapid.Int8().Draw(t, "b"))
	case 2:
		return same(rapid.Uint8().Draw(t, "B"))
	case 3:
		return same(rapid.Int16().Draw(t, "s"))
	case 4:
		return same(rapid.Uint16().Draw(t, "u"))
	case 5:
		return same(rapid.Int32().Draw(t, "I"))
	case 6:
		return same(rapid.Uint32().Draw(t, "i"))
	case 7:
		return same(rapid.Int64().Draw(t, "l"))
	case 8:
		return same(rapid.Float32().Draw(t, "f"))
	case 9:
		return same(rapid.Float64().Draw(t, "d"))
	case 10:
		return amqp091.Decimal{Scale: rapid.Uint8().Draw(t, "scale"), Value: rapid.Uint32().Draw(t, "value")}, nil, false
	case 11:
		return same(string(rapid.SliceOf(rapid.Byte()).Draw(t, "S")))
	case 12:
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "x")
		return b, string(b), true
	case 13:
		return same(amqp091.Timestamp(rapid.Uint64Range(0, math.MaxInt64/1000).Draw(t, "T")))
	case 14:
		return same(nil)
	case 15:
		a, b := drawTable(t, depth-1, rapid.StringN(0, 20, 255))
		return a, b, true
	}
	a, b := amqp091.Array{}, amqp091.Array{}
	for range rapid.IntRange(0, 4).Draw(t, "elements") {
		v, after, kept := drawField(t, depth-1)
		if a = append(a, v); kept {
			b = append(b, after)
		}
	}
	return a, b, true
}

func drawTable(t *rapid.T, depth int, keys *rapid.Generator[string]) (table, after amqp091.Table) {
	table, after = amqp091.Table{}, amqp091.Table{}
	for range rapid.IntRange(0, 5).Draw(t, "fields") {
		key := keys.Draw(t, "key")
		v, left, kept := drawField(t, depth)
		if table = append(table, amqp091.Field{Key: key, Value: v}); kept {
			after = append(after, amqp091.Field{Key: key, Value: left})
		}
	}
	return table, after
}

// ownKeys are keys of headers that mean nothing to a conversion.
var ownKeys = rapid.OneOf(rapid.StringMatching(`(x-|o)[a-z]{1,8}é?`), rapid.StringN(1, 30, 255).Filter(func(s string) bool {
	return s != "CC" && s != "BCC" && !strings.HasPrefix(s, "x-")
}))

func TestDL14_5_PropertiesComeBackAsRabbitMQKeepsThem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sent, want amqp091.PropertyList
		table, after := drawTable(rt, 3, ownKeys)
		times := map[string]int{}
		for _, f := range table {
			times[f.Key]++
		}
		twice := func(f amqp091.Field) bool { return times[f.Key] > 1 } // which of them stays is another test's
		sent.Headers, want.Headers = slices.DeleteFunc(table, twice), slices.DeleteFunc(after.Sorted(), twice)
		if len(want.Headers) == 0 {
			want.Headers = nil
		}
		text := func(name, pattern string) (*string, *string) {
			if rapid.Bool().Draw(rt, "no "+name) {
				return nil, nil
			}
			s := rapid.StringMatching(pattern).Draw(rt, name)
			return &s, &s
		}
		sent.ContentType, want.ContentType = text("content-type", `[ -~]{0,255}`)
		sent.ContentEncoding, want.ContentEncoding = text("content-encoding", `[ -~]{0,10}`)
		sent.CorrelationID, want.CorrelationID = text("correlation-id", `.{0,60}`)
		sent.MessageID, want.MessageID = text("message-id", `urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
		sent.ReplyTo, want.ReplyTo = text("reply-to", `[ -~]{0,80}`)
		sent.AppID, want.AppID = text("app-id", `.{0,60}`)
		sent.Type, want.Type = text("type", `.{0,60}`)
		sent.ClusterID, _ = text("cluster-id", `[a-z]*`)
		sent.UserID, want.UserID = text("user-id", `[a-zé]{0,60}`)
		if ttl := rapid.Uint32().Draw(rt, "ttl"); ttl%2 == 0 {
			s := strconv.FormatUint(uint64(ttl), 10)
			sent.Expiration, want.Expiration = &s, &s
		}
		mode := rapid.Uint8Range(1, 2).Draw(rt, "mode")
		if sent.DeliveryMode = &mode; mode == 2 {
			want.DeliveryMode = &mode
		}
		if p := rapid.Uint8().Draw(rt, "priority"); p%2 == 0 {
			sent.Priority, want.Priority = &p, &p
		}
		if at := rapid.Uint64Range(0, math.MaxInt64/1000).Draw(rt, "timestamp"); at%2 == 0 {
			sent.Timestamp, want.Timestamp = &at, &at
		}
		rec := record(t, "x", "k", amqp091.AppendPropsFrom(nil, sent), nil, []byte("body"))
		m := checkOut(rt, rec, &convert.Delivery{})
		var in convert.Incoming
		if err := convert.FromAMQP10(&in, &m); err != nil {
			rt.Fatal(err)
		}
		got, err := amqp091.DecodeProps(in.Raw)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || string(in.Body) != "body" {
			rt.Fatalf("want -, got + (body %q):\n%s", in.Body, diff)
		}
	})
}

// TestHeadersAtTheLimits has keys, values and nesting at their limits, in both directions.
func TestHeadersAtTheLimits(t *testing.T) {
	deep := func(n int) []byte {
		v := str("deep")
		for range n {
			v = list(v)
		}
		return v
	}
	const most = 98 // lists inside each other in a section
	m := parse(t, message10(appProperties(str("deep"), deep(most), str(strings.Repeat("k", 255)), str(strings.Repeat("v", 70000))), data("b")))
	var in convert.Incoming
	if err := convert.FromAMQP10(&in, &m); err != nil {
		t.Fatal(err)
	}
	l, err := amqp091.DecodeProps(in.Raw)
	if err != nil || len(l.Headers) != 2 {
		t.Fatalf("%d headers: %v", len(l.Headers), err)
	}

	var a any = "deep"
	for range amqp091.MaxDepth - 1 {
		a = amqp091.Array{a}
	}
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{Headers: amqp091.Table{
		{Key: strings.Repeat("k", 255), Value: "v"}, {Key: "x-" + strings.Repeat("a", 253), Value: int64(math.MinInt64)}, {Key: "deep", Value: a},
	}})
	out := checkOut(t, record(t, strings.Repeat("x", 255), strings.Repeat("k", 255), raw, nil, nil), &convert.Delivery{})
	if n := out.ApplicationProperties.Underlying().Len(); n != 4 {
		t.Errorf("%d keys and values of application-properties", n)
	}
	v, _ := out.ApplicationProperty("deep")
	for n := 0; ; n++ {
		items := v.Items()
		inner, ok := items.Next()
		if !ok {
			if n != most-1 {
				t.Errorf("%d lists are left", n)
			}
			break
		}
		v = inner
	}
}

// TestHeadersHaveABound: a message of AMQP 1.0 may have any number of properties, a frame of AMQP 0-9-1 has not.
func TestHeadersHaveABound(t *testing.T) {
	var pairs [][]byte
	for i := range 40000 {
		pairs = append(pairs, str(strconv.Itoa(i)), ulong(0))
	}
	for name, c := range map[string]struct {
		message []byte
		headers int
	}{
		"many":               {message10(appProperties(pairs...), data("b")), 8000},
		"one large":          {message10(appProperties(str("a"), str(strings.Repeat("x", 1<<20)), str("b"), ubyte(1)), data("b")), 1},
		"a long list":        {message10(appProperties(str("a"), list(slices.Repeat([][]byte{ulong(0)}, 100000)...), str("b"), ubyte(1)), data("b")), 1},
		"a large message-id": {message10(properties(amqp10.Properties{MessageID: amqp10.MustValue(str(strings.Repeat("x", 1<<20)))}), appProperties(str("b"), ubyte(1)), data("b")), 1},
		"large x-opt-deaths": {message10(annotations(sym("x-opt-deaths"), array(slices.Repeat([][]byte{opaqueDeath()}, 5000)...)), appProperties(str("b"), ubyte(1)), data("b")), 1},
	} {
		m := parse(t, c.message)
		var in convert.Incoming
		if err := convert.FromAMQP10(&in, &m); err != nil {
			t.Fatal(err)
		}
		l, err := amqp091.DecodeProps(in.Raw)
		if err != nil || len(l.Headers) < c.headers || c.headers == 1 && len(l.Headers) != 1 || len(in.Raw) > 125<<10 {
			t.Errorf("%s: %d headers, %d bytes: %v", name, len(l.Headers), len(in.Raw), err)
		}
		if out := checkOut(t, record(t, "", "k", in.Raw, &in.Sections, in.Body), &convert.Delivery{}); !bytes.Equal(out.Bare, m.Bare) {
			t.Errorf("%s: the bare message is another", name)
		}
	}
	first := [][]byte{sym("x-a"), str(strings.Repeat("a", 100<<10)), sym("x-cc"), list(slices.Repeat([][]byte{str(strings.Repeat("k", 200))}, 500)...)}
	more := slices.Repeat([][]byte{sym("x-cc"), list(str("a"))}, 1000)
	keys := message10(annotations(append(first, more...)...), data("b"))
	m := parse(t, keys)
	var in convert.Incoming
	if err := convert.FromAMQP10(&in, &m); err != nil {
		t.Fatal(err)
	}
	if l, _ := amqp091.DecodeProps(in.Raw); len(l.Headers) != 1 || len(l.Headers[0].Value.(amqp091.Array)) != 500 {
		t.Error("routing keys are missing")
	}
	m = parse(t, message10(annotations(sym("x-cc"), list(slices.Repeat([][]byte{str("")}, 300_000)...)), data("b")))
	var refused *convert.CCError
	if err := convert.FromAMQP10(&in, &m); !errors.As(err, &refused) || !strings.Contains(err.Error(), "a list of 600009 bytes, at most 122880 are possible") {
		t.Errorf("300,000 routing keys: %v", err)
	}
	m = parse(t, message10(annotations(sym("x-cc"), list(slices.Repeat([][]byte{str("k")}, 30_000)...)), data("b")))
	if err := convert.FromAMQP10(&in, &m); !errors.As(err, &refused) { // they take 90,000 bytes here, and twice as many there
		t.Errorf("30,000 routing keys: %v", err)
	}
}

// TestForgetLetsTheMessageGo: its buffer may be as large as messages may be.
func TestForgetLetsTheMessageGo(t *testing.T) {
	in := new(convert.Incoming)
	gone := make(chan struct{})
	func() {
		b := new([1 << 20]byte)
		runtime.AddCleanup(b, func(c chan struct{}) { close(c) }, gone)
		n := copy(b[:], message10(annotations(sym("x-a"), str("a")), properties(amqp10.Properties{UserID: []byte("u"), Subject: []byte("s"), To: []byte("t")}), appProperties(str("p"), str("v")), data("b")))
		m := parse(t, b[:n])
		if err := convert.FromAMQP10(in, &m); err != nil {
			t.Fatal(err)
		}
		in.Forget()
	}()
	deadline := time.After(10 * time.Second)
	for {
		runtime.GC()
		select {
		case <-gone:
			runtime.KeepAlive(in)
			return
		case <-deadline:
			t.Fatal("the message is kept")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAnArrayOfNothingIsNoHeader: it takes no octets however many elements it has.
func TestAnArrayOfNothingIsNoHeader(t *testing.T) {
	for _, element := range [][]byte{amqp10.AppendNull(nil), {0x41}, {0x43}, {0x44}, {0x45}} {
		nothing := []byte{0xe0, 2, 255, element[0]}
		if element[0] != 0x40 {
			nothing[2] = 200
		}
		m := parse(t, message10(appProperties(str("k"), nothing, str("l"), list(nothing)), data("b")))
		var in convert.Incoming
		if err := convert.FromAMQP10(&in, &m); err != nil {
			t.Fatal(err)
		}
		l, _ := amqp091.DecodeProps(in.Raw)
		if diff := cmp.Diff(amqp091.Table{{Key: "l", Value: amqp091.Array{}}}, l.Headers); diff != "" {
			t.Errorf("% x: %s", nothing, diff)
		}
	}
}

// TestMemoryOfALargeMessageIsNotKept: an Incoming lives as long as its session.
func TestMemoryOfALargeMessageIsNotKept(t *testing.T) {
	large := parse(t, message10(annotations(sym("x-cc"), list(slices.Repeat([][]byte{str(strings.Repeat("k", 200))}, 500)...)), data("b")))
	small := hotMessage(t, 1)
	var in convert.Incoming
	for _, m := range []*amqp10.Message{&large, &small} {
		if err := convert.FromAMQP10(&in, m); err != nil {
			t.Fatal(err)
		}
	}
	if cap(in.Raw) > 1<<16 {
		t.Errorf("%d bytes are kept", cap(in.Raw))
	}
}

// TestDL14_6_ModifiedAnnotationsAreMerged: they go before the message's own, and the broker's before them.
func TestDL14_6_ModifiedAnnotationsAreMerged(t *testing.T) {
	m := parse(t, message10(annotations(sym("x-a"), str("own"), sym("x-b"), str("own")), data("b")))
	d := &convert.Delivery{History: &deadletter.History{Annotations: string(mapping(sym("x-b"), str("modified"), sym("x-c"), ubyte(1), sym("x-exchange"), str("modified")))}}
	out := checkOut(t, stored(t, &m), d)
	want := map[string]any{
		"symbol x-a": "string own", "symbol x-b": "string modified", "symbol x-c": "ubyte 1", "symbol x-exchange": "string events", "symbol x-routing-key": "string order.created",
	}
	if diff := cmp.Diff(want, shown(out.MessageAnnotations.Underlying())); diff != "" {
		t.Error(diff)
	}
}

// TestDL19_6_AReplayedMessageShowsNoDeaths: neither its own nor what a client sent.
func TestDL19_6_AReplayedMessageShowsNoDeaths(t *testing.T) {
	m := parse(t, message10(annotations(
		sym("x-opt-deaths"), array(opaqueDeath()), sym("x-first-death-queue"), str("q"), sym("x-death"), str("d"), sym("x-own"), str("o"), sym("x-cc"), list(str("k")),
	), data("b")))
	h := &deadletter.History{Exchange: "", Keys: []string{"main"}, ReplayedFrom: "dead", StripCC: true}
	out := checkOut(t, stored(t, &m), &convert.Delivery{History: h})
	want := map[string]any{"symbol x-own": "string o", "symbol x-exchange": "string ", "symbol x-routing-key": "string main", "symbol x-replayed-from": "string dead"}
	if diff := cmp.Diff(want, shown(out.MessageAnnotations.Underlying())); diff != "" {
		t.Error(diff)
	}
}

// TestWhatHasWaitedSaysSo: in AMQP 0-9-1 it is a header.
func TestWhatHasWaitedSaysSo(t *testing.T) {
	m := parse(t, message10(annotations(sym("x-delay"), amqp10.AppendLong(nil, 500)), data("b")))
	h := &deadletter.History{Exchange: "delaying", Keys: []string{"k"}, Delayed: true}
	for _, rec := range []message.Record{
		stored(t, &m), record(t, "delaying", "k", amqp091.AppendPropsFrom(nil, amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-delay", Value: int32(500)}}}), nil, nil),
	} {
		out := checkOut(t, rec, &convert.Delivery{History: h})
		v, _ := out.MessageAnnotation("x-delay")
		if n, _ := v.Int64(); n != -500 {
			t.Errorf("x-delay is %d", n)
		}
	}
}

func FuzzFromAMQP10(f *testing.F) {
	for _, s := range scenarios() {
		if s.message != nil {
			f.Add(s.message)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := amqp10.ParseMessage(b)
		if err != nil || m.Check() != nil {
			return
		}
		var in convert.Incoming
		if err := convert.FromAMQP10(&in, &m); err != nil {
			var cc *convert.CCError
			var key *convert.ReservedKeyError
			if !errors.Is(err, convert.ErrNoBody) && !errors.As(err, &cc) && !errors.As(err, &key) {
				t.Fatal(err)
			}
			return
		}
		if !amqp091.Canonical(&in.Props) {
			t.Fatalf("not canonical: % x", in.Raw)
		}
		if err := convert.CheckSections(&in.Sections, in.Body); err != nil {
			t.Fatal(err)
		}
		rec := record(t, "x", "k", in.Raw, &in.Sections, in.Body)
		for _, d := range deliveries() {
			out := checkOut(t, rec, d)
			if !bytes.Equal(out.Bare, m.Bare) || !bytes.Equal(out.Footer, m.Footer) {
				t.Fatalf("sent % x\ngot  % x", m.Bare, out.Bare)
			}
		}
	})
}

func FuzzAppendAMQP10(f *testing.F) {
	for _, s := range scenarios() {
		if s.message == nil {
			f.Add(amqp091.AppendPropsFrom(nil, s.properties), s.body)
		}
	}
	f.Fuzz(func(t *testing.T, raw, body []byte) {
		if _, err := amqp091.ParseProps(raw); err != nil {
			return
		}
		rec := record(t, "x", "k", raw, nil, body)
		for _, d := range deliveries() {
			m := checkOut(t, rec, d)
			if len(m.Bare)+len(m.Footer) < len(body) {
				t.Fatal("the body is shorter")
			}
			var in convert.Incoming
			var cc *convert.CCError
			switch err := convert.FromAMQP10(&in, &m); {
			case errors.As(err, &cc): // a header x-cc, or CC with a number in it
			case err != nil:
				t.Fatal(err)
			case !amqp091.Canonical(&in.Props):
				t.Fatalf("not canonical: % x", in.Raw)
			}
		}
	})
}
