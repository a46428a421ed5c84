package shovel_test

import (
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// policyMaker makes a user who may use all exchanges and queues, and of amq.topic the keys that begin with mine only.
func (n *node) policyMaker() {
	n.Helper()
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		n.Fatal(err)
	}
	n.permit(".*", ".*", ".*")
	n.permitTopics("^mine")
}

func (n *node) permitTopics(pattern string) {
	n.Helper()
	if _, err := n.b.By("").Do(declare.PutTopicPermission{TopicPermission: auth.TopicPermission{User: "pm", VHost: "/", Exchange: "amq.topic", Write: pattern, Read: pattern}}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) putAs(user, value string) error {
	_, err := n.b.By(user).As(&broker.Identity{Name: user}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: "s", Value: []byte(value)}})
	return err
}

func (n *node) bind(exchange, queue, key string) {
	n.Helper()
	n.declare(queue)
	if _, err := n.link.Bind(topology.BindingDecl{
		Source: message.ExchangeName(exchange), DestinationKind: topology.QueueResource, Destination: queue, Key: message.RoutingKey(key),
	}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) send(exchange, key string, l amqp091.PropertyList) {
	n.Helper()
	p := broker.Publication{Exchange: []byte(exchange), Key: []byte(key), Raw: amqp091.AppendPropsFrom(nil, l)}
	var err error
	if p.Props, err = amqp091.ParseProps(p.Raw); err != nil {
		n.Fatal(err)
	}
	if _, err := n.link.PublishOne(&p); err != nil {
		n.Fatal(err)
	}
}

// BR-3.5: a shovel reads and writes the keys of a topic exchange that its setter may use.
func TestASetterNeedsThePermissionsOnTopics(t *testing.T) {
	n := start(t)
	n.policyMaker()
	const read, write = "read access to topic '#' in exchange 'amq.topic'", "write access to topic 'yours' in exchange 'amq.topic'"
	for value, want := range map[string]string{
		`"src-exchange":"amq.topic","src-exchange-key":"#","dest-queue":"q"`:           read,
		`"src-exchange":"amq.topic","src-exchange-key":"mine.#","dest-queue":"q"`:      "",
		`"src-exchange":"amq.direct","src-exchange-key":"#","dest-queue":"q"`:          "",
		`"src-queue":"q","dest-exchange":"amq.topic","dest-exchange-key":"yours"`:      write,
		`"src-queue":"q","dest-exchange":"amq.topic","dest-exchange-key":"mine.one"`:   "",
		`"src-queue":"q","dest-exchange":"amq.fanout","dest-exchange-key":"yours"`:     "",
		`"src-queue":"q","dest-exchange":"amq.topic","dest-exchange-key":"a.b.c.mine"`: "write access to topic 'a.b.c.mine'",
	} {
		err := n.putAs("pm", `{"src-uri":"amqp://","dest-uri":"amqp://",`+value+`}`)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

// BR-3.5: a message with a key that the setter may not publish with stays in the source, and the shovel says why,
// however it acknowledges.
func TestAMessageWithAForbiddenKeyStays(t *testing.T) {
	for _, mode := range []string{"on-confirm", "on-publish", "no-ack"} {
		for name, second := range map[string]func(*node){
			"key": func(n *node) { n.send("amq.fanout", "yours", amqp091.PropertyList{}) },
			"CC": func(n *node) {
				n.send("amq.fanout", "mine.2", amqp091.PropertyList{Headers: amqp091.Table{{Key: "CC", Value: amqp091.Array{"yours"}}}})
			},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				n := start(t)
				n.policyMaker()
				n.bind("amq.topic", "to", "#")
				n.bind("amq.fanout", "from", "")
				n.send("amq.fanout", "mine.1", amqp091.PropertyList{})
				second(n)
				n.send("amq.fanout", "mine.3", amqp091.PropertyList{})
				if err := n.putAs("pm", `{"src-uri":"amqp://","src-queue":"from","dest-uri":"amqp://","dest-exchange":"amq.topic","reconnect-delay":0,"ack-mode":"`+mode+`"}`); err != nil {
					t.Fatal(err)
				}
				n.wait("the end", n.state("terminated"))
				if got, _ := n.shown()[0]["reason"].(string); !strings.Contains(got, "topic 'yours' in exchange 'amq.topic' in vhost '/' refused for user 'pm'") {
					t.Errorf("the reason is %q", got)
				}
				if from, to := n.ready("from"), n.ready("to"); from != 2 || to != 1 {
					t.Errorf("%d messages are in the source and %d in the target, want 2 and 1", from, to)
				}
				n.permitTopics(".*")
				if !n.shovels.Restart("/", "s") {
					t.Fatal("the shovel is gone")
				}
				n.wait("all messages", func() bool { return n.ready("to") == 3 && n.ready("from") == 0 })
			})
		}
	}
}

// BR-8.13: a shovel says of no message that another user than its setter has published it, unless the setter may say so.
func TestAShovelSpeaksInTheNameOfItsSetter(t *testing.T) {
	n := start(t)
	n.policyMaker()
	n.declare("q")
	for user, want := range map[string]bool{"pm": true, "guest": false} {
		err := n.putAs("pm", `{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"to","dest-publish-properties":{"user_id":"`+user+`"}}`)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "user_id property set to 'guest'") {
			t.Errorf("%s: %v, want %t", user, err, want)
		}
	}
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.PolicyMaker, auth.Impersonator}}); err != nil {
		t.Fatal(err)
	}
	if err := n.putAs("pm", `{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"to","dest-publish-properties":{"user_id":"guest"},"reconnect-delay":0}`); err != nil {
		t.Fatal(err)
	}
	n.wait("that it runs", n.state("running"))
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		t.Fatal(err)
	}
	n.wait("the end", n.state("terminated"))
}

// An idle shovel says at once that it may not read its keys any more.
func TestAnIdleShovelEndsWithItsTopicPermissions(t *testing.T) {
	n := start(t)
	n.policyMaker()
	if err := n.putAs("pm", `{"src-uri":"amqp://","src-exchange":"amq.topic","src-exchange-key":"mine.#","dest-uri":"amqp://","dest-queue":"to","reconnect-delay":0}`); err != nil {
		t.Fatal(err)
	}
	n.wait("that it runs", n.state("running"))
	n.permitTopics("^yours")
	n.wait("the end", n.state("terminated"))
}
