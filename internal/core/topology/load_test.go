package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

func TestBR_14_1_DeclarationsSurviveARestart(t *testing.T) {
	f := newFixture(t, Options{Strict: true})
	args := amqp091.Table{
		arg("x-max-length", int32(5)), arg("a", amqp091.Array{true, int8(1), nil}), arg("b", []byte{0, 0xff}), arg("c", "\xff"),
		arg("d", 1.5), arg("e", float32(math.Inf(1))), arg("f", amqp091.Table{arg("t", amqp091.Timestamp(7))}),
		arg("g", amqp091.Decimal{Scale: 2, Value: 314}), arg("h", uint8(1)), arg("i", int16(-1)), arg("j", uint16(1)),
		arg("k", uint32(1)), arg("l", int64(math.MaxInt64)),
	}
	q := f.queue(durableQueue("a/b %", args...))
	x := f.exchange(ExchangeDecl{VHost: vh, Name: "x", Type: routing.Headers, Durable: true, AutoDelete: true, Internal: true, Arguments: args[:1], User: "ada"})
	f.bind(toQueue("x", "a/b %", "k/ey", arg("x-match", "any")))
	f.bind(toExchange("amq.topic", "x", "a.#"))
	f.policy("p", "^a", 3, `{"max-length":4,"dead-letter-exchange":"dlx"}`)
	f.policy("tie", "^a", 3, `{"max-length":3}`)
	f.operatorPolicy("op", "", `{"expires":99}`)
	for _, name := range []string{"of-another-ada", "s"} {
		f.Orphan("ada")
		if _, err := f.PutParameter(Parameter{VHost: vh, Component: "shovel", Name: name, Value: []byte(`{"src":1}`), By: "ada"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.PutGlobalParameter(GlobalParameter{"g", []byte(`"x"`)}); err != nil {
		t.Fatal(err)
	}
	if err := f.SetVHostLimits(vh, map[Limit]any{MaxQueues: int64(100)}, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.PutVHost("second", Metadata{Description: "d", Tags: []string{"t"}, DefaultQueueType: Quorum}); err != nil {
		t.Fatal(err)
	}

	g := f.restart()
	v := g.vhost()
	q2, ok := v.Queue("a/b %")
	if !ok || q2.Incarnation != q.Incarnation || !q2.Strict || q2.Type != Classic {
		t.Fatalf("the queue came back as %+v", q2)
	}
	if diff := cmp.Diff(q.Arguments, q2.Arguments); diff != "" {
		t.Errorf("arguments: %s", diff)
	}
	if diff := cmp.Diff(q.Effective, q2.Effective); diff != "" {
		t.Errorf("settings: %s", diff)
	}
	if q2.Policy.Name != "tie" || q2.OperatorPolicy.Name != "op" {
		t.Errorf("policies are %q and %q", q2.Policy.Name, q2.OperatorPolicy.Name)
	}
	x2, ok := v.Exchange("x")
	if !ok {
		t.Fatal("the exchange is gone")
	}
	if diff := cmp.Diff(x.ExchangeDecl, x2.ExchangeDecl, cmpopts.IgnoreUnexported(ExchangeDecl{})); diff != "" {
		t.Errorf("exchange: %s", diff)
	}
	if len(v.Bindings()) != 3 || len(q2.Bindings()) != 2 || len(x2.BindingsTo()) != 1 {
		t.Errorf("bindings are %+v", v.Bindings())
	}
	if n, ok := v.Limit(MaxQueues); !ok || n != 100 {
		t.Errorf("the limit is %d", n)
	}
	if p, ok := v.Parameter("shovel", "s"); !ok || string(p.Value) != `{"src":1}` || p.Orphaned || len(g.GlobalParameters()) != 1 {
		t.Error("parameters are gone")
	}
	if p, _ := v.Parameter("shovel", "of-another-ada"); !p.Orphaned || p.By != "ada" {
		t.Errorf("what somebody has set whose account is gone came back as %+v", p)
	}
	if second, ok := g.VHost("second"); !ok || second.Metadata.Description != "d" || second.Metadata.DefaultQueueType != Quorum {
		t.Errorf("the second virtual host came back as %+v", second)
	}
	if next := g.queue(durableQueue("next")); next.Incarnation <= q.Incarnation {
		t.Errorf("incarnation %d was given out before %d", q.Incarnation, next.Incarnation)
	}
}

// TestBR_5_13_TransientObjectsAreNotStored is also BR-6.14 and BR-7.8.
func TestBR_5_13_TransientObjectsAreNotStored(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("durable"))
	f.exchange(durableExchange("durable", routing.Fanout))
	f.save()
	transient := QueueDecl{VHost: vh, Name: "transient", Owner: "c1"}
	exclusive := durableQueue("exclusive")
	exclusive.Exclusive = true
	f.queue(transient)
	f.queue(exclusive)
	f.exchange(ExchangeDecl{VHost: vh, Name: "tx", Type: routing.Fanout})
	f.bind(toQueue("durable", "transient", ""))
	f.bind(toQueue("durable", "exclusive", ""))
	f.bind(toQueue("tx", "durable", ""))
	if n := f.save(); n != 0 {
		t.Errorf("transient objects made %d durable changes", n)
	}
	g := f.restart()
	if n := len(g.vhost().Queues()); n != 1 {
		t.Errorf("%d queues after the restart, want 1", n)
	}
	if _, ok := g.vhost().Exchange("tx"); ok {
		t.Error("the transient exchange is still there")
	}
}

func TestBR_3_8_DeletingAVHostLeavesNothing(t *testing.T) {
	f := newFixture(t, Options{})
	f.save()
	before := len(f.store)
	if _, _, err := f.PutVHost("w", Metadata{Protected: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		d := durableQueue(name)
		d.VHost = "w"
		f.queue(d)
		b := toQueue("amq.fanout", name, "")
		b.VHost = "w"
		f.bind(b)
	}
	if _, err := f.PutPolicy("w", PolicyDecl{Name: "p", Definition: Definition{"expires": int64(1)}}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := f.PutParameter(Parameter{VHost: "w", Component: "c", Name: "n", Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	f.save()
	_, err := f.DeleteVHost("w")
	expectRefusal(t, err, Protected, "Refusing to delete virtual host 'w' because it is protected from deletion")
	if err := f.SetVHostProtection("w", false); err != nil {
		t.Fatal(err)
	}
	queues, err := f.DeleteVHost("w")
	if err != nil || len(queues) != 2 {
		t.Errorf("deleted %d queues, error %v", len(queues), err)
	}
	f.save()
	delete(f.store, counterKey)
	if len(f.store) != before {
		t.Errorf("left in the store: %v", f.store)
	}
	_, err = f.DeleteVHost("w")
	expectRefusal(t, err, NotFound, "vhost w not found")
	_, _, err = f.DeclareQueue(QueueDecl{VHost: "w", Name: "q"}, nil)
	expectRefusal(t, err, NotAllowed, "vhost w not found")
}

func TestBR_15_9_VHostLimitErrors(t *testing.T) {
	f := newFixture(t, Options{})
	expectRefusal(t, f.SetVHostLimits(vh, map[Limit]any{"bogus": int64(1)}, false), Invalid, "Validation failed\n\nUnrecognised terms [{<<\"bogus\">>,1}] in limits\n")
	expectRefusal(t, f.SetVHostLimits(vh, map[Limit]any{MaxQueues: "x"}, false), Invalid, "Validation failed\n\nmax-queues should be a number, actually was <<\"x\">>\n")
}

// Several limits are one change, so that a crash leaves none of them without the others; if one is
// refused none is set.
func TestLimitsOfAVirtualHostAreOneChange(t *testing.T) {
	f := newFixture(t, Options{})
	f.save()
	if err := f.SetVHostLimits(vh, map[Limit]any{MaxConnections: int64(1), MaxQueues: int64(2)}, false); err != nil {
		t.Fatal(err)
	}
	if n := f.save(); n != 1 {
		t.Errorf("two limits are %d changes", n)
	}
	expectRefusal(t, f.SetVHostLimits(vh, map[Limit]any{MaxConnections: int64(3), MaxQueues: "x"}, true), Invalid, "Validation failed\n\nmax-queues should be a number, actually was <<\"x\">>\n")
	if got := fmt.Sprint(f.vhost().Limits(), f.save()); got != "map[max-connections:1 max-queues:2] 0" {
		t.Errorf("after a refusal the limits and the number of changes are %s", got)
	}
	if err := f.SetVHostLimits(vh, map[Limit]any{MaxQueues: int64(4)}, true); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.vhost().Limits(), f.save()); got != "map[max-queues:4] 1" {
		t.Errorf("after one alone the limits and the number of changes are %s", got)
	}
}

func TestLoadRefusesDamage(t *testing.T) {
	for name, c := range map[string]struct{ key, value, want string }{
		"not JSON":        {"topology/vhost/v", "{", "topology/vhost/v"},
		"newer version":   {"topology/vhost/v", `{"v":2}`, "version 2"},
		"unknown kind":    {"topology/stream/v", `{"v":1}`, "unknown kind"},
		"missing vhost":   {"topology/queue/v/q", `{"v":1,"vhost":"v","name":"q"}`, "vhost v not found"},
		"bad field type":  {"topology/queue/v/q", `{"v":1,"vhost":"v","name":"q","arguments":[["k","?",1]]}`, "unknown field type"},
		"pattern damaged": {"topology/policy/v/p", `{"v":1,"vhost":"v","pattern":"("}`, "policy"},
	} {
		_, err := Load(Options{}, func(yield func(k, v []byte) bool) { yield([]byte(c.key), []byte(c.value)) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}

// A pattern that was taken when patterns might be larger is read.
func TestAStoredPatternMayBeLarge(t *testing.T) {
	for _, kind := range []string{"policy", "operator"} {
		f := newFixture(t, Options{})
		vh := f.vhost().Name
		if _, err := f.PutPolicy(vh, PolicyDecl{Name: "p", Pattern: "a.{0,99}b", Definition: parseDefinition(t, `{"max-length":1}`)}, kind == "operator"); err != nil {
			t.Fatal(err)
		}
		f.save()
		for key, value := range f.store {
			f.store[key] = bytes.ReplaceAll(value, []byte("{0,99}"), []byte("{0,999}"))
		}
		f = f.restart()
		if len(*f.vhost().policySet(kind == "operator")) != 1 {
			t.Errorf("%s: it is not read", kind)
		}
	}
}

func TestBR_15_5_ArgumentsFromJSON(t *testing.T) {
	v, err := ParseJSON([]byte(`{"x-message-ttl":60000,"s":"a","f":1.5,"n":null,"b":true,"l":[1,{"k":"v"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	table, err := ParseArguments(v.(map[string]any))
	if err != nil {
		t.Fatal(err)
	}
	want := amqp091.Table{
		arg("b", true), arg("f", 1.5), arg("l", amqp091.Array{int64(1), amqp091.Table{arg("k", "v")}}), arg("n", nil),
		arg("s", "a"), arg("x-message-ttl", int64(60000)),
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Error(diff)
	}
	v.(map[string]any)["n"] = "undefined" // as RabbitMQ shows void, at any depth
	v.(map[string]any)["deep"] = []any{"undefined", map[string]any{"k": "undefined"}}
	table = append(table, arg("deep", amqp091.Array{nil, amqp091.Table{arg("k", nil)}}))
	if diff := cmp.Diff(v, any(ArgumentsJSON(table))); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{"a":99999999999999999999}`, `{"a":1} x`, `{`} {
		if _, err := ParseJSON([]byte(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	if _, err := ParseArguments(map[string]any{strings.Repeat("k", 256): true}); err == nil {
		t.Error("an argument name of 256 bytes was accepted")
	}
}

// A queue whose declaration never came to disk may have left its number in the log
// of a group.
func TestNumbersAreReservedByAnEarlierChange(t *testing.T) {
	f := newFixture(t, Options{})
	f.Reserve()
	reserved := func() uint64 {
		var r counterRecord
		if err := json.Unmarshal(f.store[counterKey], &r); err != nil {
			t.Fatal(err)
		}
		return r.Reserved
	}
	for restart := range 3 {
		f.save()
		for i := range 3 * incarnationBlock {
			stored := reserved()
			q := f.queue(durableQueue(fmt.Sprint(restart, "-", i)))
			if q.Incarnation > stored {
				t.Fatalf("queue %d has the number %d, and the store reserves up to %d", i, q.Incarnation, stored)
			}
			f.save()
		}
		last := f.queue(durableQueue(fmt.Sprint("never stored ", restart)))
		f.TakeChanges()
		f = f.restart()
		f.Reserve()
		f.save()
		if next := f.queue(durableQueue(fmt.Sprint("next ", restart))); next.Incarnation <= last.Incarnation {
			t.Fatalf("the number %d comes after %d", next.Incarnation, last.Incarnation)
		}
	}
}

// Earlier versions let names in that are not UTF-8. JSON has other characters in their place; the key has the name.
func TestNamesThatAreNotTextAreReadFromTheirKeys(t *testing.T) {
	f := newFixture(t, Options{})
	f.save()
	name := message.QueueName("q\xff")
	f.store[queueKey(vh, name)] = []byte(`{"v":1,"vhost":"v","name":"q\ufffd","arguments":[["x-queue-type","S","classic"]],"incarnation":7}`)
	f.store[exchangeKey(vh, "x\xff")] = []byte(`{"v":1,"vhost":"v","name":"x\ufffd","type":"fanout"}`)
	f.store[policyRecordKey(false, vh, "p\xff")] = []byte(`{"v":1,"vhost":"v","name":"p\ufffd","pattern":"z","apply_to":"all","priority":0,"definition":{"max-length":1},"seq":1}`)
	f.store[bindingKeyOf(t, vh, "x\xff", "q\xff")] = []byte(`{"v":1,"vhost":"v","source":"x\ufffd","destination":"q\ufffd","key":""}`)
	f = f.restart()
	q, ok := f.vhost().Queue(name)
	if !ok || len(q.Bindings()) != 2 {
		t.Fatalf("the queue is there: %t", ok)
	}
	f.DeleteQueue(q)
	if _, err := f.DeleteExchange(vh, "x\xff", false, nil); err != nil {
		t.Fatal(err)
	}
	if existed, err := f.DeletePolicy(vh, "p\xff", false); !existed || err != nil {
		t.Errorf("delete policy: %t, %v", existed, err)
	}
	f = f.restart()
	if len(f.vhost().Queues()) != 0 || len(f.vhost().RuleSet().Policies(false)) != 0 {
		t.Error("what was deleted came back")
	}
	if _, ok := f.vhost().Exchange("x\ufffd"); ok {
		t.Error("the exchange came back under another name")
	}
}

// Earlier versions let arguments of bindings in whose names are not UTF-8. A binding has other names when it is read again, and so
// another key.
func TestBindingsOfArgumentsThatAreNotTextMove(t *testing.T) {
	f := newFixture(t, Options{})
	f.queue(durableQueue("q"))
	f.save()
	for queue, names := range map[string][]string{"q": {"k\xfe", "k\xff", "k\ufffd"}, "deleted before": {"k\xfe", "k\xff"}} {
		for _, name := range names {
			d := toQueue("amq.headers", queue, "", arg(name, "v"))
			f.store[bindingKey(newBinding(&d, nil, nil, &Queue{}))] =
				[]byte(`{"v":1,"vhost":"v","source":"amq.headers","destination":"` + queue + `","key":"","arguments":[["k\ufffd","S","v"]]}`)
		}
	}
	f = f.restart()
	if n := len(f.vhost().queues["q"].in.list); n != 1 {
		t.Fatalf("there are %d of what are equal bindings now", n)
	}
	if f = f.restart(); len(f.vhost().queues["q"].in.list) != 1 {
		t.Error("the binding is gone")
	}
	f.DeleteQueue(f.vhost().queues["q"])
	f = f.restart()
	for key := range f.store {
		if strings.HasPrefix(key, bindingKind) {
			t.Errorf("the queue is deleted, and there is %s", key)
		}
	}
}

// What somebody has set whose account is gone is noted in slices, by number and by size.
func TestVeryManyParametersAreOrphanedInSlices(t *testing.T) {
	for _, c := range []struct{ parameters, size, slices int }{{2*orphansAtOnce + 1, 1, 3}, {30, 100 << 10, 3}, {0, 0, 1}} {
		f := newFixture(t, Options{})
		value := []byte(`"` + strings.Repeat("x", c.size) + `"`)
		for i := range c.parameters {
			if _, err := f.PutParameter(Parameter{VHost: vh, Component: "shovel", Name: fmt.Sprint(i), Value: value, By: "u"}); err != nil {
				t.Fatal(err)
			}
		}
		f.save()
		slices := 0
		for more := true; more; slices++ {
			more = f.Orphan("u")
			if n := f.save(); n > orphansAtOnce || n*c.size > 2*orphanBytesAtOnce {
				t.Errorf("%d of %d bytes are noted at once", n, c.size)
			}
		}
		if slices != c.slices {
			t.Errorf("%d of %d bytes are noted in %d slices, want %d", c.parameters, c.size, slices, c.slices)
		}
		for name, p := range f.restart().vhost().parameters {
			if !p.Orphaned {
				t.Errorf("%s is not noted", name.name)
			}
		}
	}
}

// What is stored has its names as JSON.
func TestNamesOfArgumentsAreText(t *testing.T) {
	f := newFixture(t, Options{})
	bad := arg("k\xff", "v")
	for _, args := range []amqp091.Table{{bad}, {arg("t", amqp091.Table{bad})}, {arg("a", amqp091.Array{amqp091.Table{bad}})}} {
		const text = `invalid arguments: name "k\xff" is not UTF-8`
		_, _, err := f.Bind(toQueue("amq.headers", "q", "", args...), nil)
		expectRefusal(t, err, PreconditionFailed, text)
		_, _, err = f.DeclareQueue(durableQueue("q", args...), nil)
		expectRefusal(t, err, PreconditionFailed, text)
		_, _, err = f.DeclareExchange(durableExchange("x", routing.Headers, args...), nil)
		expectRefusal(t, err, PreconditionFailed, text)
	}
}

func bindingKeyOf(t *testing.T, v message.VHost, source message.ExchangeName, queue message.QueueName) string {
	t.Helper()
	return bindingKey(newBinding(&BindingDecl{VHost: v, Source: source, DestinationKind: QueueResource, Destination: string(queue)}, nil, nil, &Queue{}))
}
