package server

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/run/broker"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/shovel"
)

// fill declares a durable queue and publishes numbered messages to it, confirmed.
func fill(t *testing.T, s *Server, queue string, from, to int) {
	t.Helper()
	c := dial(t, s, "guest:guest")
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var last *amqp.DeferredConfirmation
	for i := from; i < to; i++ {
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, CorrelationId: fmt.Sprint(i), Headers: amqp.Table{"n": int32(i)}, Body: fmt.Append(nil, i)}
		if last, err = ch.PublishWithDeferredConfirm("", queue, false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	if !last.Wait() {
		t.Fatal("not confirmed")
	}
}

// drain takes what is in a queue.
func drain(t *testing.T, s *Server, queue string) (bodies []string) {
	t.Helper()
	c := dial(t, s, "guest:guest")
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return bodies
		}
		if d.DeliveryMode != amqp.Persistent || d.CorrelationId != string(d.Body) || fmt.Sprint(d.Headers["n"]) != string(d.Body) {
			t.Errorf("a message came as %+v", d)
		}
		bodies = append(bodies, string(d.Body))
	}
}

// depth is how many messages a queue has ready, -1 if there is none.
func depth(s *Server, queue string) int {
	for _, q := range s.broker.CountQueues() {
		if string(q.Queue.Name) == queue {
			return int(q.Counts.Ready)
		}
	}
	return -1
}

func putShovel(t *testing.T, s *Server, name, definition string) {
	t.Helper()
	_, err := s.broker.By("guest").As(&broker.Identity{Name: "guest"}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: name, Value: []byte(definition)}})
	if err != nil {
		t.Fatal(err)
	}
}

func shovelsOf(s *Server) []map[string]any {
	return s.shovels.Shown(func(message.VHost) bool { return true })
}

// eventually waits until a condition holds.
func eventually(t *testing.T, s *Server, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not happen; shovels: %v", what, shovelsOf(s))
		}
	}
}

// Shovels take messages to another broker and fetch them back, whole and in order. What
// they move while that broker is away stays, and follows when it is there again.
func TestShovelsBetweenBrokers(t *testing.T) {
	here, _ := options(t.TempDir())
	there, _ := options(t.TempDir())
	a, b := mustStart(t, here), mustStart(t, there)
	defer func() { mustStop(t, a); mustStop(t, b) }()
	address := b.Addresses().AMQP[0].String()
	const n = 500
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	uri := "amqp://guest:guest@" + address + "/%2F"

	fill(t, a, "orders", 0, n)
	putShovel(t, a, "out", `{"src-uri":"amqp://","src-queue":"orders","dest-uri":"`+uri+`","dest-queue":"orders","src-delete-after":"queue-length"}`)
	eventually(t, a, "the way out", func() bool { return depth(b, "orders") == n && depth(a, "orders") == 0 && len(shovelsOf(a)) == 0 })
	putShovel(t, a, "in", `{"src-uri":"`+uri+`","src-queue":"orders","dest-uri":"amqp://","dest-queue":"back","src-delete-after":"queue-length"}`)
	eventually(t, a, "the way back", func() bool { return depth(a, "back") == n && depth(b, "orders") == 0 && len(shovelsOf(a)) == 0 })
	if got := drain(t, a, "back"); fmt.Sprint(got) != fmt.Sprint(all) {
		t.Errorf("there and back came %v", got)
	}

	fill(t, a, "steady", 0, n/2)
	putShovel(t, a, "steady", `{"src-uri":"amqp://","src-queue":"steady","dest-uri":"`+uri+`","dest-queue":"steady","reconnect-delay":1}`)
	eventually(t, a, "the first half", func() bool { return depth(b, "steady") == n/2 })
	mustStop(t, b)
	fill(t, a, "steady", n/2, n)
	there.AMQP = []string{address}
	b = mustStart(t, there)
	came := map[string]bool{}
	eventually(t, a, "the second half", func() bool { // some may come twice
		for _, body := range drain(t, b, "steady") {
			came[body] = true
		}
		return len(came) >= n && depth(a, "steady") == 0
	})
	if len(came) != n {
		t.Errorf("%d of %d came", len(came), n)
	}
}

