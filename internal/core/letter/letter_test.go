package letter_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

const arrived = 1_700_000_000_000

// record is a message with the headers and a body.
func record(headers amqp091.Table, typ, body string) message.Record {
	l := amqp091.PropertyList{Headers: headers, MessageID: new("m-1")}
	if typ != "" {
		l.Type = &typ
	}
	props := amqp091.AppendPropsFrom(nil, l)
	e := message.Envelope{
		Serial: message.Serial(uint64(arrived) << message.SerialBits), Exchange: []byte("shop"), Key: []byte("order"), Properties: props, BodySize: len(body), HasHeaders: headers != nil,
	}
	r := make([]byte, e.Size())
	copy(e.Put(r), body)
	return r
}

// died is the history of a message that was rejected in "orders" at the moment.
func died(at int64, change ...func(*deadletter.History)) []byte {
	h := deadletter.History{Exchange: "dlx", Keys: []string{"order"}}
	h.Record(&deadletter.Event{
		Queue: "orders", Reason: deadletter.Rejected, Time: at, Expiration: -1, Exchange: "shop", Keys: []string{"order"}, NextExchange: "dlx", NextKeys: []string{"order"},
	})
	for _, f := range change {
		f(&h)
	}
	return h.Append(nil)
}

// Each pattern is part of the ids of groups in stores: it must never change.
func TestPatterns(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"order 4711 not found", "order # not found"},
		{"no customer 3f2b8c1e-9d4a-4f6b-8a2e-1c5d7e9f0a3b", "no customer #"},
		{"no customer ABCDEFAB-abcd-abcd-abcd-abcdefabcdef!", "no customer #!"},
		{"timeout at 2026-11-24T16:45:30.123Z", "timeout at #"},
		{"timeout at 2026-11-24 16:45:30", "timeout at #"},
		{"Tue Nov 24 16:45:30 2026: late", "#: late"},
		{"Fri, 1 May 2026: late", "#: late"},
		{"May I go", "May I go"},
		{"at 04:45 PM", "at #"},
		{"connect to 10.0.0.7:5432 refused", "connect to # refused"},
		{"connect to [2001:db8::8a2e:370:7334]:80", "connect to #"},
		{"key 'abc' and \"d e f\" and `g`", "key 'abc' and \"d e f\" and `g`"},
		{"can't read 'it''s'", "can't read 'it''s'"},
		{"can't and won't", "can't and won't"},
		{"“quoted” «that» „so”", "“quoted” «that» „so”"},
		{"user joe.doe+x@example.com is unknown", "user … is unknown"},
		{"com.shop.Order@6d06d69c is bad", "com.shop.Order@# is bad"},
		{"pointer 0xdeadbeef, hash deadbeefcafe", "pointer #, hash #"},
		{"sku XY12-ZW34 in queue7", "sku # in #"},
		{"token a8Kz91LmQp77 expired", "token # expired"},
		{"GET /orders/1234/items?page=2: 500", "GET /orders/#/items?#: 500"},
		{"balance -5 < 10", "balance # < #"},
		{"line one\n\tline\x00two   end  ", "line one line two end"},
		{"bad \xff\xfe byte", "bad \uFFFD\uFFFD byte"},
		{"bestellung ٤٢ für Köln", "bestellung # für Köln"},
		{strings.Repeat("日", 100), strings.Repeat("日", 66)},
		{"the bad cafe added a face", "the bad cafe added a face"},
		{"No such customer: cus_yGcJRpbwQazzZx", "No such customer: #"},
		{"pod checkout-7d9c5b-xk2pq on 10.0.0.7:8080", "pod # on #"},
		{"took 1m3s, then 2 minutes 5 seconds, then 850ms", "took #, then #, then #"},
		{"paid €12.30, 12,30 €, USD 12.30 and 12 EUR", "paid # and #"},
		{"Key (id)=(aB3xK9pQ) already exists", "Key (id)=(#) already exists"},
		{"customer 'anna' and 'Anna Meyer' and ''", "customer '…' and '…' and '…'"},
		{"key 'price' and '4711-AB' and \"OrderPlaced\"", "key 'price' and '#' and \"OrderPlaced\""},
		{`{"code":"card_declined","name":"anna","id":12}`, `{"code":"card_declined","name":"…","id":#}`},
		{"HTTP/1.1 503, status 404, status 4711", "HTTP 503, status 404, status #"},
		{"returned 503 from 7 nodes, returned 412 rows", "returned 503 from # nodes, returned # rows"},
		{"ORA-00001 or INV-00001", "ORA-00001 or #"},
		{"Error 1213 (40001): row 1213 (40001)", "Error 1213 (40001): row # (40001)"},
		{"promo code 4711, exit code 137", "promo code #, exit code 137"},
		{"1 attempt, 2 attempts", "# attempts, # attempts"},
		{"AmazonS3Exception of OrderPlacedV2 in UTF-8", "AmazonS3Exception of OrderPlacedV2 in UTF-8"},
		{"错误码 1213,订单 1213", "错误码 1213,订单 #"},
	} {
		if got := letter.Pattern(c.text); got != c.want {
			t.Errorf("%q\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

func FuzzPattern(f *testing.F) {
	f.Add("order 4711 of 'joe' at 2026-11-24T16:45:30Z \xff a@b.c 1:2::3 Nov 24")
	f.Add("HTTP/1.1 503 (k)=(v) \"a\":\"B C\" Error 1213 (40001) /tmp/a-b?c=d €1 1 µs AbC+/dEf==")
	f.Fuzz(func(t *testing.T, text string) {
		p := letter.Pattern(text)
		if len(p) > letter.MaxPattern || !utf8.ValidString(p) || strings.ContainsAny(p, "\n\x00") {
			t.Errorf("the pattern of %q is %q", text, p)
		}
		if again := letter.Pattern(text); again != p {
			t.Errorf("two patterns of %q: %q, %q", text, p, again)
		}
	})
}

// Ids of groups are in the store: the hash must never change.
func TestGroupIDsAreTheSameInAllReleases(t *testing.T) {
	k := letter.Key{Source: "orders", Reason: "rejected", Class: "java.lang.IllegalStateException", Error: "order # not found", Type: "order.placed"}
	for _, c := range []struct {
		vhost string
		key   letter.Key
		want  string
	}{{"/", k, "15d7c3e6w6b1m"}, {"/", letter.Key{}, "17sv2ceqq2o5c"}, {"shop", letter.Key{Source: "orders", Reason: "expired"}, "1hbxp34zaj3kp"}} {
		got := c.key.ID(c.vhost)
		if got.String() != c.want {
			t.Errorf("%q %+v: %s, want %s", c.vhost, c.key, got, c.want)
		}
		if back, ok := letter.ParseGroupID(got.String()); !ok || back != got {
			t.Errorf("%s is read as %s, %t", got, back, ok)
		}
	}
	for _, bad := range []string{"", "-1", "A", "zzzzzzzzzzzzzz", "01", "é"} {
		if _, ok := letter.ParseGroupID(bad); ok {
			t.Errorf("%q is taken as the id of a group", bad)
		}
	}
}

const trace = "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception\n\tat a.B.c(B.java:1)\n" +
	"Caused by: com.shop.NoCustomerException: no customer 42\n\tat x.Y.z(Y.java:7)\nCaused by: java.sql.SQLException: no row\n\tat q.R.s(R.java:9)\n"

// A replay sends the same headers again: they tell nothing of a death that comes after it.
func TestHeadersOfBeforeAReplayAreNoCause(t *testing.T) {
	headers := amqp091.Table{{Key: "x-exception-message", Value: "no bank"}, {Key: "x-exception-stacktrace", Value: trace}, {Key: "__TypeId__", Value: "com.shop.Order"}}
	replayed := func(h *deadletter.History) { h.ReplayedFrom, h.Marks = "orders.dead", h.Replayed(4) }
	said := func(h *deadletter.History) { h.Cause.Error = "no money" }
	mask, err := letter.NewMask(letter.MaskRules{Headers: []string{"authorization"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		history []byte
		want    letter.Cause
		detail  bool
		older   bool
	}{
		{"before", died(arrived), letter.Cause{Class: "com.shop.NoCustomerException", Error: "no bank", From: "spring"}, true, false},
		{"replayed", died(arrived, replayed), letter.Cause{}, false, true},
		{"replayed, and the consumer said why", died(arrived, replayed, said), letter.Cause{Error: "no money", From: "settle"}, false, true},
		{"parked", nil, letter.Cause{Class: "com.shop.NoCustomerException", Error: "no bank", From: "spring"}, true, false},
	} {
		for _, m := range []*letter.Mask{nil, mask} {
			l, ok := letter.NewReader(nil).Masked(m).Read(record(headers, "", "x"), c.history)
			if !ok {
				t.Fatal(c.name)
			}
			whole := l.WholeCause()
			if l.Cause() != c.want || (whole.Detail != "") != c.detail || whole.From != c.want.From || l.HeadersAreOlder() != c.older || l.Type() != "com.shop.Order" {
				t.Errorf("%s: %+v, %+v, older: %t, type %s", c.name, l.Cause(), whole, l.HeadersAreOlder(), l.Type())
			}
			if k := l.Group(); k.Class != c.want.Class || k.Error != letter.Pattern(c.want.Error) {
				t.Errorf("%s: %+v", c.name, k)
			}
		}
	}
}

// Whose headers they are, the cause is found.
func TestCauses(t *testing.T) {
	names := &letter.Names{Class: []string{"x-why"}, Error: []string{"x-what"}, Type: []string{"x-kind"}}
	for _, c := range []struct {
		name    string
		headers amqp091.Table
		said    deadletter.Cause
		typ     string
		want    letter.Cause
		detail  string
		kind    string
	}{
		{name: "nothing", headers: amqp091.Table{}},
		{name: "the history goes first", headers: amqp091.Table{{Key: "x-exception-message", Value: "old"}}, said: deadletter.Cause{Error: "ValueError: bad total"}, want: letter.Cause{Class: "ValueError", Error: "bad total", From: "settle"}},
		{name: "a history without a class", said: deadletter.Cause{Error: "bad: total"}, want: letter.Cause{Error: "bad: total", From: "settle"}},
		{
			name: "what the consumer told is not mixed with headers", headers: amqp091.Table{{Key: "x-exception-message", Value: "old"}, {Key: "x-exception-stacktrace", Value: trace}},
			said: deadletter.Cause{Class: "Timeout"}, want: letter.Cause{Class: "Timeout", From: "settle"},
		},
		{
			name: "a detail alone", said: deadletter.Cause{Detail: trace}, want: letter.Cause{Class: "com.shop.NoCustomerException", From: "settle"}, detail: "Caused by: java.sql.SQLException: no row\n",
		},
		{
			name: "the consumer's words are cut and made UTF-8", said: deadletter.Cause{Class: strings.Repeat("C", letter.MaxClass+1), Error: "a\xffb"},
			want: letter.Cause{Class: strings.Repeat("C", letter.MaxClass), Error: "a\uFFFDb", From: "settle"},
		},
		{
			name:    "Spring",
			headers: amqp091.Table{{Key: "__TypeId__", Value: "com.shop.Order"}, {Key: "x-exception-message", Value: "no customer 42"}, {Key: "x-exception-stacktrace", Value: trace}},
			want:    letter.Cause{Class: "com.shop.NoCustomerException", Error: "no customer 42", From: "spring"}, detail: "Caused by: java.sql.SQLException: no row\n", kind: "com.shop.Order",
		},
		{
			name: "MassTransit",
			headers: amqp091.Table{
				{Key: "MT-Fault-ExceptionType", Value: "System.Exception"}, {Key: "MT-Fault-Message", Value: "no"}, {Key: "MT-Fault-StackTrace", Value: "at X"}, {Key: "MT-MessageType", Value: "urn:message:Order"},
			},
			want: letter.Cause{Class: "System.Exception", Error: "no", From: "masstransit"}, detail: "at X", kind: "urn:message:Order",
		},
		{
			name: "NServiceBus",
			headers: amqp091.Table{
				{Key: "NServiceBus.EnclosedMessageTypes", Value: "Shop.Order, Shop, Version=1.0;Shop.Base"}, {Key: "NServiceBus.ExceptionInfo.ExceptionType", Value: "System.Exception"},
				{Key: "NServiceBus.ExceptionInfo.Message", Value: "no"}, {Key: "NServiceBus.ExceptionInfo.StackTrace", Value: "at X"},
			},
			want: letter.Cause{Class: "System.Exception", Error: "no", From: "nservicebus"}, detail: "at X", kind: "Shop.Order",
		},
		{
			name: "Kafka Connect",
			headers: amqp091.Table{
				{Key: "__connect.errors.exception.class.name", Value: "java.io.IOException"}, {Key: "__connect.errors.exception.message", Value: "no"}, {Key: "__connect.errors.exception.stacktrace", Value: "at X"},
			},
			want: letter.Cause{Class: "java.io.IOException", Error: "no", From: "kafka-connect"}, detail: "at X",
		},
		{
			name: "Celery", headers: amqp091.Table{{Key: "exc_type", Value: "ValueError"}, {Key: "exc_message", Value: "no"}, {Key: "task", Value: "shop.pay"}, {Key: "traceback", Value: "File x"}},
			want: letter.Cause{Class: "ValueError", Error: "no", From: "celery"}, detail: "File x", kind: "shop.pay",
		},
		{
			name: "configured names go before known ones", headers: amqp091.Table{{Key: "x-exception-message", Value: "old"}, {Key: "x-kind", Value: "k"}, {Key: "x-what", Value: "text"}, {Key: "x-why", Value: "Class"}},
			want: letter.Cause{Class: "Class", Error: "text", From: "configured"}, kind: "k",
		},
		{name: "wrong types", headers: amqp091.Table{{Key: "x-exception-message", Value: int64(7)}, {Key: "x-exception-stacktrace", Value: amqp091.Table{}}}},
		{name: "binary", headers: amqp091.Table{{Key: "x-exception-message", Value: []byte("a\xffb")}}, want: letter.Cause{Error: "a\uFFFDb", From: "spring"}},
		{name: "the property type goes first", headers: amqp091.Table{{Key: "__TypeId__", Value: "no"}}, typ: "order.placed, v2", kind: "order.placed, v2"},
	} {
		r := letter.NewReader(names)
		l, ok := r.Read(record(c.headers, c.typ, ""), died(1, func(h *deadletter.History) { h.Cause = c.said }))
		if !ok {
			t.Fatalf("%s: no letter", c.name)
		}
		if got := l.Cause(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if got := l.WholeCause().Detail; !strings.HasPrefix(got, c.detail) || c.detail == "" && got != "" {
			t.Errorf("%s: detail %q, want %q", c.name, got, c.detail)
		}
		if got := l.Type(); got != c.kind {
			t.Errorf("%s: type %q, want %q", c.name, got, c.kind)
		}
	}
}

// What is no letter, what is one, and by whose word.
func TestWhatIsALetter(t *testing.T) {
	replayed := (&deadletter.History{ReplayedFrom: "dead"}).Append(nil)
	xdeath := amqp091.Table{{Key: "x-death", Value: amqp091.Array{amqp091.Table{
		{Key: "queue", Value: "work"}, {Key: "reason", Value: "expired"}, {Key: "exchange", Value: "in"}, {Key: "routing-keys", Value: amqp091.Array{"k"}},
	}}}}
	for _, c := range []struct {
		name    string
		headers amqp091.Table
		history []byte
		letter  bool
		source  string
		parked  bool
	}{
		{"a message", nil, nil, false, "", false},
		{"a message with headers", amqp091.Table{{Key: "tenant", Value: "a"}}, nil, false, "", false},
		{"died", nil, died(5), true, "orders", false},
		{"replayed", amqp091.Table{{Key: "x-exception-message", Value: "no"}}, replayed, false, "", false},
		{"a history that cannot be read", nil, []byte("xx"), false, "", false},
		{"parked with its deaths", xdeath, nil, true, "work", true},
		{"x-death of another form", amqp091.Table{{Key: "x-death", Value: "yesterday"}}, nil, false, "", false},
		{"parked by Spring", amqp091.Table{{Key: "x-original-exchange", Value: "in"}, {Key: "x-original-routingKey", Value: "k"}}, nil, true, "", true},
		{"parked by NServiceBus", amqp091.Table{{Key: "NServiceBus.ExceptionInfo.Message", Value: "no"}, {Key: "NServiceBus.FailedQ", Value: "work@host"}}, nil, true, "work", true},
		{"parked by MassTransit", amqp091.Table{{Key: "MT-Fault-InputAddress", Value: "rabbitmq://host/vhost/work?durable=true"}, {Key: "MT-Fault-Message", Value: "no"}}, nil, true, "work", true},
	} {
		l, ok := letter.NewReader(nil).Read(record(c.headers, "", ""), c.history)
		if ok != c.letter {
			t.Errorf("%s: a letter: %t, want %t", c.name, ok, c.letter)
			continue
		}
		if ok && (l.Source() != c.source || l.Parked != c.parked || c.parked && l.Died != arrived) {
			t.Errorf("%s: source %q, parked %t, died %d", c.name, l.Source(), l.Parked, l.Died)
		}
	}
}

// Histories that differ in times alone are parsed once, and each letter still has its own time.
func TestHistoriesShareTheirParsedForm(t *testing.T) {
	r := letter.NewReader(nil)
	rec := record(nil, "", "")
	stored := [][]byte{died(1), died(2), died(3, func(h *deadletter.History) { h.Deaths[0].Queue = "other" }), died(4)}
	for i, want := range []int64{1, 2, 3, 4} {
		l, ok := r.Read(rec, stored[i])
		if !ok || l.Died != want {
			t.Fatalf("letter %d: %v, %t", i, l, ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { r.Read(rec, stored[1]) }); n > 0 {
		t.Errorf("%v allocations for a history that was seen before", n)
	}
}

// Long histories, which no other letter shares, are not kept: many readers would fill the memory.
func TestLongHistoriesAreNotKept(t *testing.T) {
	var before, after runtime.MemStats
	r := letter.NewReader(nil)
	rec := record(nil, "", "")
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 500 {
		stored := died(int64(i), func(h *deadletter.History) { h.Cause.Detail = fmt.Sprint(i, strings.Repeat("x", 60<<10)) })
		if l, ok := r.Read(rec, stored); !ok || l.Died != int64(i) {
			t.Fatal(i)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("a reader has kept %d bytes", grown)
	}
	runtime.KeepAlive(r)
}

func query(t *testing.T, filters map[string][]string) letter.Query {
	t.Helper()
	q, err := letter.ParseQuery("/", filters, 10_000_000)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Each filter selects what it says.
func TestFilters(t *testing.T) {
	headers := amqp091.Table{
		{Key: "big", Value: int64(1 << 40)}, {Key: "f", Value: 1.5}, {Key: "list", Value: amqp091.Array{}}, {Key: "n", Value: int32(7)}, {Key: "ok", Value: true}, {Key: "tenant", Value: "a=b"},
		{Key: "text", Value: "12"}, {Key: "x-exception-message", Value: "no customer 42"}, {Key: "x-exception-stacktrace", Value: trace},
	}
	rec := record(headers, "order.placed", `{"id": 4711}`)
	history := died(10_000_000-60_000, func(h *deadletter.History) {
		h.Job, h.Cause = 7, deadletter.Cause{User: "ann", Name: "billing", Product: "RabbitMQ", Version: "5.22"}
	})
	l, _ := letter.NewReader(nil).Read(rec, history)
	k := l.Group()
	id := k.ID("/").String()
	for _, c := range []struct {
		filter, value string
		want          bool
	}{
		{"group", id, true}, {"group", "1", false},
		{"reason", "rejected", true}, {"reason", "expired", false},
		{"source", "orders", true}, {"source", "dead", false}, {"source", "", false},
		{"exchange", "shop", true}, {"exchange", "", false}, {"exchange", "amq.default", false},
		{"key", "order", true}, {"key", "ord", false},
		{"class", "NoCustomerException", true}, {"class", "com.shop.NoCustomerException", true}, {"class", "CustomerException", false},
		{"error", "customer \\d+$", true}, {"error", "^customer", false},
		{"older_than", "1m", true}, {"older_than", "61s", false}, {"newer_than", "1m", true}, {"newer_than", "59s", false}, {"newer_than", "20000d", true},
		{"died", "1", true}, {"died", ">=1", true}, {"died", ">1", false}, {"died", "!=1", false},
		{"size", "<=12", true}, {"size", "<12", false},
		{"job", "7", true}, {"job", "8", false},
		{"message_id", "m-1", true}, {"message_id", "m", false},
		{"type", "order.placed", true}, {"type", "order", false},
		{"user", "ann", true}, {"user", "an", false}, {"user", "", false},
		{"client", "billing", true}, {"client", "RabbitMQ", true}, {"client", "RabbitMQ 5.22", true}, {"client", "RabbitMQ 5", false}, {"client", "", false},
		{"body", "4711", true}, {"body", "4712", false},
		{"where", "header.n", true}, {"where", "header.none", false}, {"where", "header.list", true},
		{"where", "header.n=7", true}, {"where", "header.n!=7", false}, {"where", "header.none!=7", true}, {"where", "header.none=", false},
		{"where", "header.tenant=a=b", true}, {"where", "header.tenant~^a", true}, {"where", "header.tenant~^b", false},
		{"where", "header.n<8", true}, {"where", "header.n<=7", true}, {"where", "header.n>7", false}, {"where", "header.n>=7", true},
		{"where", "header.big>1e12", true}, {"where", "header.f>=1.5", true}, {"where", "header.f=1.5", true}, {"where", "header.ok=true", true},
		{"where", "header.text>11", true}, {"where", "header.tenant>1", false}, {"where", "header.list=", true},
		{"where", "header.x-first-death-queue=orders", true}, {"where", "header.x-death", true}, {"where", "header.x-last-death-reason~^rej", true}, {"where", "header.x-replayed-from", false},
		{"where", "property.type=order.placed", true}, {"where", "property.priority", false}, {"where", "property.message_id~m", true},
	} {
		q := query(t, map[string][]string{c.filter: {c.value}})
		if got := q.Match(l); got != c.want {
			t.Errorf("%s=%s: %t", c.filter, c.value, got)
		}
	}
	all := query(t, map[string][]string{"reason": {"rejected"}, "where": {"header.n=7", "header.ok=true"}})
	if !all.Match(l) {
		t.Error("filters that all hold do not select it")
	}
	if one := query(t, map[string][]string{"reason": {"rejected"}, "where": {"header.n=7", "header.ok=false"}}); one.Match(l) {
		t.Error("one filter that does not hold selects it")
	}
	if none := query(t, nil); !none.Match(l) {
		t.Error("no filter does not select it")
	}
}

// An error names the filter, its value and the rule.
func TestWrongFilters(t *testing.T) {
	for _, c := range []struct{ filter, value, want string }{
		{"colour", "red", "filter 'colour': 'red' is no filter; the filters are: group, reason,"},
		{"group", "G!", "filter 'group': 'G!' is no group"},
		{"reason", "tired", "filter 'reason': 'tired' is no reason; it must be rejected, expired, maxlen or delivery_limit"},
		{"error", "(", "filter 'error': '(' is no regular expression: missing closing )"},
		{"error", strings.Repeat("a", 1025), "is too long"},
		{"older_than", "5x", "filter 'older_than': '5x' is no age; it must be such as 90s, 15m, 12h, 2d or 1d12h"},
		{"older_than", "-1h", "is no age"}, {"newer_than", "99999999999d", "is no age"}, {"newer_than", "d", "is no age"},
		{"died", "many", "filter 'died': 'many' is no comparison"}, {"size", "~3", "is no comparison"}, {"size", "NaN", "is no comparison"},
		{"job", "x", "is no job"}, {"body", "", "is empty"},
		{"where", "tenant=a", "filter 'where': 'tenant=a' is no condition; it must be header.NAME or property.NAME"}, {"where", "header.", "is no condition"}, {"where", "header.a!b", "is no condition"},
		{"where", "property.colour=a", "names no property"}, {"where", "header.n<x", "compares with what is no number"}, {"where", "header.n~(", "is no regular expression"},
	} {
		_, err := letter.ParseQuery("/", map[string][]string{c.filter: {c.value}}, 0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: error %v, want %q", c.filter, c.value, err, c.want)
		}
	}
	for _, filters := range []map[string][]string{{"reason": {"expired", "maxlen"}}, {"where": make([]string, 33)}} {
		if _, err := letter.ParseQuery("/", filters, 0); err == nil {
			t.Errorf("%v is taken", filters)
		}
	}
}

// Whatever headers and histories a client and a disk have, reading them ends, and what it finds is text.
func FuzzRead(f *testing.F) {
	rec := record(amqp091.Table{{Key: "x-exception-message", Value: "no"}, {Key: "x-exception-stacktrace", Value: trace}}, "t", "body")
	f.Add([]byte(rec.Properties()), died(1), "header.n=7", "error")
	f.Add([]byte(record(amqp091.Table{{Key: "x-death", Value: amqp091.Array{amqp091.Table{{Key: "queue", Value: "\xff"}}}}}, "", "").Properties()), []byte{}, "property.type~a", "x")
	f.Fuzz(func(t *testing.T, props, history []byte, where, body string) {
		e := message.Envelope{Serial: 1, Properties: props, BodySize: len(body), HasHeaders: true}
		raw := make([]byte, e.Size())
		copy(e.Put(raw), body)
		l, ok := letter.NewReader(&letter.Names{Error: []string{"why"}}).Read(raw, history)
		if !ok {
			return
		}
		k, c := l.Group(), l.WholeCause()
		for _, s := range []string{k.Class, k.Error, k.Type, c.Error, c.Detail, c.From} {
			if !utf8.ValidString(s) || len(s) > letter.MaxDetail+1024 {
				t.Errorf("%q is no text within bounds", s)
			}
		}
		if q, err := letter.ParseQuery("/", map[string][]string{"where": {where}, "group": {k.ID("/").String()}}, 1); err == nil {
			q.Match(l)
		}
	})
}

// Headers of 64 KiB and deep tables cost no more than their bytes.
func TestHostileHeaders(t *testing.T) {
	deep := any("x")
	for range amqp091.MaxDepth - 2 {
		deep = amqp091.Table{{Key: "x-exception-message", Value: deep}}
	}
	for _, headers := range []amqp091.Table{
		{{Key: "x-exception-message", Value: strings.Repeat("9'", 32<<10)}},
		{{Key: "x-exception-stacktrace", Value: strings.Repeat("\nCaused by: ", 6000)}},
		{{Key: "x-death", Value: deep}, {Key: "x-exception-message", Value: deep}},
	} {
		l, ok := letter.NewReader(nil).Read(record(headers, "", ""), died(1))
		if !ok {
			t.Fatal("no letter")
		}
		if k, c := l.Group(), l.WholeCause(); len(k.Error) > letter.MaxPattern || len(c.Error) > letter.MaxError || len(c.Detail) > letter.MaxDetail+1024 || len(k.Class) > letter.MaxClass {
			t.Errorf("not bounded: %d, %d, %d, %d bytes", len(k.Error), len(c.Error), len(c.Detail), len(k.Class))
		}
	}
}

func benchmark(b *testing.B, headers amqp091.Table, f func(*letter.Letter)) {
	rec, history := record(headers, "order.placed", strings.Repeat("x", 1<<10)), died(1)
	r := letter.NewReader(nil)
	b.ReportAllocs()
	for b.Loop() {
		l, _ := r.Read(rec, history)
		f(l)
	}
}

var spring = amqp091.Table{{Key: "tenant", Value: "a"}, {Key: "x-exception-message", Value: "no customer 42 in 'shop'"}, {Key: "x-exception-stacktrace", Value: strings.Repeat(trace, 8)}}

func BenchmarkGroup(b *testing.B) {
	benchmark(b, spring, func(l *letter.Letter) { k := l.Group(); k.ID("/") })
}

func BenchmarkMatch(b *testing.B) {
	for name, filters := range map[string]map[string][]string{
		"reason": {"reason": {"expired"}}, "header": {"where": {"header.tenant=b"}}, "error": {"error": {"card .* declined"}}, "group": {"group": {"1"}}, "body": {"body": {"needle"}},
	} {
		q, _ := letter.ParseQuery("/", filters, 0)
		b.Run(name, func(b *testing.B) { benchmark(b, spring, func(l *letter.Letter) { q.Match(l) }) })
	}
}
