package broker

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// BR-8.1: names and keys may contain any byte, and the cached route of one exchange is not used for another.
func TestARememberedRouteIsOfItsExchange(t *testing.T) {
	c := open(t, Options{})
	bind := func(exchange, key, queue string) {
		t.Helper()
		if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: message.ExchangeName(exchange), Type: routing.Direct, Durable: true}); err != nil {
			t.Fatal(err)
		}
		mustDeclare(t, c, queue)
		if _, err := c.Bind(topology.BindingDecl{Source: message.ExchangeName(exchange), DestinationKind: topology.QueueResource, Destination: queue, Key: message.RoutingKey(key)}); err != nil {
			t.Fatal(err)
		}
	}
	pairs := [][2]string{{"a\x00b", "c"}, {"a", "b\x00c"}, {"a\x00", "bc"}, {"a\x00b\x00", "c"}, {"ab", "c"}, {"abc", ""}}
	for i, p := range pairs {
		bind(p[0], p[1], fmt.Sprint("q", i))
	}
	for range 2 { // the second time from memory
		for i, p := range pairs {
			pub := Publication{Exchange: []byte(p[0]), Key: []byte(p[1])}
			targets, err := c.Route(&pub)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint("q", i); len(targets) != 1 || targets[0].Name != want {
				t.Errorf("exchange %q, key %q leads to %d queues, want %s only", p[0], p[1], len(targets), want)
			}
		}
	}
}

// A client that sends ever new keys to a fanout makes the node cache a limited number of routes, however many queues
// there are.
func TestRememberedRoutesAreBounded(t *testing.T) {
	var r routes
	to := routed{targets: make([]*partition.Queue, 1000)}
	most := 0
	for i := range routesLimit {
		key := fmt.Append(nil, i)
		r.keep([]byte("x"), key, to)
		sum := 0
		for _, to := range r.byKey {
			sum += len(to.targets)
		}
		most = max(most, sum)
		if to, ok := r.find(0, []byte("x"), key); !ok || len(to.targets) != 1000 {
			t.Fatal("what was remembered last is forgotten")
		}
	}
	if most > targetsLimit {
		t.Errorf("%d queues are remembered, want at most %d", most, targetsLimit)
	}
}
