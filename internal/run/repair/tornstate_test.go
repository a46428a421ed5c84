package repair

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// One declaration is lost, and others refer to it: a virtual host with a policy, an exchange with a binding, a queue
// with priorities of which some levels are empty now. Each kind of repair works, and keeps every message.
func TestDeclarationsThatReferToALostOne(t *testing.T) {
	for name, text := range map[string]string{
		"virtual host": "Default virtual host", "exchange": `"name":"dlx"`, "priorities": `"name":"prio"`,
	} {
		for _, how := range []How{SkipFrame, Cut} {
			for _, checkpoint := range []bool{false, true} {
				t.Run(name+" "+string(how), func(t *testing.T) {
					files := filled(t, 10)
					b, c := start(t, files)
					if _, err := c.DeclareQueue(topology.QueueDecl{Name: "prio", Durable: true, Arguments: amqp091.Table{{Key: "x-max-priority", Value: int64(9)}}}); err != nil {
						t.Fatal(err)
					}
					if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "dlx", Type: routing.Direct, Durable: true}); err != nil {
						t.Fatal(err)
					}
					if _, err := c.Bind(topology.BindingDecl{Source: "dlx", DestinationKind: topology.QueueResource, Destination: "parked", Key: "k"}); err != nil {
						t.Fatal(err)
					}
					if _, err := b.By("").Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: "pol", Pattern: "^none$", ApplyTo: topology.ApplyToQueues, Definition: map[string]any{"max-length": int64(7)}}}); err != nil {
						t.Fatal(err)
					}
					publishAt(t, c, "prio", body("prio", 0), 8)
					g, ok, err := c.Get("prio", false)
					if err != nil || !ok {
						t.Fatal("get: ", ok, err)
					}
					c.Run([]partition.Op{{Kind: partition.Ack, Queue: g.Queue, ID: g.ID}})
					b.Bodies().Release(g.Body)
					for i := range 10 {
						publishAt(t, c, "prio", body("prio", i), 2)
					}
					if checkpoint {
						if err := b.Node().Checkpoint(); err != nil {
							t.Fatal(err)
						}
					}
					stop(t, b)
					path, offset := whereIs(t, files, text)
					rot(t, files, path, offset)
					if r := examined(t, files, how); r.Clean() || r.Failed != "" || !strings.Contains(path, stateLogDir) {
						t.Fatalf("the check: %+v", r)
					}
					out := repaired(t, files, how)
					if got := counted(t, files); got["orders"] != 10 || got["parked"] != 10 || got["prio"] != 10 {
						t.Errorf("found %v, want 10 of each\n%s", got, out)
					}
				})
			}
		}
	}
}

func publishAt(t *testing.T, c *broker.Connection, queue, body string, priority uint8) {
	t.Helper()
	persistent := uint8(2)
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &persistent, Priority: &priority})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := &broker.Publication{Key: []byte(queue), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)}
	if routed, err := c.PublishOne(p); err != nil || !routed {
		t.Fatalf("publish: routed %t, %v", routed, err)
	}
}
