package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/lint"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// world is a topology that a test declares.
type world struct {
	*topology.State
	t testing.TB
}

func newWorld(t testing.TB, m topology.Metadata) *world {
	s := topology.New(topology.Options{})
	if _, _, err := s.PutVHost("v", m); err != nil {
		t.Fatal(err)
	}
	return &world{s, t}
}

// queue declares a durable queue. An argument is name=value; the values of those that are numbers are.
func (w *world) queue(name string, args ...string) *topology.Queue {
	w.t.Helper()
	d := topology.QueueDecl{VHost: "v", Name: message.QueueName(name), Durable: true}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		var n int64
		switch {
		case a == "transient":
			d.Durable = false
		case a == "auto-delete":
			d.AutoDelete = true
		case a == "exclusive":
			d.Exclusive = true
		case a == "quorum":
			d.Arguments = append(d.Arguments, amqp091.Field{Key: "x-queue-type", Value: "quorum"})
		case key != "dlk" && key != "dlx" && must(fmt.Sscan(value, &n)):
			d.Arguments = append(d.Arguments, amqp091.Field{Key: "x-" + key, Value: n})
		default:
			key = strings.NewReplacer("dlx", "x-dead-letter-exchange", "dlk", "x-dead-letter-routing-key", "overflow", "x-overflow", "strategy", "x-dead-letter-strategy").Replace(key)
			d.Arguments = append(d.Arguments, amqp091.Field{Key: key, Value: value})
		}
	}
	q, _, err := w.DeclareQueue(d, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Stored(w.TakeMade())
	return q
}

func must(_ int, err error) bool { return err == nil }

func (w *world) exchange(name string, kind routing.Kind, transient ...string) {
	w.t.Helper()
	if _, _, err := w.DeclareExchange(topology.ExchangeDecl{VHost: "v", Name: message.ExchangeName(name), Type: kind, Durable: transient == nil}, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) bind(exchange, queue, key string) {
	w.t.Helper()
	d := topology.BindingDecl{VHost: "v", Source: message.ExchangeName(exchange), DestinationKind: topology.QueueResource, Destination: queue, Key: message.RoutingKey(key)}
	if _, _, err := w.Bind(d, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) policy(name, pattern string, operator bool, d topology.Definition) {
	w.t.Helper()
	if _, err := w.PutPolicy("v", topology.PolicyDecl{Name: name, Pattern: pattern, Definition: d}, operator); err != nil {
		w.t.Fatal(err)
	}
	t := w.Takeover("v")
	for t.Match(t.Rules(), 100, func() bool { return false }) {
		w.Apply(t)
	}
}

func (w *world) lint(c lint.Contents) []lint.Finding {
	v, _ := w.VHost("v")
	p := lint.New(v)
	p.Order()
	for p.Step(v, func() bool { return true }, nil) {
	}
	return p.Finish(c)
}

// expect compares all findings, as severity rule kind name, with those that are wanted.
func (w *world) expect(want ...string) []lint.Finding {
	w.t.Helper()
	return w.expectWith(nil, want...)
}

func (w *world) expectWith(c lint.Contents, want ...string) (list []lint.Finding) {
	w.t.Helper()
	list = w.lint(c)
	var got []string
	for _, f := range list {
		if f.VHost != "v" || f.Text == "" || f.Mend == "" {
			w.t.Errorf("%+v", f)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", f.Severity, f.Rule, f.Kind, f.Name))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("findings:\n%s\nwant:\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), list)
	}
	return list
}

// A usual topology is found to be fine: a direct exchange, a key, a target that nothing leaves.
func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.expect()
	w.exchange("dlx", routing.Direct)
	w.queue("orders.dead")
	w.bind("dlx", "orders.dead", "orders")
	w.queue("orders", "dlx=dlx", "dlk=orders")
	w.queue("bills", "dlx=", "dlk=orders.dead", "message-ttl=1000")
	w.queue("keeps.key", "dlx=dlx")
	w.bind("amq.direct", "keeps.key", "orders")
	w.queue("quorum", "quorum", "dlx=dlx", "dlk=orders", "strategy=at-least-once", "overflow=reject-publish")
	w.expect()
}

