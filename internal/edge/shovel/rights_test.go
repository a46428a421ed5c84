package shovel_test

import (
	"log/slog"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
)

// asUser sets a shovel from one queue to another in the name of a user with these permissions.
func (n *node) asUser(configure, write, read string) {
	n.Helper()
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		n.Fatal(err)
	}
	n.permit(configure, write, read)
	value := []byte(`{"src-uri":"amqp://","src-queue":"from","dest-uri":"amqp://","dest-queue":"to","reconnect-delay":0}`)
	if _, err := n.b.By("pm").As(&broker.Identity{Name: "pm"}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: "s", Value: value}}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) permit(configure, write, read string) {
	n.Helper()
	if _, err := n.b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "pm", VHost: "/", Configure: configure, Write: write, Read: read}}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) state(state string) func() bool {
	return func() bool { l := n.shown(); return len(l) == 1 && l[0]["state"] == state }
}

// Once whoever has set a shovel may not do what it does any more it moves nothing, says why, and is not
// started again before the permission is back.
func TestAShovelEndsWithThePermissionsOfItsSetter(t *testing.T) {
	gone := func(n *node) error { _, err := n.b.By("").Do(declare.DeleteUser{Name: "pm"}); return err }
	for name, c := range map[string]struct {
		revoke func(*node) error
		reason string
	}{
		"user": {gone, "user 'pm', who created the shovel, is deleted"},
		"permission": {func(n *node) error {
			_, err := n.b.By("").Do(declare.DeletePermission{VHost: "/", User: "pm"})
			return err
		}, `user 'pm', who created the shovel, no longer has the permissions for it: user may not connect to vhost "/"`},
		"read":  {func(n *node) error { n.permit(".*", ".*", "^to$"); return nil }, "read access to queue 'from' in vhost '/' refused for user 'pm'"},
		"write": {func(n *node) error { n.permit(".*", "^from$", ".*"); return nil }, "write access to exchange 'amq.default' in vhost '/' refused for user 'pm'"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.declare("from")
			n.publish("from", 1)
			n.asUser(".*", ".*", ".*")
			n.wait("the first message", func() bool { return n.ready("to") == 1 && n.state("running")() })
			if err := c.revoke(n); err != nil {
				t.Fatal(err)
			}
			n.publish("from", 3) // at once: the shovel may not have heard of it
			for range 2 {
				n.wait("the end", n.state("terminated"))
				if got, _ := n.shown()[0]["reason"].(string); !strings.Contains(got, c.reason) {
					t.Errorf("the reason is %q, want %q", got, c.reason)
				}
				if from, to := n.ready("from"), n.ready("to"); from != 3 || to != 1 {
					t.Errorf("%d messages are in the source and %d in the target, want 3 and 1", from, to)
				}
				if !n.shovels.Restart("/", "s") {
					t.Fatal("the shovel is gone")
				}
			}
			n.wait("the end", n.state("terminated"))
			if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: nil}); err != nil {
				t.Fatal(err)
			}
			n.permit(".*", ".*", ".*")
			if !n.shovels.Restart("/", "s") {
				t.Fatal("the shovel is gone")
			}
			if name == "user" { // who is called so now has not set it
				n.wait("the end", n.state("terminated"))
				if got, _ := n.shown()[0]["reason"].(string); got != c.reason {
					t.Errorf("the reason is %q, want %q", got, c.reason)
				}
				n.asUser(".*", ".*", ".*")
			}
			n.wait("all messages", func() bool { return n.ready("to") == 4 && n.ready("from") == 0 })
		})
	}
}

// An idle shovel says at once that it may not go on.
func TestAnIdleShovelEndsWithItsPermissions(t *testing.T) {
	n := start(t)
	n.declare("from")
	n.asUser(".*", ".*", ".*")
	n.wait("that it runs", n.state("running"))
	n.permit(".*", ".*", "^$")
	n.wait("the end", n.state("terminated"))
}

