package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// texts are names, keys and values that somebody may send.
var texts = rapid.SampledFrom([]string{
	"", "q", "a/b %", "~", "..", "\x00", "\xff", "<&>\u2028\"\\", "null", "x#.*", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("é", 127),
})

var integers = rapid.SampledFrom([]int64{0, 1, -1, 255, 256, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64})

var floats = rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, 2, 1.5, 0.1, 1e9, 1e20, 1e300, 5e-324, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff0000000000abc)})

// anyField draws a value that a table may have, of depth at most.
func anyField(t *rapid.T, depth int) any {
	n, f, text := integers.Draw(t, "integer"), floats.Draw(t, "float"), texts.Draw(t, "text")
	all := []any{
		nil, n&1 == 0, int8(n), uint8(n), int16(n), uint16(n), int32(n), uint32(n), n, float32(f), f, amqp091.Timestamp(n),
		amqp091.Decimal{Scale: uint8(n), Value: uint32(n)}, text, []byte(text),
	}
	if depth > 0 {
		all = append(all, anyTable(t, depth-1), amqp091.Array{anyField(t, depth-1), anyField(t, 0)})
	}
	return rapid.SampledFrom(all).Draw(t, "value")
}

func anyTable(t *rapid.T, depth int) (table amqp091.Table) {
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		table = append(table, amqp091.Field{Key: texts.Filter(func(s string) bool { return len(s) < 256 && s != "\xff" }).Draw(t, "key"), Value: anyField(t, depth)})
	}
	return table
}

// someArguments draws arguments, among them those that a queue or an exchange knows.
func someArguments(t *rapid.T) amqp091.Table {
	table := anyTable(t, 2)
	for _, key := range []string{
		"x-queue-type", "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-overflow", "x-dead-letter-exchange",
		"x-dead-letter-routing-key", "x-dead-letter-strategy", "x-delivery-limit", "x-consumer-timeout", "x-single-active-consumer", "x-delayed-retry-type",
		"x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-multiplier", "x-delayed-retry-jitter", alternateExchange,
	} {
		if rapid.IntRange(0, 5).Draw(t, "known") != 0 {
			continue
		}
		value := rapid.SampledFrom([]any{
			"quorum", "drop-head", "reject-publish", "at-least-once", "all", texts.Draw(t, "text"), integers.Draw(t, "integer"), int32(integers.Draw(t, "integer")), floats.Draw(t, "float"), true,
		}).Draw(t, "argument")
		table = append(table, amqp091.Field{Key: key, Value: value})
	}
	return table
}

