package broker

import (
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// open returns a broker in memory and a connection of its first user.
func open(t *testing.T, o Options) *Connection {
	t.Helper()
	return openWith(t, o).As("guest", "/")
}

func mustDeclare(t *testing.T, c *Connection, name string, args ...amqp091.Field) {
	t.Helper()
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: args}); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, c *Connection, exchange, key, body string, l amqp091.PropertyList) {
	t.Helper()
	raw := amqp091.AppendPropsFrom(nil, l)
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := &Publication{Exchange: []byte(exchange), Key: []byte(key), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)}
	if routed, err := c.PublishOne(p); err != nil || !routed {
		t.Fatalf("publish %q: routed %t, %v", body, routed, err)
	}
}

// reject takes the next message of a queue and rejects it.
func reject(t *testing.T, c *Connection, name string) {
	t.Helper()
	g, ok, err := c.Get(message.QueueName(name), false)
	if err != nil || !ok {
		t.Fatalf("get %s: %t, %v", name, ok, err)
	}
	c.Run([]partition.Op{{Kind: partition.Reject, Queue: g.Queue, ID: g.ID, Failed: true}})
	c.b.bodies.Release(g.Body)
	c.b.bodies.Release(g.History)
}

func ready(t *testing.T, c *Connection, name string) int {
	t.Helper()
	d, err := c.PassiveQueue(message.QueueName(name))
	if err != nil {
		t.Fatal(err)
	}
	return d.Messages
}

var toDLQ = []amqp091.Field{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "dlq"}}