func TestDeadLetterExchangeMissing(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("orders", "dlx=dlx")
	w.policy("dead", "^bills", false, topology.Definition{"dead-letter-exchange": "gone"})
	w.queue("bills")
	list := w.expect("error dlx-missing queue orders", "error dlx-missing queue bills")
	if !strings.Contains(list[0].Text, "the policy 'dead' names the exchange 'gone'") || !strings.Contains(list[1].Text, "its argument x-dead-letter-exchange names the exchange 'dlx'") {
		t.Errorf("%+v", list)
	}
	w.exchange("dlx", routing.Fanout)
	w.queue("dead")
	w.bind("dlx", "dead", "")
	w.expect("error dlx-missing queue bills")
}

func TestDeadLetterExchangeUnbound(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("dlx", routing.Topic)
	w.queue("orders", "dlx=dlx")
	w.queue("bills", "dlx=dlx", "dlk=x")
	list := w.expect("error dlx-unbound exchange dlx")
	if !strings.Contains(list[0].Text, "'bills', 'orders'") {
		t.Errorf("%+v", list)
	}
	w.queue("dead")
	w.bind("dlx", "dead", "#")
	w.expect()
}

func TestDeadLetterKeyReachesNothing(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("dlx", routing.Direct)
	w.queue("dead")
	w.bind("dlx", "dead", "known")
	w.queue("a", "dlx=dlx", "dlk=unknown")
	w.queue("b", "dlx=", "dlk=nobody")
	w.queue("c", "dlx=dlx") // messages come as c, or with the keys of its bindings
	w.bind("amq.direct", "c", "order")
	w.queue("d", "dlx=dlx")
	w.bind("amq.topic", "d", "order.#") // any key may come
	w.queue("e", "dlx=dlx")
	w.bind("amq.fanout", "e", "")
	list := w.expect("error dlx-no-route queue a", "error dlx-no-route queue b", "warning dlx-no-route queue c")
	if !strings.Contains(list[2].Text, "('c', 'order')") {
		t.Errorf("%+v", list[2])
	}
	w.bind("dlx", "dead", "unknown")
	w.bind("dlx", "dead", "order")
	w.queue("nobody")
	w.expect()
}

// Where dead letters of a headers exchange go nobody knows without a message.
func TestHeadersExchangesAreNotJudged(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("dlx", routing.Headers)
	w.queue("dead")
	if _, _, err := w.Bind(topology.BindingDecl{VHost: "v", Source: "dlx", DestinationKind: topology.QueueResource, Destination: "dead", Arguments: amqp091.Table{{Key: "a", Value: "b"}}}, nil); err != nil {
		t.Fatal(err)
	}
	w.queue("orders", "dlx=dlx", "dlk=x")
	w.expect()
}

// Dead letters that come round without a consumer are dropped; with one they go round without end.
func TestLoops(t *testing.T) {
	for _, c := range []struct {
		name    string
		profile deadletter.Profile
		declare func(w *world)
		want    []string
	}{
		{"two queues with a TTL", "", func(w *world) {
			w.queue("a", "dlx=", "dlk=b", "message-ttl=1")
			w.queue("b", "dlx=", "dlk=a", "message-ttl=1")
		}, []string{"error loop queue a"}},
		{"a queue that overflows into itself", "", func(w *world) { w.queue("a", "dlx=", "max-length=1") }, []string{"error loop queue a"}},
		{"overflow that refuses", "", func(w *world) { w.queue("a", "dlx=", "max-length=1", "overflow=reject-publish") }, []string{"hint loop queue a"}},
		{"a retry by reject and TTL", "", func(w *world) {
			w.queue("work", "dlx=", "dlk=retry")
			w.queue("retry", "dlx=", "dlk=work", "message-ttl=1")
		}, []string{"hint loop queue retry"}},
		{"a retry by the delivery limit", "", func(w *world) {
			w.queue("work", "quorum", "dlx=", "dlk=retry")
			w.queue("retry", "dlx=", "dlk=work", "message-ttl=1")
		}, []string{"warning loop queue retry"}},
		{"two loops that share a queue", "", func(w *world) {
			w.exchange("fan", routing.Fanout)
			w.queue("a", "dlx=", "dlk=b", "message-ttl=1")
			w.queue("b", "dlx=fan", "message-ttl=1")
			w.queue("c", "dlx=", "dlk=b")
			w.bind("fan", "a", "")
			w.bind("fan", "c", "")
		}, []string{"error loop queue a"}},
		{"a way with an end", "", func(w *world) {
			w.queue("a", "dlx=", "dlk=b", "message-ttl=1")
			w.queue("b", "dlx=", "dlk=c", "message-ttl=1")
			w.queue("c")
		}, nil},
		{"ApsaraMQ cuts no loops", deadletter.ApsaraMQ, func(w *world) {
			w.queue("a", "dlx=", "dlk=b", "message-ttl=1")
			w.queue("b", "dlx=", "dlk=a", "message-ttl=1")
		}, []string{"hint loop queue a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, topology.Metadata{Profile: c.profile})
			c.declare(w)
			w.expect(c.want...)
		})
	}
}