// someDefinition draws a policy's, as it comes from JSON.
func someDefinition(t *rapid.T) Definition {
	values := []string{
		"0", "1", "1.0", "2", "2.0", "2e0", "0.0", "-0.0", "-0", "0.5", "1.5", "20.0", "1e9", "1000000000.0", "9223372036854775807", "1e20", "-1", "true", "null", `"all"`, `"drop-head"`,
		`"at-least-once"`, `"x"`, `""`, `"\u0000"`, `"lazy"`, `"<&>\u2028"`, `"1h"`,
	}
	fields := map[string]string{}
	keys := slices.Sorted(maps.Keys(policyKeys))
	for range rapid.IntRange(1, 4).Draw(t, "settings") {
		fields[rapid.SampledFrom(keys).Draw(t, "key")] = rapid.SampledFrom(values).Draw(t, "value")
	}
	if _, ok := fields["delayed-retry-type"]; ok && rapid.Bool().Draw(t, "least") {
		fields["delayed-retry-min"] = "1"
	}
	var text []string
	for key, value := range fields {
		text = append(text, fmt.Sprintf("%q:%s", key, value))
	}
	v, err := ParseJSON([]byte("{" + strings.Join(text, ",") + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

// declareAnything makes one declaration of any kind, which may be refused.
func declareAnything(t *rapid.T, s *State) {
	vhosts := slices.Sorted(maps.Keys(s.vhosts))
	v := rapid.SampledFrom(vhosts).Draw(t, "vhost")
	flag := rapid.Bool()
	pattern := rapid.SampledFrom([]string{"", ".*", "^q", "(", "\\x{ff}", "<", texts.Draw(t, "pattern")}).Draw(t, "expression")
	var err error
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		m := Metadata{
			Description: texts.Filter(func(s string) bool { return s != "\xff" }).Draw(t, "description"), Protected: flag.Draw(t, "protected"),
			DefaultQueueType: rapid.SampledFrom([]QueueType{"", Classic, Quorum}).Draw(t, "type"), Profile: rapid.SampledFrom([]deadletter.Profile{deadletter.RabbitMQ, deadletter.ApsaraMQ}).Draw(t, "profile"),
			DefaultDeadLetter: rapid.SampledFrom([]string{"", "", "%q.dead", "dead", "%q"}).Draw(t, "default"), Lenient: flag.Draw(t, "lenient"),
		}
		if flag.Draw(t, "tags") {
			m.Tags = []string{"a", ""}
		}
		name := rapid.SampledFrom([]message.VHost{v, message.VHost(texts.Draw(t, "name"))}).Draw(t, "which")
		_, _, err = s.PutVHost(name, m)
		for takeover := s.Takeover(name); takeover.Match(takeover.Rules(), 100, func() bool { return false }); {
			s.Apply(takeover)
		}
	case 1:
		_, _, err = s.DeclareQueue(QueueDecl{VHost: v, Name: message.QueueName(texts.Draw(t, "name")), Durable: true, AutoDelete: flag.Draw(t, "auto-delete"), Arguments: someArguments(t)}, nil)
	case 2:
		kind := rapid.SampledFrom([]routing.Kind{routing.Direct, routing.Fanout, routing.Topic, routing.Headers}).Draw(t, "type")
		_, _, err = s.DeclareExchange(ExchangeDecl{
			VHost: v, Name: message.ExchangeName(texts.Draw(t, "name")), Type: kind, Durable: true, AutoDelete: flag.Draw(t, "auto-delete"), Internal: flag.Draw(t, "internal"), Arguments: someArguments(t), User: "u",
		}, nil)
	case 3:
		d := BindingDecl{
			VHost: v, Source: message.ExchangeName(rapid.SampledFrom([]string{"amq.topic", "amq.headers", texts.Draw(t, "source")}).Draw(t, "from")), DestinationKind: QueueResource, Destination: texts.Draw(t, "destination"),
			Key: message.RoutingKey(texts.Draw(t, "key")), Arguments: anyTable(t, 2),
		}
		if flag.Draw(t, "to exchange") {
			d.DestinationKind = ExchangeResource
		}
		_, _, err = s.Bind(d, nil)
	case 4, 5:
		d := PolicyDecl{Name: texts.Draw(t, "name"), Pattern: pattern, ApplyTo: rapid.SampledFrom([]ApplyTo{"", ApplyToQueues, ApplyToExchanges}).Draw(t, "apply to"), Definition: someDefinition(t)}
		d.Priority = rapid.SampledFrom([]any{nil, integers.Draw(t, "priority"), 1e300, 0.5, -2.0}).Draw(t, "number")
		_, err = s.PutPolicy(v, d, flag.Draw(t, "operator"))
		for takeover := s.Takeover(v); takeover.Match(takeover.Rules(), 100, func() bool { return false }); {
			s.Apply(takeover)
		}
	case 6:
		err = s.SetVHostLimits(v, map[Limit]any{rapid.SampledFrom([]Limit{MaxConnections, MaxQueues}).Draw(t, "limit"): integers.Draw(t, "value")}, false)
	case 7:
		_, err = s.PutParameter(Parameter{v, texts.Draw(t, "component"), texts.Draw(t, "name"), someValue(t), texts.Draw(t, "by"), flag.Draw(t, "orphaned")})
	case 8:
		_, err = s.PutGlobalParameter(GlobalParameter{texts.Draw(t, "name"), someValue(t)})
	}
	_ = err // a refusal changes nothing, which the comparison sees
}

func someValue(t *rapid.T) json.RawMessage {
	return json.RawMessage(rapid.SampledFrom([]string{
		"null", "0", "-0.0", "1e400", "9223372036854775808", `""`, `"<&>\u2028\ud800"`, "[]", ` { "a" : [ 1 , 2.0 ] } `, "\"\xff\"", strings.Repeat("[", 20) + strings.Repeat("]", 20),
		`"` + strings.Repeat("x", 70_000) + `"`,
	}).Draw(t, "parameter"))
}

// told is all that clients are told of a State, and that it goes by.
func told(s *State) []string {
	var all []string
	add := func(what string, args ...any) { all = append(all, fmt.Sprintf(what, args...)) }
	table := func(args amqp091.Table) []byte { return amqp091.AppendTable(nil, args) }
	value := func(raw json.RawMessage) string {
		dec := json.NewDecoder(bytes.NewReader(raw)) // which characters are escaped is lost
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%T %q", v, v)
	}
	definition := func(d Definition) string {
		text := ""
		for _, key := range slices.Sorted(maps.Keys(d)) {
			text += fmt.Sprintf("%s=%T %v;", key, d[key], d[key])
		}
		return text
	}
	for _, v := range s.VHosts() {
		add("vhost %q %+v %v", v.Name, v.Metadata, v.Limits())
		for _, p := range v.Parameters("") {
			add("parameter %q %q %q %s %q %t", p.VHost, p.Component, p.Name, value(p.Value), p.By, p.Orphaned)
		}
		for _, operator := range []bool{false, true} {
			for _, p := range *v.policySet(operator) {
				add("policy %v %q %q %q %v %v %s", operator, p.Name, p.Pattern, p.ApplyTo, p.Priority, p.seq, definition(p.Definition))
			}
		}
		for _, x := range v.Exchanges() {
			alternate := "none"
			if x.Alternate != nil {
				alternate = string(*x.Alternate)
			}
			add("exchange %q %v %v %v %v %x %q %q %s", x.Name, x.Type, x.Durable, x.AutoDelete, x.Internal, table(x.Arguments), x.User, alternate, definition(x.EffectiveDefinition()))
		}
		for _, q := range v.Queues() {
			e := *q.Effective
			e.Arguments = nil // compared as bytes: JSON tells an empty list from none
			effective, err := json.Marshal(&e)
			add("queue %q %v %v %x %v %v %v %v %s %v %s", q.Name, q.Type, q.AutoDelete, table(q.PresentArguments()), q.Incarnation, q.Group, q.Strict, q.Priorities, effective, err, definition(q.EffectiveDefinition()))
		}
		for _, b := range v.Bindings() {
			add("binding %q %v %q %x %s", b.SourceName(), b.Destination(), b.Key, table(b.Arguments), b.PropertiesKey())
		}
	}
	for _, p := range s.GlobalParameters() {
		add("global parameter %q %s", p.Name, value(p.Value))
	}
	return all
}

// Whatever is declared with whatever values is the same after a restart (BR-14.1).
func TestBR_14_1_EveryDeclarationIsReadBackEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Options{})
		if _, _, err := s.PutVHost(vh, Metadata{}); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 25).Draw(t, "declarations") {
			declareAnything(t, s)
		}
		store := map[string][]byte{}
		for key, value := range mutation.All(s.TakeChanges()) {
			if store[string(key)] = value; value == nil {
				delete(store, string(key))
			}
		}
		back, err := Load(Options{}, func(yield func(k, v []byte) bool) {
			for k, v := range store {
				if !yield([]byte(k), v) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		wrote, read := told(s), told(back)
		for i := range max(len(wrote), len(read)) {
			if i >= len(wrote) || i >= len(read) || wrote[i] != read[i] {
				t.Fatalf("was %.1500s\nis  %.1500s", wrote[min(i, len(wrote)-1)], read[min(i, len(read)-1)])
			}
		}
		if !reflect.DeepEqual(slices.Sorted(maps.Keys(s.parameters)), slices.Sorted(maps.Keys(back.parameters))) {
			t.Fatal("global parameters are others")
		}
	})
}

