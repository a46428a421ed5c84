package shovel_test

import (
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// A message that the target cannot take, since its exchange is not there, does not have those
// before it moved again with each attempt.
func TestAMessageWithoutATargetDoublesNoOther(t *testing.T) {
	n := start(t)
	if _, err := n.b.By("guest").As(&broker.Identity{Name: "guest"}).Do(declare.PutVHost{Name: "other", Change: declare.All(topology.Metadata{})}); err != nil {
		t.Fatal(err)
	}
	there := n.b.AsOperator("test", "other")
	exchange := func(c *broker.Connection, name message.ExchangeName) {
		t.Helper()
		if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: name, Type: "fanout", Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(c *broker.Connection, from message.ExchangeName, to string) {
		t.Helper()
		if _, err := c.Bind(topology.BindingDecl{Source: from, DestinationKind: topology.QueueResource, Destination: to}); err != nil {
			t.Fatal(err)
		}
	}
	n.declare("a")
	exchange(there, "both")
	if _, err := there.DeclareQueue(topology.QueueDecl{Name: "end", Durable: true}); err != nil {
		t.Fatal(err)
	}
	bind(there, "both", "end")
	for _, name := range []message.ExchangeName{"both", "here"} {
		exchange(n.link, name)
		bind(n.link, name, "a")
		p := broker.Publication{Exchange: []byte(name), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{})}
		if _, err := n.link.PublishOne(&p); err != nil {
			t.Fatal(err)
		}
	}
	n.mustPut("s", `{"src-uri":"amqp://","src-queue":"a","dest-uri":"amqp:///other","reconnect-delay":0}`)
	arrived := func() int {
		q, err := there.PassiveQueue("end")
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	for attempt := range 3 {
		if attempt > 0 && !n.shovels.Restart("/", "s") {
			t.Fatal("the shovel is gone")
		}
		n.wait("the failure", func() bool { l := n.shown(); return len(l) == 1 && l[0]["state"] == "terminated" })
	}
	if got := arrived(); got != 1 {
		t.Errorf("the message that can be moved is there %d times, after three attempts", got)
	}
	n.wait("that the other is back", func() bool { return n.ready("a") == 1 })
}