func TestTargetNotDurable(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("dlx", routing.Fanout, "transient")
	w.queue("dead", "transient")
	w.queue("mine", "exclusive")
	w.queue("short", "auto-delete")
	w.bind("dlx", "dead", "")
	w.bind("dlx", "mine", "")
	w.bind("dlx", "short", "")
	w.queue("passing", "transient", "dlx=dlx")
	w.expect()
	w.queue("orders", "dlx=dlx")
	w.expect("warning target-not-durable exchange dlx", "warning target-not-durable queue dead", "warning target-not-durable queue mine", "warning target-not-durable queue short")
}

func TestTargetShorterThanItsSource(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("dead", "max-length=10")
	w.queue("orders", "dlx=", "dlk=dead", "max-length=10")
	w.expect()
	w.queue("bills", "dlx=", "dlk=dead", "max-length=11")
	list := w.expect("warning target-shorter queue dead")
	if !strings.Contains(list[0].Text, "'bills'") {
		t.Errorf("%+v", list)
	}
	w.queue("open", "dlx=", "dlk=dead")
	w.expect("hint target-shorter queue dead")
	// What does not fit goes on.
	w.policy("on", "^dead$", false, topology.Definition{"dead-letter-exchange": "", "dead-letter-routing-key": "more"})
	w.queue("more")
	w.expect()
}

func TestAtLeastOnceFallsBack(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("dead")
	w.queue("a", "quorum", "dlx=", "dlk=dead", "strategy=at-least-once")
	w.queue("b", "quorum", "strategy=at-least-once", "overflow=reject-publish", "delivery-limit=-1")
	w.expect("warning at-least-once-falls-back queue a", "warning at-least-once-falls-back queue b")
}

func TestManyQueuesShareATarget(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("dead")
	for i := range 9 {
		w.queue(fmt.Sprint("q", i), "dlx=", "dlk=dead")
	}
	w.expect()
	w.queue("q9", "dlx=", "dlk=dead")
	w.expect("hint shared-target queue dead")
}

func TestTTLThatNobodySees(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("reply", "message-ttl=1", "auto-delete")
	w.queue("kept", "message-ttl=1", "dlx=", "dlk=dead")
	w.queue("dead")
	w.expect()
	w.queue("cache", "message-ttl=1")
	w.policy("ttl", "^dead$", true, topology.Definition{"message-ttl": int64(5)})
	w.expect("hint ttl-unseen queue cache", "warning ttl-unseen queue dead")
}

type urgent map[string][2]int

func (u urgent) Urgent(q *topology.Queue) (ready, first int) {
	return u[string(q.Name)][0], u[string(q.Name)][1]
}

func TestPrioritiesThatNobodyUses(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	for _, name := range []string{"used", "unused", "short"} {
		w.queue(name, "max-priority=5")
	}
	w.queue("plain")
	w.expectWith(urgent{"used": {1000, 1}, "unused": {1000, 0}, "short": {99, 0}, "plain": {1000, 0}}, "hint priority-unused queue unused")
}

