package letters

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// open starts a node, in memory unless o says where, and returns a connection of its first user.
func open(t *testing.T, o broker.Options) *broker.Connection {
	t.Helper()
	o.Dir = "data"
	if o.FS == nil {
		o.FS = vfs.NewMem()
	}
	b, err := broker.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if b.Empty() {
		if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
	}
	return b.As("guest", "/")
}

func mustDeclare(t *testing.T, c *broker.Connection, name string, args ...amqp091.Field) {
	t.Helper()
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: args}); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, c *broker.Connection, exchange, key, body string, l amqp091.PropertyList) {
	t.Helper()
	raw := amqp091.AppendPropsFrom(nil, l)
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := &broker.Publication{Exchange: []byte(exchange), Key: []byte(key), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)}
	if routed, err := c.PublishOne(p); err != nil || !routed {
		t.Fatalf("publish %q: routed %t, %v", body, routed, err)
	}
}

// reject takes the next message of a queue, of any type, and rejects it.
func reject(t *testing.T, c *broker.Connection, name string) {
	t.Helper()
	n := 0
	if err := c.Take(message.QueueName(name), 1, broker.RejectRemoves, func(*broker.Shown) (bool, error) { n++; return true, nil }); err != nil || n != 1 {
		t.Fatalf("rejected %d of %s, %v", n, name, err)
	}
}

func ready(t *testing.T, c *broker.Connection, name string) int {
	t.Helper()
	d, err := c.PassiveQueue(message.QueueName(name))
	if err != nil {
		t.Fatal(err)
	}
	return d.Messages
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}
