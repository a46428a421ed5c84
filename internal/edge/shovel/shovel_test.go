package shovel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a broker in memory with its shovels.
type node struct {
	*testing.T
	b       *broker.Broker
	shovels *shovel.Shovels
	link    *broker.Connection
}

func start(t *testing.T) *node {
	t.Helper()
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), NodeName: "rabbit@test"})
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
	return &node{t, b, s, b.AsOperator("test", "/")}
}

func (n *node) declare(name string, arguments ...amqp091.Field) {
	n.Helper()
	if _, err := n.link.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: arguments}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) publish(queue string, count int) {
	n.Helper()
	for i := range count {
		body := fmt.Appendf(nil, "%d", i)
		p := broker.Publication{Key: []byte(queue), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: new(uint8(2))}), Body: [][]byte{body}, Size: len(body)}
		var err error
		if p.Props, err = amqp091.ParseProps(p.Raw); err != nil {
			n.Fatal(err)
		}
		if _, err := n.link.PublishOne(&p); err != nil {
			n.Fatal(err)
		}
	}
}

func (n *node) put(name, value string) error {
	_, err := n.b.By("guest").As(&broker.Identity{Name: "guest"}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: name, Value: []byte(value)}})
	return err
}

func (n *node) mustPut(name, value string) {
	n.Helper()
	if err := n.put(name, value); err != nil {
		n.Fatal(err)
	}
}

// ready is how many messages are ready in a queue, -1 if there is none.
func (n *node) ready(queue string) int {
	q, err := n.link.PassiveQueue(message.QueueName(queue))
	if err != nil {
		return -1
	}
	return q.Messages
}

// shown are all shovels.
func (n *node) shown() []map[string]any {
	return n.shovels.Shown(func(message.VHost) bool { return true })
}

// wait waits until a condition holds.
func (n *node) wait(what string, holds func() bool) {
	n.Helper()
	for range 500 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.Fatalf("%s does not happen; shovels: %v", what, n.shown())
}

// "Move all to": a shovel that ends with the length its source had deletes itself.
func TestQueueLength(t *testing.T) {
	n := start(t)
	n.declare("a")
	n.publish("a", 1200)
	n.mustPut("move", `{"src-uri":"amqp:///%2F","src-queue":"a","dest-uri":"amqp:///%2F","dest-queue":"b","src-delete-after":"queue-length"}`)
	n.wait("the move", func() bool { return n.ready("b") == 1200 && n.ready("a") == 0 && len(n.shown()) == 0 })
	var found bool
	n.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		_, found = v.Parameter(shovel.Component, "move")
	})
	if found {
		t.Error("the parameter of a shovel that is done is still there")
	}
	first := true
	err := n.link.Peek("b", 1, func(m *broker.Shown) bool {
		if string(m.Body) != "0" || m.Key != "b" {
			t.Errorf("the first is %q with key %q", m.Body, m.Key)
		}
		first = false
		return true
	})
	if err != nil || first {
		t.Errorf("nothing to look at: %v", err)
	}
}

