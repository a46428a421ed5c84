package broker

import (
	"fmt"
	"slices"
	"testing"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// A dead-letter exchange of many queues is looked at once: the memory used does not grow with the number of queues
// times the number of bindings. A queue is not its own target.
func TestDeadLetterTargetsOfASharedExchange(t *testing.T) {
	c := open(t, Options{})
	for _, name := range []string{"shared", "own"} {
		if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: message.ExchangeName(name), Type: "fanout", Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	to := func(exchange string) amqp091.Field {
		return amqp091.Field{Key: "x-dead-letter-exchange", Value: exchange}
	}
	bind := func(exchange, name string) {
		if _, err := c.BindAs(topology.BindingDecl{Source: message.ExchangeName(exchange), DestinationKind: topology.QueueResource, Destination: name}); err != nil {
			t.Fatal(err)
		}
	}
	const queues = 200
	for i := range queues {
		name := fmt.Sprint("q", i)
		mustDeclare(t, c, name, to("shared"))
		bind("shared", name)
	}
	mustDeclare(t, c, "alone", to("own"))
	bind("own", "alone")
	mustDeclare(t, c, "plain")
	mustDeclare(t, c, "keyed", to(""), amqp091.Field{Key: "x-dead-letter-routing-key", Value: "plain"})
	mustDeclare(t, c, "itself", to(""), amqp091.Field{Key: "x-dead-letter-routing-key", Value: "itself"})
	var got, want []string
	for q := range c.b.DeadLetterTargets() {
		got = append(got, string(q.Name))
	}
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		for _, q := range v.Queues() {
			if !slices.Contains([]string{"alone", "keyed", "itself"}, string(q.Name)) {
				want = append(want, string(q.Name))
			}
		}
	})
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("targets are %q, want %q", got, want)
	}
	if n := testing.AllocsPerRun(5, func() { c.b.DeadLetterTargets() }); n > queues/2 {
		t.Errorf("%v allocations for %d queues that share an exchange", n, queues)
	}
}