func TestDeliveryLimitDiscards(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("classic")
	w.queue("endless", "quorum", "delivery-limit=-1")
	w.queue("dead", "quorum")
	w.queue("led", "quorum", "dlx=", "dlk=dead")
	w.expect()
	w.queue("orders", "quorum")
	w.expect("warning delivery-limit-discards queue orders")
}

func TestPolicyMatchesNothing(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("orders")
	w.policy("fits", "^orders", false, topology.Definition{"max-length": int64(5)})
	w.policy("typo", "^odrers", false, topology.Definition{"max-length": int64(5)})
	w.policy("exchanges", "^amq", false, topology.Definition{"alternate-exchange": "amq.fanout"})
	w.policy("typo", "^odrers", true, topology.Definition{"max-length": int64(5)})
	w.expect("hint policy-matches-nothing policy typo", "hint policy-matches-nothing policy typo")
}

// What is deleted while a pass goes on is not looked at, and what is declared meanwhile is in none.
func TestAPassOutlivesChanges(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	a := w.queue("a", "dlx=gone")
	w.queue("b", "dlx=gone")
	v, _ := w.VHost("v")
	p := lint.New(v)
	p.Order()
	w.DeleteQueue(a)
	w.queue("a", "dlx=gone")
	w.queue("c", "dlx=gone")
	for p.Step(v, func() bool { return true }, nil) {
	}
	if list := p.Finish(nil); len(list) != 1 || list[0].Name != "b" {
		t.Errorf("%+v", list)
	}
}

// A pass over some queues says what is wrong with them, and judges nothing that needs all.
func TestAPassOverSomeQueues(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("a", "dlx=gone")
	b := w.queue("b", "dlx=gone")
	w.policy("typo", "^odrers", false, topology.Definition{"max-length": int64(5)})
	v, _ := w.VHost("v")
	p := lint.New(v, b)
	for p.Step(v, func() bool { return false }, nil) {
	}
	if list := p.Finish(nil); len(list) != 1 || list[0].Name != "b" {
		t.Errorf("%+v", list)
	}
}

// Work and answer are bounded, whatever is declared: each of 20,000 queues goes its own way to 1,000 others.
func TestAPassIsBounded(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.exchange("fan", routing.Fanout)
	for i := range 1000 {
		w.queue(fmt.Sprint("dead", i))
		w.bind("fan", fmt.Sprint("dead", i), "")
	}
	for i := range 20_000 {
		w.queue(fmt.Sprint("q", i), "dlx=fan", fmt.Sprint("dlk=", i))
	}
	for i := range 1500 {
		w.queue(fmt.Sprint("lost", i), "dlx=gone")
	}
	began := time.Now()
	list := w.lint(nil)
	took := time.Since(began)
	of := map[string]int{}
	for _, f := range list {
		of[f.Rule]++
	}
	if of[lint.DLXMissing] != 1000 || of[lint.SharedTarget] != 1000 || of[lint.Incomplete] != 2 {
		t.Errorf("%v", of)
	}
	if took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	t.Log(took)
}

// Where a virtual host keeps what leads nowhere, a finding says so, and a delivery limit discards nothing.
func TestLostAndFoundIsSaid(t *testing.T) {
	w := newWorld(t, topology.Metadata{})
	w.queue("a", "dlx=gone")
	v, _ := w.VHost("v")
	p := lint.New(v)
	p.FindsLost = func(*topology.Queue) bool { return true }
	for p.Step(v, func() bool { return true }, nil) {
	}
	if list := p.Finish(nil); len(list) != 1 || !strings.Contains(list[0].Text, "they go to the lost and found") {
		t.Errorf("%+v", list)
	}
}

// The queue of a virtual host's default is made when the first dead letter needs it, so nothing is wrong before.
func TestDefaultDeadLetterIsNoFinding(t *testing.T) {
	w := newWorld(t, topology.Metadata{DefaultDeadLetter: "%q.dead"})
	w.queue("a")
	w.expect()
	v, _ := w.VHost("v")
	p := lint.New(v)
	for p.Step(v, func() bool { return true }, nil) {
	}
	if m := p.Map(); len(m.Edges) != 1 || m.Edges[0].Problem != "" || !m.Edges[0].FromVHost || m.Edges[0].To != "a.dead" {
		t.Errorf("%+v", m.Edges)
	}
}
