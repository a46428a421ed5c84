package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp10"
)

func TestMessageIsShownSectionBySection(t *testing.T) {
	e := encoder{asIs}
	var payload []byte
	for _, s := range []struct{ name, yaml string }{
		{"header", "{durable: true, priority: 5, ttl: 10}"},
		{"delivery-annotations", "{x-d: 1}"},
		{"message-annotations", "{x-opt-deaths: !array [{!symbol queue: q, !symbol count: !ulong 2}], a: !symbol b, !ulong 3: x}"},
		{"properties", "{message-id: 7, user-id: guest, content-type: text/plain, group-sequence: 1}"},
		{"application-properties", "{b: 2, a: !ubyte 1}"},
		{"data", "one"},
		{"data", "!hex 00"},
		{"footer", "{f: null}"},
	} {
		var err error
		if payload, err = e.section(payload, s.name, node(t, s.yaml)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"header durable=true priority=5 ttl=10",
		"delivery-annotation x-d = int 1",
		"annotation a = symbol b",
		"annotation ulong 3 = string \"x\"",
		"annotation x-opt-deaths[0] = {count=ulong 2, queue=string \"q\"}",
		"properties message-id=ulong 7 user-id=\"guest\" content-type=text/plain group-sequence=1",
		"application-property a = ubyte 1",
		"application-property b = int 2",
		`data "one"`,
		`data "\x00"`,
		"footer f = null",
	}
	if got := showMessage(payload); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := nameOf(payload); got != "one" {
		t.Errorf("the message is called %q", got)
	}
	if got := showMessage(payload[:len(payload)-1]); !strings.HasPrefix(got[len(got)-1], "broken: ") {
		t.Errorf("a message that was cut is shown as %q", got)
	}
}

// Whether a default is sent or left out makes no difference (1.4).
func TestDefaultsAreNotShown(t *testing.T) {
	for text, want := range map[string]string{
		"!header {durable: false, priority: 4, first-acquirer: false, delivery-count: 0}":                               "header",
		"!header {durable: !uint 0, priority: 5}":                                                                       "header durable=uint 0 priority=5",
		"!attach {name: l, handle: 0, role: sender, snd-settle-mode: mixed, rcv-settle-mode: first}":                    `attach name="l" handle=0 role=sender`,
		"!source {durable: none, expiry-policy: session-end, timeout: 0, dynamic: false}":                               "source",
		"!modified {delivery-failed: false, undeliverable-here: true}":                                                  "modified undeliverable-here=true",
		"!flow {incoming-window: 0, next-outgoing-id: 0, outgoing-window: 0, link-credit: 0, drain: false, echo: true}": "flow incoming-window=0 next-outgoing-id=0 outgoing-window=0 link-credit=0 echo=true",
	} {
		b, err := encoder{asIs}.value(nil, node(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if got := show(amqp10.MustValue(b)); got != want {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
	for name := range defaults {
		c, field, _ := strings.Cut(name, " ")
		if t2 := compositeNamed(c); t2 == nil || !slices.ContainsFunc(t2.fields, func(f fieldType) bool { return f.name == field }) {
			t.Errorf("a default of %s, which there is not", name)
		}
	}
}

func TestBodiesThatAreNoData(t *testing.T) {
	e := encoder{asIs}
	for _, c := range []struct{ section, yaml, want, name string }{
		{"amqp-value", "{a: 1}", `value map {"a"=int 1}`, `{"a"=int 1}`},
		{"amqp-value", "text", `value string "text"`, "text"},
		{"amqp-value", "null", "value null", "?"},
		{"amqp-sequence", "[1, x]", `sequence [int 1, string "x"]`, `[int 1, string "x"]`},
		{"data", "!string x", `data string "x"`, ""},
	} {
		b, err := e.section(nil, c.section, node(t, c.yaml))
		if err != nil {
			t.Fatal(err)
		}
		if got := showMessage(b); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s %s is shown as %q", c.section, c.yaml, got)
		}
		if got := nameOf(b); got != c.name {
			t.Errorf("%s %s is called %q", c.section, c.yaml, got)
		}
	}
}

// Ids that the broker begins with are shown as their distance from the first.
func TestFramesAreShownWithoutIDsOfTheBroker(t *testing.T) {
	s := &session{firstOut: 4294967294, firstID: 100, gotFirst: true}
	l := &link{name: "r", session: s}
	for _, c := range []struct {
		performative amqp10.Composite
		want         string
	}{
		{&amqp10.Begin{NextOutgoingID: 4294967294, IncomingWindow: 400, OutgoingWindow: 1}, "begin next-outgoing-id=<id> incoming-window=400 outgoing-window=1"},
		{&amqp10.Flow{NextIncomingID: amqp10.Some(uint32(2)), IncomingWindow: 400, NextOutgoingID: 1, OutgoingWindow: 1, Handle: amqp10.Some(uint32(5)), Drain: true},
			"flow next-incoming-id=2 incoming-window=400 next-outgoing-id=<id>+3 outgoing-window=1 link=r drain=true"},
		{&amqp10.Transfer{Handle: 5, DeliveryID: amqp10.Some(uint32(101)), DeliveryTag: []byte{1}, Settled: amqp10.Some(false), More: true}, "transfer link=r delivery-id=<id>+1 delivery-tag=(some) more=true"},
		{&amqp10.Disposition{Role: amqp10.RoleSender, First: 100, Last: amqp10.Some(uint32(101)), Settled: true}, "disposition role=sender first=<id>+0 last=<id>+1 settled=true"},
		{&amqp10.Disposition{Role: amqp10.RoleReceiver, First: 100}, "disposition role=receiver first=100"},
		{&amqp10.Detach{Handle: 5, Closed: true, Error: &amqp10.Error{Condition: []byte(amqp10.ConditionNotFound), Description: []byte("no q")}},
			`detach link=r closed=true error=(error condition=amqp:not-found description="no q")`},
	} {
		v := amqp10.MustValue(c.performative.Append(nil))
		kind := compositeOf(c.performative.Descriptor()).name
		got := (&item{kind: kind, value: v, session: s, link: l}).lines(nil)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	further := amqp10.MustValue((&amqp10.Transfer{Handle: 5, DeliveryID: amqp10.Some(uint32(101)), DeliveryTag: []byte{1}, MessageFormat: amqp10.Some(uint32(0))}).Append(nil))
	if got := (&item{kind: "transfer", value: further, session: s, link: l, further: true}).lines(nil); got[0] != "transfer link=r" {
		t.Errorf("a further transfer is %q", got)
	}
	o := &amqp10.Open{ContainerID: []byte("c"), MaxFrameSize: amqp10.Some(uint32(512))}
	if got := (&item{kind: "open", value: amqp10.MustValue(o.Append(nil))}).lines([]string{"max-frame-size"}); got[0] != "open max-frame-size=512" {
		t.Errorf("of one field: %q", got)
	}
}

func TestNamesThatBrokersMakeUpAreHidden(t *testing.T) {
	const vhost = "conformance-0011"
	for line, want := range map[string]string{
		"queue 'q' in vhost 'conformance-0011'":                                    "queue 'q' in vhost '<vhost>'",
		"user 'conformance-0011-bob' refused":                                      "user 'bob' refused",
		`address="/queues/amq.gen-Ab_c-1=="`:                                       `address="/queues/<generated>"`,
		`reply-to "/queues/amq.rabbitmq.reply-to.x"`:                               `reply-to "/queues/<generated>"`,
		`description="failed to parse message: {a,<<\"c\">>}") x`:                  `description="failed to parse message: <term>") x`,
		`description="Unrecognised state: {a} in DISPOSITION")`:                    `description="Unrecognised state: <term> in DISPOSITION")`,
		`description="Attach refused: {bad_address_string,\n {utf8,<<\"/q\">>}}")`: `description="Attach refused: {bad_address_string,<term>}")`,
		`description="Attach refused: source_required")`:                           `description="Attach refused: source_required")`,
		`"/bindings/src=x;dstq=q;key=;args=g-1wFg"`:                                `"/bindings/src=x;dstq=q;key=;args=<hash>"`,
		`"/bindings/src=x;dstq=q;key=;args="`:                                      `"/bindings/src=x;dstq=q;key=;args="`,
		`leader=string "rabbit@h"`:                                                 `leader=string "<node>"`,
	} {
		if got := normalise(line, vhost, "rabbit@h"); got != want {
			t.Errorf("%s is shown as %s", line, got)
		}
	}
}

func TestDeliveriesOfAMQP091AreShownWithTypes(t *testing.T) {
	d := amqp.Delivery{Exchange: "x", RoutingKey: "k", Redelivered: true, ContentType: "t", DeliveryMode: 2, Timestamp: time.Now(), Body: []byte("b"),
		Headers: amqp.Table{"x-death": []any{amqp.Table{"count": int64(1), "time": time.Now()}}, "a": []any{int8(1), "s", nil}, "n": uint16(3)}}
	want := []string{
		`"b" exchange="x" key="k" redelivered`,
		`  content-type="t" delivery-mode=2 timestamp=<time>`,
		`  a = [i8 1, str "s", void]`,
		"  n = u16 3",
		"  x-death[0] = {count=i64 1, time=time <time>}",
	}
	if got := showDelivery(d); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}
