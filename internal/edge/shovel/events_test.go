package shovel_test

import (
	"log/slog"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// A shovel that starts, runs, fails and is removed is an event each time, without the passwords of its addresses.
func TestEventsOfShovels(t *testing.T) {
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), NodeName: "rabbit@test", Events: broker.EventExchange{Enabled: true, VHost: "/"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	s := shovel.Start(shovel.Options{Broker: b, Logger: slog.New(slog.DiscardHandler), ClusterName: func() string { return "here" }})
	t.Cleanup(func() {
		s.Stop()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &node{t, b, s, b.AsOperator("test", "/")}
	n.declare("events")
	if _, err := n.link.Bind(topology.BindingDecl{Source: topology.EventExchange, DestinationKind: topology.QueueResource, Destination: "events", Key: "shovel.#"}); err != nil {
		t.Fatal(err)
	}
	// heard has, for each event, its key and some of its headers.
	heard := func() (list []string) {
		if err := n.link.Peek("events", 100, func(m *broker.Shown) bool {
			props, err := amqp091.DecodeProps(m.Properties)
			if err != nil {
				t.Fatal(err)
			}
			line := m.Key
			for _, f := range props.Headers {
				if text, is := f.Value.(string); is {
					if line += " " + f.Key + "=" + text; strings.Contains(text, "secret") {
						t.Errorf("an event has a password: %s", line)
					}
				}
			}
			list = append(list, line)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return list
	}
	has := func(parts ...string) func() bool {
		return func() bool {
			for _, line := range heard() {
				all := true
				for _, p := range parts {
					all = all && strings.Contains(line, p)
				}
				if all {
					return true
				}
			}
			return false
		}
	}
	n.declare("from")
	n.mustPut("s", `{"src-uri":"amqp://","src-queue":"from","dest-uri":"amqp://","dest-queue":"to"}`)
	n.wait("it starts", has("shovel.worker.status", "name=s", "vhost=/", "status=starting"))
	n.wait("it runs", has("shovel.worker.status", "name=s", "status=running", "src_queue=from", "dest_queue=to", "src_protocol=amqp091"))
	if r, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "s"}); err != nil || !r.Existed {
		t.Fatal(r, err)
	}
	n.wait("it is removed", has("shovel.worker.removed", "name=s", "vhost=/"))
	n.mustPut("wrong", `{"src-uri":"amqp://u:secret@127.0.0.1:1","src-queue":"from","dest-uri":"amqp://","dest-queue":"to"}`)
	n.wait("it fails", has("shovel.worker.status", "name=wrong", "status=terminated", "reason="))
}