// FuzzLoad: whatever stands in the store, reading it is an error or a State.
func FuzzLoad(f *testing.F) {
	for _, pair := range [][2]string{
		{vhostKey("v"), `{"v":1,"name":"v","metadata":{"description":"d","tags":["a"],"profile":"apsaramq"},"limits":{"max-queues":1}}`},
		{exchangeKey("v", "x"), `{"v":1,"vhost":"v","name":"x","type":"topic","auto_delete":true,"arguments":[["a","A",[["l",1]]]],"user":"u"}`},
		{queueKey("v", "q"), `{"v":1,"vhost":"v","name":"q","arguments":[["x-queue-type","S","quorum"],["x-max-priority","I",9]],"incarnation":7,"group":2}`},
		{"topology/binding/v/amq.topic/e/x/k", `{"v":1,"vhost":"v","source":"amq.topic","to_exchange":true,"destination":"x","key":"k"}`},
		{"topology/binding/v/amq.topic/q/q/k", `{"v":1,"vhost":"v","source":"amq.topic","destination":"q","key":"a.#"}`},
		{policyRecordKey(false, "v", "p"), `{"v":1,"vhost":"v","name":"p","pattern":".","apply_to":"all","priority":1e300,"definition":{"max-length":1,"dead-letter-exchange":"x"},"seq":1}`},
		{policyRecordKey(true, "v", "p"), `{"v":1,"vhost":"v","name":"p","pattern":"","apply_to":"queues","priority":0,"definition":{"max-length":1.5},"seq":2}`},
		{parameterKey("v", "c", "n"), `{"v":1,"value":null}`},
		{globalParameterKey("n"), `{"v":1,"value":[1]}`},
		{counterKey, `{"v":1,"incarnations_reserved":18446744073709551615}`},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		all := [][2]string{
			{vhostKey("v"), `{"v":1,"name":"v"}`}, {exchangeKey("v", "x"), `{"v":1,"type":"topic"}`},
			{queueKey("v", "q"), `{"v":1,"arguments":[["x-queue-type","S","quorum"],["x-dead-letter-exchange","S","x"]],"incarnation":7,"group":2}`}, {key, value},
		}
		s, err := Load(Options{}, func(yield func(k, v []byte) bool) {
			for _, pair := range all {
				if !yield([]byte(pair[0]), []byte(pair[1])) {
					return
				}
			}
		})
		if err == nil {
			told(s)
		}
	})
}