// Who has set a shovel is known after a restart. A shovel that whoever runs the node has set asks nobody.
func TestAShovelsSetterIsKnownAfterARestart(t *testing.T) {
	fs := vfs.NewMem()
	open := func() (*node, func()) {
		b, err := broker.Open(broker.Options{Dir: "data", FS: fs, NodeName: "rabbit@test"})
		if err != nil {
			t.Fatal(err)
		}
		n := &node{T: t, b: b}
		return n, func() {
			if n.shovels != nil {
				n.shovels.Stop()
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(n *node) {
		n.shovels = shovel.Start(shovel.Options{Broker: n.b, Logger: slog.New(slog.DiscardHandler), ClusterName: func() string { return "here" }})
		n.link = n.b.AsOperator("test", "/")
	}
	n, stop := open()
	if err := n.b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	run(n)
	n.declare("from")
	n.declare("other")
	n.asUser(".*", ".*", ".*")
	own := []byte(`{"src-uri":"amqp://","src-queue":"other","dest-uri":"amqp://","dest-queue":"there"}`)
	if _, err := n.b.By("").Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: "own", Value: own}}); err != nil {
		t.Fatal(err)
	}
	stop()

	n, stop = open() // no shovel runs when the user goes
	if _, err := n.b.By("").Do(declare.DeleteUser{Name: "pm"}); err != nil {
		t.Fatal(err)
	}
	stop()

	n, stop = open() // somebody else is called so
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	n.permit(".*", ".*", ".*")
	stop()

	n, stop = open()
	defer stop()
	run(n)
	for _, queue := range []message.QueueName{"from", "other"} {
		n.publish(string(queue), 1)
	}
	n.wait("both", func() bool {
		l := n.shown()
		return len(l) == 2 && l[0]["name"] == "own" && l[0]["state"] == "running" && l[1]["state"] == "terminated"
	})
	n.wait("the message", func() bool { return n.ready("there") == 1 })
	if got := n.ready("from"); got != 1 {
		t.Errorf("%d messages are in the source of a user who is gone, want 1", got)
	}
}

// BR-5.12: the names of a definition are cleaned where it is read, so that the permission is asked for what the shovel
// uses. Keys are not: they may have line feeds in them.
func TestPermissionsOfAShovelAreForTheNamesThatItUses(t *testing.T) {
	n := start(t)
	for _, q := range []string{"from", "_secret", "_there"} {
		n.declare(q)
	}
	if _, err := n.link.DeclareExchange(topology.ExchangeDecl{Name: "_x", Type: "topic", Durable: true}); err != nil {
		n.Fatal(err)
	}
	if _, err := n.link.Bind(topology.BindingDecl{Source: "_x", DestinationKind: topology.QueueResource, Destination: "_there", Key: "#"}); err != nil {
		n.Fatal(err)
	}
	n.publish("_secret", 1)
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		n.Fatal(err)
	}
	const most = "^[^_]"
	all := map[string]string{
		"a source's queue":                 `"src-queue":"\n_secret","dest-queue":"to"`,
		"a source's queue that is there":   `"src-queue":"\r\n_secret","src-predeclared":true,"dest-queue":"to"`,
		"a source's exchange":              `"src-exchange":"\n_x","dest-queue":"to"`,
		"a target's queue":                 `"src-queue":"from","dest-queue":"\r_there"`,
		"a target's exchange":              `"src-queue":"from","dest-exchange":"\n_x"`,
		"a target's exchange with its key": `"src-queue":"from","dest-exchange":"\n_x","dest-exchange-key":"k"`,
	}
	put := func(name, ends string) error {
		value := []byte(`{"src-uri":"amqp://","dest-uri":"amqp://","reconnect-delay":0,` + ends + `}`)
		_, err := n.b.By("pm").As(&broker.Identity{Name: "pm"}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: name, Value: value}})
		return err
	}
	n.permit(most, most, most)
	for name, ends := range all {
		if err := put(name, ends); err == nil || !strings.Contains(err.Error(), " access to ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.permit(".*", ".*", ".*")
	if _, err := n.b.By("").Do(declare.PutTopicPermission{TopicPermission: auth.TopicPermission{VHost: "/", User: "pm", Exchange: "_x", Write: "^mine$", Read: "^mine$"}}); err != nil {
		n.Fatal(err)
	}
	for name, ends := range map[string]string{
		"a key to read":  `"src-exchange":"\n_x","src-exchange-key":"theirs","dest-queue":"to"`,
		"a key to write": `"src-queue":"from","dest-exchange":"\n_x","dest-exchange-key":"theirs"`,
		"a key as it is": `"src-queue":"from","dest-exchange":"_x","dest-exchange-key":"mine\n"`,
	} {
		if err := put(name, ends); err == nil || !strings.Contains(err.Error(), " access to topic ") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// One that was set before goes by the same names.
	if err := put("old", `"src-queue":"\n_secret","src-predeclared":true,"dest-queue":"to"`); err != nil {
		n.Fatal(err)
	}
	n.wait("the first message", func() bool { return n.ready("to") == 1 })
	n.permit(most, most, most)
	n.wait("the end", n.state("terminated"))
	n.publish("_secret", 1)
	if !n.shovels.Restart("/", "old") {
		n.Fatal("the shovel is gone")
	}
	n.wait("the end", n.state("terminated"))
	if left, got := n.ready("_secret"), n.ready("to"); left != 1 || got != 1 {
		t.Errorf("%d messages are in the source and %d in the target, want 1 and 1", left, got)
	}
}