// refusing has a shovel bring n messages from a quorum queue of another broker, declared with the argument given, to a queue that
// is full with the first, and returns both brokers and a channel on which to read that queue.
func refusing(t *testing.T, argument string, value any, n int) (a, b *Server, reader *amqp.Channel) {
	t.Helper()
	here, _ := options(t.TempDir())
	there, _ := options(t.TempDir())
	a, b = mustStart(t, here), mustStart(t, there)
	t.Cleanup(func() { mustStop(t, a); mustStop(t, b) })
	channel := func(s *Server) *amqp.Channel {
		c := dial(t, s, "guest:guest")
		t.Cleanup(func() { _ = c.Close() })
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		return ch
	}
	ch := channel(b)
	if _, err := ch.QueueDeclare("source", true, false, false, false, amqp.Table{"x-queue-type": "quorum", argument: value}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if sent, err := ch.PublishWithDeferredConfirm("", "source", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Append(nil, i)}); err != nil || !sent.Wait() {
			t.Fatal(err)
		}
	}
	putShovel(t, a, "in", `{"src-uri":"amqp://guest:guest@`+b.Addresses().AMQP[0].String()+`/%2F","src-queue":"source","reconnect-delay":1,
		"dest-uri":"amqp://","dest-queue":"full","dest-queue-args":{"x-max-length":1,"x-overflow":"reject-publish"}}`)
	eventually(t, a, "a refusal", func() bool { return depth(a, "full") == 1 && shovelsOf(a)[0]["blocked_status"] == "flow" })
	return a, b, channel(a)
}

// A quorum queue on another broker does not lose what a full destination refuses, however often: an attempt is no failure.
func TestAShovelKeepsWhatIsRefused(t *testing.T) {
	a, _, reader := refusing(t, "x-delivery-limit", int32(0), 3)
	for i := range 3 {
		eventually(t, a, "the next message", func() bool { return depth(a, "full") == 1 })
		if d, ok, err := reader.Get("full", true); err != nil || !ok || string(d.Body) != fmt.Sprint(i) {
			t.Fatalf("got %q, %v, %v, want %d", d.Body, ok, err, i)
		}
	}
}

// What a full destination refuses until the source's consumer timeout takes it back is not sent twice: the shovel begins anew
// with what the source has.
func TestAShovelSendsNothingThatWasTakenBack(t *testing.T) {
	const n = 4
	a, b, reader := refusing(t, "x-consumer-timeout", int32(1500), n)
	eventually(t, a, "the timeout", func() bool {
		reason, _ := shovelsOf(a)[0]["reason"].(string)
		return strings.Contains(reason, "taken back")
	})
	got := map[string]int{}
	eventually(t, a, "the end of the source", func() bool {
		if d, ok, err := reader.Get("full", true); err != nil {
			t.Fatal(err)
		} else if ok {
			got[string(d.Body)]++
		}
		return len(got) == n && depth(a, "full") == 0 && depth(b, "source") == 0
	})
	for body, times := range got {
		if times != 1 {
			t.Errorf("message %s came %d times", body, times)
		}
	}
}

// Who may not read a queue does not have a shovel fetch it as the user who logs in from this machine
// only, whatever the address calls this machine.
func TestAShovelIsNoWayInFromThisMachine(t *testing.T) {
	o, _ := options(t.TempDir())
	s := mustStart(t, o)
	defer mustStop(t, s)
	fill(t, s, "secret", 0, 3)
	if _, err := s.broker.By("").Do(declare.PutUser{Name: "pm", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.PolicyMaker}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.broker.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "pm", VHost: "/", Configure: "^mine", Write: "^(mine|amq.default)", Read: "^mine"}}); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(s.Addresses().AMQP[0].String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"guest:guest@localhost.", "localhost.", "guest:guest@", ""} {
		definition := `{"src-uri":"amqp://` + host + ":" + port + `/%2F","src-queue":"secret","src-predeclared":true,"dest-uri":"amqp://","dest-queue":"mine","reconnect-delay":0}`
		_, err := s.broker.By("pm").As(&broker.Identity{Name: "pm"}).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: shovel.Component, Name: "s", Value: []byte(definition)}})
		if err != nil {
			continue // as good
		}
		eventually(t, s, "an end", func() bool {
			l := shovelsOf(s)
			return len(l) == 1 && l[0]["state"] == "terminated" || depth(s, "secret") == 0
		})
		if got := depth(s, "secret"); got != 3 {
			t.Fatalf("%q: %d of 3 messages are left", host, got)
		}
		if _, err := s.broker.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "s"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, s, "the end of the shovel", func() bool { return len(shovelsOf(s)) == 0 })
	}
}

