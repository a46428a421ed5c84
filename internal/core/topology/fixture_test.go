package topology

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

const vh message.VHost = "v"

// fixture is a State with the virtual host "v", and with a store behind it.
type fixture struct {
	*State
	t     *testing.T
	store map[string][]byte
}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	f := &fixture{State: New(o), t: t, store: map[string][]byte{}}
	if _, _, err := f.PutVHost(vh, Metadata{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// save applies the changes so far and says how many there were.
func (f *fixture) save() int {
	changes := f.TakeChanges()
	for key, value := range mutation.All(changes) {
		if value == nil {
			delete(f.store, string(key))
		} else {
			f.store[string(key)] = value
		}
	}
	return len(changes)
}

// restart loads the state from what was stored.
func (f *fixture) restart() *fixture {
	f.t.Helper()
	f.save()
	s, err := Load(f.options, func(yield func(k, v []byte) bool) {
		for k, v := range f.store {
			if !yield([]byte(k), v) {
				return
			}
		}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return &fixture{State: s, t: f.t, store: f.store}
}

func (f *fixture) vhost() *VHost {
	v, ok := f.VHost(vh)
	if !ok {
		f.t.Fatal("the virtual host is gone")
	}
	return v
}

func arg(key string, value any) amqp091.Field { return amqp091.Field{Key: key, Value: value} }

func durableQueue(name string, args ...amqp091.Field) QueueDecl {
	return QueueDecl{VHost: vh, Name: message.QueueName(name), Durable: true, Owner: "c1", Arguments: args}
}

func quorumQueue(name string, args ...amqp091.Field) QueueDecl {
	return durableQueue(name, append([]amqp091.Field{arg("x-queue-type", "quorum")}, args...)...)
}

func (f *fixture) queue(d QueueDecl) *Queue {
	f.t.Helper()
	q, _, err := f.DeclareQueue(d, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return q
}

func durableExchange(name string, kind routing.Kind, args ...amqp091.Field) ExchangeDecl {
	return ExchangeDecl{VHost: vh, Name: message.ExchangeName(name), Type: kind, Durable: true, Arguments: args}
}

func (f *fixture) exchange(d ExchangeDecl) *Exchange {
	f.t.Helper()
	x, _, err := f.DeclareExchange(d, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// toQueue and toExchange describe bindings.
func toQueue(source, queue, key string, args ...amqp091.Field) BindingDecl {
	return BindingDecl{
		VHost: vh, Source: message.ExchangeName(source), DestinationKind: QueueResource, Destination: queue,
		Key: message.RoutingKey(key), Arguments: args, Owner: "c1",
	}
}

func toExchange(source, destination, key string) BindingDecl {
	d := toQueue(source, destination, key)
	d.DestinationKind = ExchangeResource
	return d
}

func (f *fixture) bind(d BindingDecl) *Binding {
	f.t.Helper()
	b, _, err := f.Bind(d, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// route returns the names of the queues that a message reaches, sorted.
func (f *fixture) route(exchange, key string, more ...string) string {
	f.t.Helper()
	v := f.vhost()
	x, ok := v.Exchange(message.ExchangeName(exchange))
	if !ok {
		f.t.Fatalf("no exchange %q", exchange)
	}
	m := &routing.Message{Key: []byte(key)}
	for _, k := range more {
		m.More = append(m.More, []byte(k))
	}
	var router Router
	var names []string
	for _, q := range router.Route(v, x, m, nil) {
		names = append(names, string(q.Name))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (f *fixture) expectRoute(want, exchange, key string, more ...string) {
	f.t.Helper()
	if got := f.route(exchange, key, more...); got != want {
		f.t.Errorf("a message to %q with key %q reaches %q, want %q", exchange, key, got, want)
	}
}

// expectRefusal compares an error with the refusal that is due.
func expectRefusal(t *testing.T, err error, kind Kind, text string) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok {
		t.Errorf("got %v, want the refusal %q", err, text)
		return
	}
	if e.Kind != kind || e.Text != text {
		t.Errorf("got %v: %s\nwant %v: %s", e.Kind, e.Text, kind, text)
	}
}
