package broker

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/topology"
)

// Whoever publishes with very many keys to an exchange with very many patterns lets others change the topology meanwhile.
func TestADeclarationDoesNotWaitForAllKeysOfAMessage(t *testing.T) {
	c := open(t, Options{})
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 1 << 10 {
		words := make([]string, 10)
		for k := range words {
			words[k] = string("*a"[i>>k&1])
		}
		if _, err := c.Bind(topology.BindingDecl{
			Source: "amq.topic", DestinationKind: topology.QueueResource, Destination: "q", Key: message.RoutingKey(strings.Join(words, ".") + ".zz"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var cc amqp091.Array
	for i := range 100 {
		cc = append(cc, fmt.Sprint(strings.Repeat("a.", 10), i))
	}
	pauses := 0
	c.b.onPause = func() {
		if pauses++; pauses > 1 {
			return
		}
		c.b.letIn()
		if c.b.topo.TryLock() {
			t.Error("the topology is not held behind a pause")
			c.b.topo.Unlock()
		}
	}
	p := &Publication{Exchange: []byte("amq.topic"), Key: []byte("k"), Props: amqp091.Props{
		Headers: amqp091.AppendTable(nil, amqp091.Table{{Key: "CC", Value: cc}})[4:],
	}}
	if err := c.Check(p); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Route(p); err != nil {
		t.Fatal(err)
	}
	if pauses == 0 {
		t.Error("nobody else was let in")
	}
}