// A shovel that never ends follows its source, from an exchange too, and says what it has done.
func TestExchangeToExchange(t *testing.T) {
	n := start(t)
	n.declare("end")
	if _, err := n.link.Bind(topology.BindingDecl{Source: "amq.direct", DestinationKind: topology.QueueResource, Destination: "end", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	n.mustPut("s", `{"src-uri":"amqp://","src-exchange":"amq.fanout","dest-uri":"amqp://","dest-exchange":"amq.direct","dest-exchange-key":"k",
		"dest-add-forward-headers":true,"dest-publish-properties":{"delivery_mode":2,"app_id":"x"}}`)
	n.wait("the start", func() bool { l := n.shown(); return len(l) == 1 && l[0]["state"] == "running" })
	p := broker.Publication{Exchange: []byte("amq.fanout"), Key: []byte("any"), Raw: amqp091.AppendPropsFrom(nil, amqp091.PropertyList{})}
	if _, err := n.link.PublishOne(&p); err != nil {
		t.Fatal(err)
	}
	n.wait("the message", func() bool { return n.ready("end") == 1 })
	err := n.link.Peek("end", 1, func(m *broker.Shown) bool {
		l, err := amqp091.DecodeProps(m.Properties)
		if err != nil {
			t.Fatal(err)
		}
		by, _ := l.Headers.Get("x-shovelled")
		about := by.(amqp091.Array)[0].(amqp091.Table)
		if v, _ := about.Get("shovelled-by"); v != "here" {
			t.Errorf("shovelled by %v", v)
		}
		if l.AppID == nil || *l.AppID != "x" || *l.DeliveryMode != 2 {
			t.Errorf("properties %+v", l)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	n.wait("the count", func() bool { return n.shown()[0]["forwarded"] == int64(1) })
	if _, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "s"}); err != nil {
		t.Fatal(err)
	}
	n.wait("the end", func() bool { return len(n.shown()) == 0 })
}

// A message leaves its source only once its target has it: what a full target
// refuses stays.
func TestRefusedStays(t *testing.T) {
	n := start(t)
	n.declare("a")
	n.declare("full", amqp091.Field{Key: "x-max-length", Value: int64(2)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
	n.publish("a", 5)
	n.mustPut("s", `{"src-uri":"amqp://","src-queue":"a","dest-uri":"amqp://","dest-queue":"full"}`)
	n.wait("the target filling", func() bool { return n.ready("full") == 2 })
	n.wait("that it says so", func() bool {
		o := n.shown()[0]
		reason, _ := o["reason"].(string)
		return o["state"] == "running" && o["blocked_status"] == "flow" && strings.HasPrefix(reason, "the destination refused 3 messages at ")
	})
	if _, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "s"}); err != nil {
		t.Fatal(err)
	}
	n.wait("the rest coming back", func() bool { return n.ready("full") == 2 && n.ready("a") == 3 })
}

// What cannot be reached is tried again, and told.
func TestUnreachable(t *testing.T) {
	n := start(t)
	n.declare("a")
	n.mustPut("s", `{"src-uri":"amqp://127.0.0.1:1/","src-queue":"a","dest-uri":"amqp://","dest-queue":"b","reconnect-delay":1}`)
	n.wait("the failure", func() bool {
		l := n.shown()
		return len(l) == 1 && l[0]["state"] == "terminated" && strings.HasPrefix(l[0]["reason"].(string), "failed to connect to source")
	})
	o := n.shown()[0]
	if reason, _ := o["reason"].(string); !strings.HasSuffix(reason, "; tried again every 1s") && o["state"] == "terminated" {
		t.Errorf("the reason is %q, and does not say that it is tried again", reason)
	}
	if o["src_uri"] != "amqp://127.0.0.1:1/" || o["src_queue"] != "a" || o["dest_queue"] != "b" {
		t.Errorf("the ends are not shown: %v", o)
	}
	if !n.shovels.Restart("/", "s") || n.shovels.Restart("/", "none") {
		t.Error("Restart finds the wrong ones")
	}
}

// Definitions are refused in RabbitMQ's words.
func TestCheck(t *testing.T) {
	n := start(t)
	if _, err := n.b.By("").Do(declare.PutVHost{Name: "secret", Change: declare.All(topology.Metadata{})}); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{}`: "Must specify 'src-exchange' or 'src-queue'\nKey \"dest-uri\" not found in bad\nKey \"src-uri\" not found in bad\n",
		`{"src-uri":"amqp://","dest-uri":"amqp://","src-queue":"a","src-exchange":"b","dest-queue":"b"}`:      "Cannot specify 'src-exchange' and 'src-queue'\n",
		`{"src-uri":"amqp://","dest-uri":"http://u:p@x","src-queue":"a"}`:                                     "\"http://x\" not a valid URI: {{unexpected_uri_scheme,\"http\"},\"http://x\"}\n",
		`{"src-uri":"amqp://","dest-uri":"amqp://","src-queue":"a","bogus":1}`:                                "Unrecognised terms [{<<\"bogus\">>,1}] in bad\n",
		`{"src-uri":"amqp://","dest-uri":"amqp://","src-queue":"a","src-delete-after":-1}`:                    "src-delete-after should be a number greater than or equal to 0, \"never\" or \"queue-length\", actually was -1\n",
		`{"src-uri":"amqp://","dest-uri":"amqp://","src-queue":"a","ack-mode":"x"}`:                           "ack-mode should be one of [<<\"no-ack\">>,<<\"on-publish\">>,<<\"on-confirm\">>], actually was <<\"x\">>\n",
		`{"src-uri":"amqp://","dest-uri":"amqp://","src-queue":"a","ack-mode":"no-ack","src-delete-after":5}`: "Cannot specify 'no-ack' and numerical 'delete-after'\n",
		`{"src-uri":"amqp:///secret","dest-uri":"amqp://","src-queue":"a"}`:                                   "user may not connect to vhost \"secret\"\n",
	} {
		err := n.put("bad", value)
		if err == nil || err.Error() != "Validation failed\n\n"+want {
			t.Errorf("%s:\n got %v\nwant %q", value, err, want)
		}
	}
}

// A message cannot be published with a key of 300 bytes, whoever sets the shovel up.
func TestNamesOfShovelsAreChecked(t *testing.T) {
	n := start(t)
	long := strings.Repeat("k", 300)
	for _, more := range []string{
		`"dest-exchange":"amq.direct","dest-exchange-key":"` + long + `"`, `"dest-queue":"` + long + `"`, `"dest-exchange":"` + long + `"`,
		`"dest-queue":"b","dest-publish-properties":{"app_id":"` + long + `"}`,
	} {
		err := n.put("s", `{"src-uri":"amqp://","src-queue":"a","dest-uri":"amqp://",`+more+`}`)
		if err == nil || !strings.Contains(err.Error(), "should be at most 255 bytes, actually was 300") {
			t.Errorf("%s: got %v", more, err)
		}
	}
}

// What a subscription has got comes back when it ends, whatever was on its way to it: here what an
// acknowledgement has just made room for.
func TestCancelledSubscriptionHoldsNothing(t *testing.T) {
	n := start(t)
	for _, kind := range []string{"classic", "quorum"} {
		n.declare(kind, amqp091.Field{Key: "x-queue-type", Value: kind})
		n.publish(kind, 1000)
		for left := 1000; left > 500; {
			sub, err := n.link.Subscribe(message.QueueName(kind), "s", 20)
			if err != nil {
				t.Fatal(err)
			}
			taken, err := sub.Next(t.Context(), 20)
			if err != nil {
				t.Fatal(err)
			}
			sub.Ack(taken)
			left -= len(taken)
			sub.Cancel()
			if got := n.ready(kind); got != left {
				t.Fatalf("%s: %d of %d messages are ready when the subscription has ended", kind, got, left)
			}
		}
	}
}

// A subscription has ended with its caller's context, also while there is more and more to get.
func TestNextEndsWithItsContext(t *testing.T) {
	n := start(t)
	for _, kind := range []string{"classic", "quorum"} {
		n.declare(kind, amqp091.Field{Key: "x-queue-type", Value: kind})
		n.publish(kind, 10)
		sub, err := n.link.Subscribe(message.QueueName(kind), "s", 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got, err := sub.Next(ctx, 1)
		if len(got) != 1 || err != nil {
			t.Fatalf("%s: got %d messages, %v", kind, len(got), err)
		}
		cancel()
		if got, err := sub.Next(ctx, 1); len(got) > 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %d messages and %v of a context that has ended", kind, len(got), err)
		}
		sub.Cancel()
		if got := n.ready(kind); got != 10 {
			t.Errorf("%s: %d of 10 messages are ready when the subscription has ended", kind, got)
		}
	}
}

// A shovel that is deleted ends, though its source never gets empty, here since it feeds itself:
// two that move messages in a circle do too. Then nothing is unacknowledged any more (BR-4.5).
func TestDeletedShovelEndsWhateverItsSourceHas(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			n := start(t)
			n.declare("a", amqp091.Field{Key: "x-queue-type", Value: kind})
			n.publish("a", 20)
			n.mustPut("s", `{"src-uri":"amqp://","src-queue":"a","src-prefetch-count":10,"dest-uri":"amqp://","dest-queue":"a"}`)
			n.wait("that each was moved", func() bool {
				l := n.shown()
				if len(l) == 0 {
					return false
				}
				moved, _ := l[0]["forwarded"].(int64)
				return moved >= 20
			})
			if _, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "s"}); err != nil {
				t.Fatal(err)
			}
			defer func() { // else a shovel that goes on hangs the test
				if _, err := n.link.DeleteQueue("a", false, false); err != nil {
					t.Error(err)
				}
			}()
			n.wait("that the shovel has ended", func() bool {
				q, err := n.link.PassiveQueue("a")
				return err == nil && q.Consumers == 0 && q.Messages == 20
			})
		})
	}
}

// A shovel without acknowledgement takes from its source what it moves, and no more: the rest is
// there when it is stopped.
func TestNoAckTakesWhatItMoves(t *testing.T) {
	n := start(t)
	const all = 5000
	n.declare("from")
	n.declare("to")
	n.publish("from", all)
	n.mustPut("s", `{"src-uri":"amqp://","src-queue":"from","dest-uri":"amqp://","dest-queue":"to","ack-mode":"no-ack"}`)
	n.wait("the first message", func() bool { return n.ready("to") > 0 })
	if _, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "s"}); err != nil {
		t.Fatal(err)
	}
	n.wait("the end", func() bool {
		q, err := n.link.PassiveQueue("from")
		return err == nil && q.Consumers == 0
	})
	if left, moved := n.ready("from"), n.ready("to"); left+moved != all {
		t.Errorf("%d messages are left and %d moved, of %d", left, moved, all)
	}
}

// A shovel that enters this node without a password, or by one of a user who logs in from this
// machine only, does nothing that whoever sets it may not do.
func TestASetterNeedsThePermissionsOfTheShovel(t *testing.T) {
	n := start(t)
	n.declare("secret")
	none := auth.PasswordHash{}
	if _, err := n.b.By("").Do(declare.PutUser{Name: "pm", Password: none, Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "pm", VHost: "/", Configure: "^mine", Write: "^(mine|amq.default)", Read: "^mine"}}); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"", "127.0.0.1:1", "guest:guest@localhost:1", "guest@[::1]:1"} {
		for value, want := range map[string]string{
			`{"src-uri":"amqp://HOST","src-queue":"secret","src-predeclared":true,"dest-uri":"amqp://HOST","dest-queue":"mine"}`: "read access to queue 'secret' in vhost '/' refused for user 'pm'",
			`{"src-uri":"amqp://HOST","src-queue":"mine","dest-uri":"amqp://HOST","dest-queue":"secret"}`:                        "configure access to queue 'secret' in vhost '/' refused for user 'pm'",
			`{"src-uri":"amqp://HOST","src-queue":"mine","dest-uri":"amqp://HOST","dest-exchange":"amq.topic"}`:                  "write access to exchange 'amq.topic' in vhost '/' refused for user 'pm'",
			`{"src-uri":"amqp://HOST","src-exchange":"amq.topic","dest-uri":"amqp://HOST","dest-queue":"mine"}`:                  "read access to exchange 'amq.topic' in vhost '/' refused for user 'pm'",
			`{"src-uri":"amqp://HOST","src-queue":"mine","dest-uri":"amqp://HOST"}`:                                              "write access to every exchange in vhost '/' refused for user 'pm'",
			`{"src-uri":"amqp://HOST/other","src-queue":"mine","dest-uri":"amqp://HOST","dest-queue":"mine"}`:                    `user may not connect to vhost "other"`,
			`{"src-uri":"amqp://HOST","src-queue":"mine","dest-uri":"amqp://HOST","dest-queue":"mine2"}`:                         "",
		} {
			value = strings.ReplaceAll(value, "HOST", host)
			_, err := n.b.By("pm").As(&broker.Identity{Name: "pm"}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: "s", Value: []byte(value)}})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", value, err, want)
			}
		}
	}
}

// What a shovel shows of a connection that it does not get is the same whatever is wrong.
func TestReasonsTellNothingOfTheMachine(t *testing.T) {
	n := start(t)
	seen := map[any]bool{}
	for i, uri := range []string{"amqp://127.0.0.1:1/", "amqp://127.0.0.1:2/?x=y", "amqps://127.0.0.1:1/?cacertfile=/nowhere", "amqps://127.0.0.1:1/?cacertfile=/etc/hosts"} {
		name := fmt.Sprint("s", i)
		n.mustPut(name, `{"src-uri":"`+uri+`","src-queue":"a","dest-uri":"amqp://","dest-queue":"b","reconnect-delay":0}`)
		n.wait("the failure of "+name, func() bool {
			l := n.shown()
			if len(l) != i+1 || l[i]["state"] != "terminated" {
				return false
			}
			seen[l[i]["reason"]] = true
			return true
		})
	}
	if len(seen) != 1 {
		t.Errorf("the reasons are %v", seen)
	}
}

// A shovel on this node keeps what its target refuses, whatever the types of both.
func TestLocalTargetRefuses(t *testing.T) {
	for _, kinds := range [][2]string{{"classic", "classic"}, {"classic", "quorum"}, {"quorum", "classic"}, {"quorum", "quorum"}} {
		t.Run(kinds[0]+" to "+kinds[1], func(t *testing.T) {
			n := start(t)
			n.declare("a", amqp091.Field{Key: "x-queue-type", Value: kinds[0]})
			n.declare("b", amqp091.Field{Key: "x-queue-type", Value: kinds[1]}, amqp091.Field{Key: "x-max-length", Value: int64(5)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
			n.publish("a", 100)
			n.mustPut("move", `{"src-uri":"amqp:///%2F","src-queue":"a","dest-uri":"amqp:///%2F","dest-queue":"b"}`)
			n.wait("that the target is full", func() bool { return n.ready("b") >= 5 })
			if _, err := n.b.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "move"}); err != nil {
				t.Fatal(err)
			}
			n.wait("that the shovel has ended", func() bool { return len(n.shown()) == 0 })
			n.wait("that every message is in one of the queues", func() bool { return n.ready("a")+n.ready("b") == 100 })
		})
	}
}

// What a shovel has for a queue that was deleted waits for it to be declared anew: it is neither
// dropped nor acknowledged.
func TestADeletedTargetLosesNothing(t *testing.T) {
	n := start(t)
	n.declare("a")
	n.mustPut("s", `{"src-uri":"amqp://","src-queue":"a","dest-uri":"amqp://","dest-queue":"b","reconnect-delay":1}`)
	n.wait("that it runs", func() bool { l := n.shown(); return len(l) == 1 && l[0]["state"] == "running" })
	if _, err := n.link.DeleteQueue("b", false, false); err != nil {
		t.Fatal(err)
	}
	n.publish("a", 5)
	n.wait("that the messages have arrived", func() bool { return n.ready("b") == 5 })
}