// What a shovel has for a queue elsewhere that is deleted meanwhile is not lost: it follows when the
// queue is declared anew.
func TestADeletedQueueElsewhereLosesNothing(t *testing.T) {
	for _, mode := range []string{"on-confirm", "on-publish"} {
		t.Run(mode, func(t *testing.T) {
			here, _ := options(t.TempDir())
			there, _ := options(t.TempDir())
			a, b := mustStart(t, here), mustStart(t, there)
			defer func() { mustStop(t, a); mustStop(t, b) }()
			uri := "amqp://guest:guest@" + b.Addresses().AMQP[0].String() + "/%2F"
			fill(t, a, "orders", 0, 1)
			putShovel(t, a, "out", `{"src-uri":"amqp://","src-queue":"orders","dest-uri":"`+uri+`","dest-queue":"orders","reconnect-delay":1,"ack-mode":"`+mode+`"}`)
			eventually(t, a, "the first message", func() bool { return depth(b, "orders") == 1 })
			if _, err := b.broker.AsOperator("test", "/").DeleteQueue("orders", false, false); err != nil {
				t.Fatal(err)
			}
			const n = 300
			for i := range n { // one by one, so that a shovel that waits for no answer hears of it
				fill(t, a, "orders", i, i+1)
			}
			eventually(t, a, "the queue anew", func() bool {
				came := depth(b, "orders")
				return came == n || came > 0 && mode == "on-publish" // some of these may have been on their way
			})
		})
	}
}

// Messages that are larger together than what a shovel holds of a source elsewhere come all, and go all back
// where they are refused.
func TestAShovelFetchesMoreThanItHolds(t *testing.T) {
	here, _ := options(t.TempDir())
	there, _ := options(t.TempDir())
	a, b := mustStart(t, here), mustStart(t, there)
	defer func() { mustStop(t, a); mustStop(t, b) }()
	const n = 90
	c := dial(t, b, "guest:guest")
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("large", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 1<<20)
	for range n {
		if err := ch.Publish("", "large", false, false, amqp.Publishing{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, a, "the messages", func() bool { return depth(b, "large") == n })
	uri := "amqp://guest:guest@" + b.Addresses().AMQP[0].String() + "/%2F"
	putShovel(t, a, "in", `{"src-uri":"`+uri+`","src-queue":"large","dest-uri":"amqp://","dest-queue":"full","dest-queue-args":{"x-max-length":1,"x-overflow":"reject-publish"}}`)
	eventually(t, a, "a refusal", func() bool {
		l := shovelsOf(a)
		if len(l) != 1 {
			return false
		}
		reason, _ := l[0]["reason"].(string)
		return l[0]["state"] == "running" && strings.HasPrefix(reason, "the destination refused")
	})
	if _, err := a.broker.By("").Do(declare.DeleteParameter{VHost: "/", Component: shovel.Component, Name: "in"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, a, "what is refused in its place", func() bool { return depth(b, "large") == n-depth(a, "full") })
	putShovel(t, a, "in", `{"src-uri":"`+uri+`","src-queue":"large","dest-uri":"amqp://","dest-queue":"all"}`)
	eventually(t, a, "all", func() bool { return depth(a, "all")+depth(a, "full") == n && depth(b, "large") == 0 })
}
