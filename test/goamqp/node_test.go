package goamqp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"bartleby.mq"
	"github.com/Azure/go-amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// node is a broker in memory, with a client of each version of AMQP.
type node struct {
	ctx     context.Context
	url     string
	session *amqp.Session
	ch      *amqp091.Channel
}

// another is the URL of another broker to be tested in the place of ours, such as a RabbitMQ to compare with.
var another = os.Getenv("GOAMQP_URL")

func startNode(t *testing.T) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	n := &node{ctx: ctx, url: another}
	if n.url == "" {
		b, err := bartleby.Start(context.Background(), bartleby.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Stop() })
		n.url = b.URL()
	}
	conn, err := amqp.Dial(ctx, n.url, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("guest", "guest"), HostName: "vhost:/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if n.session, err = conn.NewSession(ctx, nil); err != nil {
		t.Fatal(err)
	}
	old, err := amqp091.Dial(n.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	if n.ch, err = old.Channel(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) declare(t *testing.T, name string, arguments amqp091.Table) {
	t.Helper()
	if another != "" {
		if _, err := n.ch.QueueDelete(name, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.ch.QueueDeclare(name, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}
}

func (n *node) sender(t *testing.T, address string) *amqp.Sender {
	t.Helper()
	s, err := n.session.NewSender(n.ctx, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) receiver(t *testing.T, address string, o *amqp.ReceiverOptions) *amqp.Receiver {
	t.Helper()
	r, err := n.session.NewReceiver(n.ctx, address, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (n *node) receive(t *testing.T, r *amqp.Receiver) *amqp.Message {
	t.Helper()
	m, err := r.Receive(n.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var kinds = []string{"classic", "quorum"}

func TestPublishAndConsume(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := startNode(t)
			n.declare(t, "q", amqp091.Table{"x-queue-type": kind})
			s, r := n.sender(t, "/queues/q"), n.receiver(t, "/queues/q", nil)
			for i := range 300 {
				m := amqp.NewMessage(fmt.Append(nil, i))
				m.Properties = &amqp.MessageProperties{MessageID: uint64(i)}
				m.ApplicationProperties = map[string]any{"tenant": "acme"}
				if err := s.Send(n.ctx, m, nil); err != nil {
					t.Fatal(err)
				}
				got := n.receive(t, r)
				if string(got.GetData()) != fmt.Sprint(i) || got.Properties.MessageID != uint64(i) || got.ApplicationProperties["tenant"] != "acme" {
					t.Fatalf("%d: %q %+v", i, got.GetData(), got.Properties)
				}
				if err := r.AcceptMessage(n.ctx, got); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestALargeMessage(t *testing.T) {
	n := startNode(t)
	n.declare(t, "q", nil)
	body := make([]byte, 5<<20)
	for i := range body {
		body[i] = byte(i * 7)
	}
	if err := n.sender(t, "/queues/q").Send(n.ctx, amqp.NewMessage(body), nil); err != nil {
		t.Fatal(err)
	}
	if got := n.receive(t, n.receiver(t, "/queues/q", nil)); string(got.GetData()) != string(body) {
		t.Error("another message comes back")
	}
}

func TestOutcomes(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := startNode(t)
			n.declare(t, "dead", nil)
			n.declare(t, "q", amqp091.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
			s, r, dead := n.sender(t, "/queues/q"), n.receiver(t, "/queues/q", nil), n.receiver(t, "/queues/dead", nil)
			send := func(body string) *amqp.Message {
				t.Helper()
				if err := s.Send(n.ctx, amqp.NewMessage([]byte(body)), nil); err != nil {
					t.Fatal(err)
				}
				return n.receive(t, r)
			}
			again := func(m *amqp.Message, err error) *amqp.Message {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				got := n.receive(t, r)
				if string(got.GetData()) != string(m.GetData()) {
					t.Errorf("%q comes again, want %q", got.GetData(), m.GetData())
				}
				return got
			}
			m := send("released")
			m = again(m, r.ReleaseMessage(n.ctx, m))
			if err := r.AcceptMessage(n.ctx, m); err != nil {
				t.Fatal(err)
			}
			m = send("modified")
			m = again(m, r.ModifyMessage(n.ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
			if kind == "quorum" && m.Header.DeliveryCount != 1 {
				t.Errorf("delivery-count %d, want 1", m.Header.DeliveryCount)
			}
			if err := r.AcceptMessage(n.ctx, m); err != nil {
				t.Fatal(err)
			}
			for reason, settle := range map[string]func(*amqp.Message) error{
				"rejected": func(m *amqp.Message) error {
					return r.RejectMessage(n.ctx, m, &amqp.Error{Condition: "com.example.Bad", Description: "no amount"})
				},
				"undeliverable": func(m *amqp.Message) error {
					return r.ModifyMessage(n.ctx, m, &amqp.ModifyMessageOptions{UndeliverableHere: true})
				},
			} {
				if err := settle(send(reason)); err != nil {
					t.Fatal(err)
				}
				d := n.receive(t, dead)
				deaths, ok := d.Annotations["x-opt-deaths"].([]any)
				if string(d.GetData()) != reason || !ok && d.Annotations["x-opt-deaths"] == nil || d.Annotations["x-first-death-queue"] != "q" || d.Annotations["x-first-death-reason"] != "rejected" {
					t.Errorf("%s: %q with %v (%T)", reason, d.GetData(), d.Annotations, deaths)
				}
				if err := dead.AcceptMessage(n.ctx, d); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestOutcomesOfSends(t *testing.T) {
	n := startNode(t)
	n.declare(t, "full", amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	s := n.sender(t, "/queues/full")
	if err := s.Send(n.ctx, amqp.NewMessage([]byte("a")), nil); err != nil {
		t.Fatal(err)
	}
	err := s.Send(n.ctx, amqp.NewMessage([]byte("b")), nil)
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Condition != "amqp:resource-limit-exceeded" || refused.Info["queue"] != "full" {
		t.Errorf("a full queue: %v", err)
	}
	receipt, err := n.sender(t, "/exchanges/amq.fanout").SendWithReceipt(n.ctx, amqp.NewMessage([]byte("c")), nil)
	if err != nil {
		t.Fatal(err)
	}
	state, err := receipt.Wait(n.ctx)
	if _, released := state.(*amqp.StateReleased); !released {
		t.Errorf("no route: %T %v", state, err)
	}
	_, err = n.session.NewSender(n.ctx, "/queues/none", nil)
	if refused = nil; !errors.As(err, &refused) || refused.Condition != "amqp:not-found" {
		t.Errorf("no queue: %v", err)
	}
}

func TestAnonymousTarget(t *testing.T) {
	n := startNode(t)
	n.declare(t, "q", nil)
	s := n.sender(t, "")
	to := "/queues/q"
	m := amqp.NewMessage([]byte("a"))
	m.Properties = &amqp.MessageProperties{To: &to}
	if err := s.Send(n.ctx, m, nil); err != nil {
		t.Fatal(err)
	}
	if got := n.receive(t, n.receiver(t, "/queues/q", nil)); string(got.GetData()) != "a" || *got.Properties.To != to {
		t.Errorf("%q %+v", got.GetData(), got.Properties)
	}
}

func TestDrain(t *testing.T) {
	for _, kind := range kinds {
		n := startNode(t)
		n.declare(t, "q", amqp091.Table{"x-queue-type": kind})
		s, r := n.sender(t, "/queues/q"), n.receiver(t, "/queues/q", &amqp.ReceiverOptions{Credit: -1})
		for i := range 3 {
			if err := s.Send(n.ctx, amqp.NewMessage(fmt.Append(nil, i)), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.IssueCredit(10); err != nil {
			t.Fatal(err)
		}
		if m := n.receive(t, r); string(m.GetData()) != "0" { // go-amqp may send the drain before the credit
			t.Errorf("%s: %q comes first", kind, m.GetData())
		}
		if err := r.DrainCredit(n.ctx, nil); err != nil {
			t.Fatal(kind, err)
		}
		for i := 1; i < 3; i++ {
			if m := r.Prefetched(); m == nil || string(m.GetData()) != fmt.Sprint(i) {
				t.Errorf("%s: the drain has no %d", kind, i)
			}
		}
		if m := r.Prefetched(); m != nil {
			t.Errorf("%s: %q after the drain", kind, m.GetData())
		}
	}
}

// Messages of one version of AMQP come to clients of the other (DL-14.5).
func TestBothVersions(t *testing.T) {
	n := startNode(t)
	n.declare(t, "q", nil)
	r := n.receiver(t, "/queues/q", nil)
	err := n.ch.PublishWithContext(n.ctx, "", "q", false, false, amqp091.Publishing{
		Body: []byte("old"), Headers: amqp091.Table{"tenant": "acme", "x-kind": "test"}, ContentType: "text/plain", MessageId: "m1", ReplyTo: "answers", DeliveryMode: 2, Priority: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := n.receive(t, r)
	if string(m.GetData()) != "old" || m.ApplicationProperties["tenant"] != "acme" || m.Annotations["x-kind"] != "test" || *m.Properties.ContentType != "text/plain" ||
		m.Properties.MessageID != "m1" || *m.Properties.ReplyTo != "/queues/answers" || !m.Header.Durable || m.Header.Priority != 3 {
		t.Errorf("%q %+v %+v %v %v", m.GetData(), m.Header, m.Properties, m.ApplicationProperties, m.Annotations)
	}
	if err := r.AcceptMessage(n.ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(n.ctx); err != nil {
		t.Fatal(err)
	}
	replyTo := "/queues/answers"
	sent := &amqp.Message{
		Header: &amqp.MessageHeader{Durable: true, Priority: 5}, Annotations: amqp.Annotations{"x-kind": "test"},
		Properties:            &amqp.MessageProperties{MessageID: "m2", ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"tenant": "acme"}, Data: [][]byte{[]byte("new")},
	}
	if err := n.sender(t, "/queues/q").Send(n.ctx, sent, nil); err != nil {
		t.Fatal(err)
	}
	d, ok, err := n.ch.Get("q", true)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if string(d.Body) != "new" || d.Headers["tenant"] != "acme" || d.Headers["x-kind"] != "test" || d.MessageId != "m2" || d.ReplyTo != "answers" || d.DeliveryMode != 2 || d.Priority != 5 {
		t.Errorf("%+v", d)
	}
}

// A queue that is deleted detaches its receivers with a reason.
func TestADeletedQueue(t *testing.T) {
	n := startNode(t)
	n.declare(t, "q", nil)
	r := n.receiver(t, "/queues/q", nil)
	if _, err := n.ch.QueueDelete("q", false, false, false); err != nil {
		t.Fatal(err)
	}
	_, err := r.Receive(n.ctx, nil)
	var gone *amqp.LinkError
	if !errors.As(err, &gone) || gone.RemoteErr == nil || gone.RemoteErr.Condition != "amqp:resource-deleted" {
		t.Errorf("%v", err)
	}
}

// RabbitMQ's own clients declare by requests to the node /management: messages on a pair of links.
func TestManagement(t *testing.T) {
	n := startNode(t)
	paired := map[string]any{"paired": true}
	requests, err := n.session.NewSender(n.ctx, "/management", &amqp.SenderOptions{Name: "pair", SettlementMode: amqp.SenderSettleModeSettled.Ptr(), Properties: paired})
	if err != nil {
		t.Fatal(err)
	}
	answers, err := n.session.NewReceiver(n.ctx, "/management", &amqp.ReceiverOptions{Name: "pair", Credit: 100, Properties: paired})
	if err != nil {
		t.Fatal(err)
	}
	if another != "" {
		time.Sleep(time.Second) // RabbitMQ needs the credit before the request, and go-amqp does not say when that is there
	}
	me := "$me"
	ask := func(method, target string, body any, want string) any {
		t.Helper()
		if body == nil {
			body = amqp.Null{} // without a body RabbitMQ crashes
		}
		err := requests.Send(n.ctx, &amqp.Message{Properties: &amqp.MessageProperties{MessageID: target, To: &target, Subject: &method, ReplyTo: &me}, Value: body}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := n.receive(t, answers)
		if *m.Properties.Subject != want || m.Properties.CorrelationID != target {
			t.Errorf("%s %s: %s %v, want %s", method, target, *m.Properties.Subject, m.Value, want)
		}
		return m.Value
	}
	ask("DELETE", "/queues/managed", nil, "200")
	spec := map[string]any{"durable": true, "arguments": map[string]any{"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx"}}
	q, _ := ask("PUT", "/queues/managed", spec, "201").(map[string]any)
	if q["name"] != "managed" || q["type"] != "quorum" || q["durable"] != true || q["message_count"] != uint64(0) || q["consumer_count"] != uint32(0) {
		t.Errorf("%v", q)
	}
	ask("PUT", "/queues/managed", spec, "200")
	ask("PUT", "/queues/managed", map[string]any{"durable": true}, "409")
	ask("PUT", "/queues/amq.managed", map[string]any{}, "403")
	ask("PUT", "/queues/managed", map[string]any{"colour": "red"}, "400")
	ask("GET", "/queues/nowhere", nil, "404")
	ask("PUT", "/exchanges/managed", map[string]any{"type": "topic", "durable": true}, "204")
	ask("PUT", "/exchanges/managed", map[string]any{"type": "fanout"}, "409")
	ask("PUT", "/exchanges/strange", map[string]any{"type": "strange"}, "400")
	binding := map[string]any{"source": "managed", "destination_queue": "managed", "binding_key": "a/~ b", "arguments": map[string]any{"n": int64(1)}}
	ask("POST", "/bindings", binding, "204")
	binding["source"] = "nowhere"
	ask("POST", "/bindings", binding, "400")
	list, _ := ask("GET", "/bindings?src=managed&dstq=managed&key=a%2F~%20b", nil, "200").([]any)
	if len(list) != 1 {
		t.Fatalf("%v", list)
	}
	ask("DELETE", list[0].(map[string]any)["location"].(string), nil, "204")
	if list, _ = ask("GET", "/bindings?src=managed&dstq=managed&key=a%2F~%20b", nil, "200").([]any); len(list) != 0 {
		t.Errorf("%v", list)
	}
	ask("DELETE", "/queues/managed/messages", nil, "200")
	ask("DELETE", "/queues/nowhere/messages", nil, "404")
	ask("DELETE", "/queues/managed", nil, "200")
	ask("DELETE", "/exchanges/managed", nil, "204")
	ask("DELETE", "/exchanges/amq.direct", nil, "403")
}
