package session091_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// apsara are the options of a node whose virtual hosts have ApsaraMQ's profile, with its settings changed by f.
func apsara(f func(*broker.ApsaraMQ)) broker.Options {
	o := broker.Options{ApsaraMQ: broker.DefaultApsaraMQ(), Topology: topology.Options{DefaultProfile: deadletter.ApsaraMQ}}
	if f != nil {
		f(&o.ApsaraMQ)
	}
	return o
}

// client is a channel with what these tests do all the time.
type client struct {
	*amqp.Channel
	t testing.TB
}

func (s *server) client(t testing.TB) *client { return &client{s.channel(t), t} }

func (c *client) declare(queue string, args amqp.Table) {
	c.t.Helper()
	must[amqp.Queue](c.t)(c.QueueDeclare(queue, true, false, false, false, args))
}

func (c *client) publish(exchange, key string, p amqp.Publishing) {
	c.t.Helper()
	if err := c.PublishWithContext(context.Background(), exchange, key, false, false, p); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) consume(queue string) <-chan amqp.Delivery {
	c.t.Helper()
	return must[<-chan amqp.Delivery](c.t)(c.Consume(queue, "", false, false, false, false, nil))
}

// next is the next delivery, which must come soon.
func (c *client) next(from <-chan amqp.Delivery) amqp.Delivery {
	c.t.Helper()
	select {
	case d, ok := <-from:
		if !ok {
			c.t.Fatal("the channel was closed")
		}
		return d
	case <-time.After(10 * time.Second):
		c.t.Fatal("nothing was delivered")
	}
	return amqp.Delivery{}
}

// await gets a message from a queue as soon as there is one.
func (c *client) await(queue string) amqp.Delivery {
	c.t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
		if d, ok, err := c.Get(queue, true); err != nil {
			c.t.Fatal(err)
		} else if ok {
			return d
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("nothing came to %s", queue)
	return amqp.Delivery{}
}

// length is how many messages are ready.
func (c *client) length(queue string) int {
	c.t.Helper()
	return must[amqp.Queue](c.t)(c.QueueDeclarePassive(queue, true, false, false, false, nil)).Messages
}

// refused is what an operation on a channel of its own is refused with.
func refused(t *testing.T, s *server, f func(ch *amqp.Channel) error) *amqp.Error {
	t.Helper()
	ch := s.channel(t)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	err := f(ch)
	if err == nil {
		select {
		case e := <-closed:
			return e
		case <-time.After(10 * time.Second):
			t.Fatal("it was not refused")
		}
	}
	var e *amqp.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e
}

func deadLettersTo(queue string, more ...any) amqp.Table {
	args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return args
}

var bothTypes = []string{"classic", "quorum"}

// 16 redeliveries, death at the 17th failure, by whatever return, on every type of queue; with basic.get no return counts.
func TestDL_22_1_ConsumptionLimit(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, apsara(nil))
			c := s.client(t)
			c.declare("dlq", nil)
			c.declare("q", deadLettersTo("dlq", "x-queue-type", kind))
			c.publish("", "q", amqp.Publishing{Body: []byte("m")})
			for range 20 {
				d := c.awaitUnsettled("q")
				if err := d.Nack(false, true); err != nil {
					t.Fatal(err)
				}
			}
			consumer := s.client(t)
			deliveries := consumer.consume("q")
			for n := range 17 {
				d := consumer.next(deliveries)
				if !d.Redelivered {
					t.Errorf("delivery %d is not redelivered", n)
				}
				var err error
				switch n % 3 {
				case 0:
					err = d.Nack(false, true)
				case 1:
					err = d.Reject(true)
				case 2:
					err = consumer.Close()
					consumer = s.client(t)
					deliveries = consumer.consume("q")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			d := c.await("dlq")
			if d.Headers["x-first-death-reason"] != "consumption_limit_exceeded" || d.Redelivered {
				t.Errorf("dead letter redelivered=%v %v", d.Redelivered, d.Headers)
			}
			if n := c.length("q"); n != 0 {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

func (c *client) awaitUnsettled(queue string) amqp.Delivery {
	c.t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
		if d, ok, err := c.Get(queue, false); err != nil {
			c.t.Fatal(err)
		} else if ok {
			return d
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("nothing came to %s", queue)
	return amqp.Delivery{}
}

// There is no length trigger: the arguments are taken and mean nothing.
func TestDL_22_1_NoLengthTrigger(t *testing.T) {
	c := serve(t, apsara(nil)).client(t)
	c.declare("q", amqp.Table{"x-max-length": 1, "x-max-length-bytes": 1, "x-overflow": "reject-publish"})
	for range 5 {
		c.publish("", "q", amqp.Publishing{Body: []byte("body")})
	}
	if n := c.length("q"); n != 5 {
		t.Errorf("%d messages, want 5", n)
	}
}

// What was counted of a persistent message in a durable queue is there after a restart, which is a failure itself
// for what was out.
func TestDL_22_1_CountsSurviveRestart(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			o := apsara(func(a *broker.ApsaraMQ) { a.MaxRedeliveries = 3 })
			o.FS = vfs.NewMem()
			s := serve(t, o)
			c := s.client(t)
			c.declare("dlq", nil)
			c.declare("q", deadLettersTo("dlq", "x-queue-type", kind))
			c.publish("", "q", amqp.Publishing{Body: []byte("m"), DeliveryMode: amqp.Persistent})
			deliveries := c.consume("q")
			for range 2 {
				if err := c.next(deliveries).Nack(false, true); err != nil {
					t.Fatal(err)
				}
			}
			c.next(deliveries)
			s.stop()
			s = serve(t, o)
			c = s.client(t)
			if err := c.next(c.consume("q")).Nack(false, true); err != nil {
				t.Fatal(err)
			}
			if d := c.await("dlq"); d.Headers["x-death-total"] != int64(1) {
				t.Errorf("headers %v", d.Headers)
			}
		})
	}
}

// What is not settled in time is ready again, counts as failed, and goes to whoever can take it; the consumer is not
// cancelled, and clients cannot ask for another time.
func TestDL_22_2_ConsumerTimeout(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ConsumerTimeout, a.MaxRedeliveries = 30*time.Millisecond, 2 }))
			c := s.client(t)
			c.declare("dlq", nil)
			args := deadLettersTo("dlq", "x-queue-type", kind)
			if kind == "quorum" {
				args["x-consumer-timeout"] = 3_600_000
			}
			c.declare("q", args)
			c.publish("", "q", amqp.Publishing{Body: []byte("m")})
			cancelled := c.NotifyCancel(make(chan string, 1))
			deliveries := c.consume("q")
			var last amqp.Delivery
			for n := range 3 {
				if last = c.next(deliveries); last.Redelivered != (n > 0) {
					t.Errorf("delivery %d: redelivered is %v", n, last.Redelivered)
				}
			}
			if d := c.await("dlq"); d.Headers["x-first-death-reason"] != "consumption_limit_exceeded" {
				t.Errorf("headers %v", d.Headers)
			}
			// Too late, but no mistake; the consumer goes on.
			if err := last.Ack(false); err != nil {
				t.Fatal(err)
			}
			c.publish("", "q", amqp.Publishing{Body: []byte("next")})
			if d := c.next(deliveries); string(d.Body) != "next" {
				t.Errorf("got %q", d.Body)
			}
			select {
			case tag := <-cancelled:
				t.Errorf("consumer %s was cancelled", tag)
			default:
			}
		})
	}
}

// Without a dead-letter exchange the message is discarded after the last attempt.
func TestDL_22_3_Discard(t *testing.T) {
	c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.MaxRedeliveries = 1 })).client(t)
	c.declare("q", nil)
	c.publish("", "q", amqp.Publishing{Body: []byte("m")})
	deliveries := c.consume("q")
	for range 2 {
		if err := c.next(deliveries).Reject(true); err != nil {
			t.Fatal(err)
		}
	}
	c.publish("", "q", amqp.Publishing{Body: []byte("next")})
	if d := c.next(deliveries); string(d.Body) != "next" {
		t.Errorf("got %q", d.Body)
	}
}

// The dead-letter exchange of a queue cannot be changed by declaring it again.
func TestDL_22_4_Redeclare(t *testing.T) {
	s := serve(t, apsara(nil))
	s.client(t).declare("q", deadLettersTo("a"))
	e := refused(t, s, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("q", true, false, false, false, deadLettersTo("b"))
		return err
	})
	if e.Code != 406 || !strings.Contains(e.Reason, "inequivalent arg 'x-dead-letter-routing-key'") {
		t.Errorf("refused with %d %s", e.Code, e.Reason)
	}
}

// Without a dead-letter routing key the message's own is used.
func TestDL_22_5_OriginalKey(t *testing.T) {
	c := serve(t, apsara(nil)).client(t)
	if err := c.ExchangeDeclare("dlx", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	c.declare("dlq", nil)
	if err := c.QueueBind("dlq", "orders.*", "dlx", false, nil); err != nil {
		t.Fatal(err)
	}
	c.declare("q", amqp.Table{"x-dead-letter-exchange": "dlx"})
	if err := c.QueueBind("q", "orders.eu", "amq.direct", false, nil); err != nil {
		t.Fatal(err)
	}
	c.publish("amq.direct", "orders.eu", amqp.Publishing{Body: []byte("m")})
	if err := c.next(c.consume("q")).Reject(false); err != nil {
		t.Fatal(err)
	}
	if d := c.await("dlq"); d.RoutingKey != "orders.eu" {
		t.Errorf("routing key %q", d.RoutingKey)
	}
}

// The headers are the three of the first death, x-death-total of type l, and x-death.
func TestDL_22_6_Headers(t *testing.T) {
	c := serve(t, apsara(nil)).client(t)
	c.declare("third", nil)
	c.declare("second", deadLettersTo("third"))
	c.declare("first", deadLettersTo("second"))
	c.publish("", "first", amqp.Publishing{Body: []byte("m"), Headers: amqp.Table{"own": "kept", "x-death-total": "forged"}})
	for _, queue := range []string{"first", "second"} {
		if err := c.next(c.consume(queue)).Nack(false, false); err != nil {
			t.Fatal(err)
		}
	}
	d := c.await("third")
	names := slices.Sorted(maps.Keys(d.Headers))
	want := []string{"own", "x-death", "x-death-total", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if d.Headers["x-death-total"] != int64(2) || d.Headers["x-first-death-queue"] != "first" || d.Headers["x-first-death-exchange"] != "" {
		t.Errorf("headers %v", d.Headers)
	}
	if list, ok := d.Headers["x-death"].([]any); !ok || len(list) != 2 {
		t.Errorf("x-death is %v", d.Headers["x-death"])
	}
}

// The reasons are expired, nack, reject, and one for too many failures that is a setting.
func TestDL_22_7_Reasons(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.LimitReason, a.MaxRedeliveries = "too_often", 0 })).client(t)
			c.declare("dlq", nil)
			c.declare("q", deadLettersTo("dlq", "x-queue-type", kind))
			deliveries := c.consume("q")
			for _, end := range []struct {
				reason string
				f      func(d amqp.Delivery) error
			}{
				{"nack", func(d amqp.Delivery) error { return d.Nack(false, false) }},
				{"reject", func(d amqp.Delivery) error { return d.Reject(false) }},
				{"too_often", func(d amqp.Delivery) error { return d.Nack(false, true) }},
			} {
				c.publish("", "q", amqp.Publishing{Body: []byte("m")})
				if err := end.f(c.next(deliveries)); err != nil {
					t.Fatal(err)
				}
				c.wantReason("dlq", end.reason)
			}
			c.declare("ttl", deadLettersTo("dlq", "x-queue-type", kind, "x-message-ttl", 1))
			c.publish("", "ttl", amqp.Publishing{Body: []byte("m")})
			c.wantReason("dlq", "expired")
		})
	}
}

func (c *client) wantReason(queue, want string) {
	c.t.Helper()
	d := c.await(queue)
	list, _ := d.Headers["x-death"].([]any)
	if len(list) != 1 || list[0].(amqp.Table)["reason"] != want || d.Headers["x-first-death-reason"] != want {
		c.t.Errorf("headers %v, want reason %s", d.Headers, want)
	}
}

// Dead letters have no TTL in the queue they come to, unless that is switched on; messages published there have.
func TestDL_22_8_TTLOfDeadLetters(t *testing.T) {
	for _, on := range []bool{false, true} {
		for _, kind := range bothTypes {
			t.Run(fmt.Sprintf("%s dlq_ttl=%v", kind, on), func(t *testing.T) {
				c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ExpireDead = on })).client(t)
				c.declare("end", nil)
				c.declare("dlq", deadLettersTo("end", "x-queue-type", kind, "x-message-ttl", 5))
				c.declare("q", deadLettersTo("dlq", "x-message-ttl", 1))
				c.publish("", "q", amqp.Publishing{Body: []byte("dead"), Expiration: "3"})
				if on {
					if d := c.await("end"); string(d.Body) != "dead" || d.Headers["x-death-total"] != int64(2) {
						t.Errorf("%q came, %v", d.Body, d.Headers)
					}
					return
				}
				c.awaitLength("dlq", 1)
				c.publish("", "dlq", amqp.Publishing{Body: []byte("fresh")})
				if d := c.await("end"); string(d.Body) != "fresh" {
					t.Errorf("%q came, want the one that was published there", d.Body)
				}
				if n := c.length("dlq"); n != 1 {
					t.Errorf("%d dead letters rest, want 1", n)
				}
			})
		}
	}
}

func (c *client) awaitLength(queue string, want int) {
	c.t.Helper()
	for until := time.Now().Add(10 * time.Second); c.length(queue) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			c.t.Fatalf("%s has %d messages, want %d", queue, c.length(queue), want)
		}
	}
}

// A target that closes a loop without a rejection takes the message, which rests there; what a rejection lies
// between goes on.
func TestDL_22_9_LoopsRest(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ExpireDead = true })).client(t)
			c.declare("a", deadLettersTo("b", "x-queue-type", kind, "x-message-ttl", 5))
			c.declare("b", deadLettersTo("a", "x-queue-type", kind, "x-message-ttl", 5))
			c.publish("", "a", amqp.Publishing{Body: []byte("m")})
			// a, b, and a again, where it rests: nothing is dropped.
			for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				d, ok, err := c.Get("a", false)
				if err != nil || time.Now().After(until) {
					t.Fatal("it did not come to rest", err)
				}
				if !ok {
					continue
				}
				if d.Headers["x-death-total"] == int64(2) {
					// A rejection ends the rest: it may go round once more.
					if err := d.Reject(false); err != nil {
						t.Fatal(err)
					}
					break
				}
				if err := d.Nack(false, true); err != nil {
					t.Fatal(err)
				}
			}
			for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				d, ok, err := c.Get("a", true)
				if err != nil || time.Now().After(until) {
					t.Fatal("it did not come back", err)
				}
				if ok {
					if d.Headers["x-death-total"] != int64(4) {
						t.Errorf("headers %v", d.Headers)
					}
					break
				}
				// It is here for 5 ms only: who is late finds it at rest in b.
				d, ok, err = c.Get("b", false)
				if err != nil {
					t.Fatal(err)
				}
				if ok && d.Headers["x-death-total"] == int64(5) {
					break
				}
				if ok {
					if err := d.Nack(false, true); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// After so many moves as a dead letter a message has no TTL any more, and rests.
func TestDL_22_10_HopLimit(t *testing.T) {
	const hops = 3
	c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ExpireDead, a.MaxHops = true, hops })).client(t)
	for i := range 6 {
		c.declare(fmt.Sprintf("q%d", i), deadLettersTo(fmt.Sprintf("q%d", i+1), "x-message-ttl", 2))
	}
	c.publish("", "q0", amqp.Publishing{Body: []byte("m")})
	if d := c.await("q3"); d.Headers["x-death-total"] != int64(hops) {
		t.Errorf("headers %v", d.Headers)
	}
	c.publish("", "q1", amqp.Publishing{Body: []byte("other")})
	if d := c.await("q4"); string(d.Body) != "other" {
		t.Errorf("%q came", d.Body)
	}
}

// The smaller TTL counts, and with a delay it begins when that is over.
func TestDL_22_11_TTL(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			c := serve(t, apsara(nil)).client(t)
			c.declare("dlq", nil)
			c.declare("q", deadLettersTo("dlq", "x-queue-type", kind, "x-message-ttl", 40))
			began := time.Now()
			c.publish("", "q", amqp.Publishing{Body: []byte("late"), Headers: amqp.Table{"delay": int32(60)}})
			c.publish("", "q", amqp.Publishing{Body: []byte("slow")})
			c.publish("", "q", amqp.Publishing{Body: []byte("quick"), Expiration: "1"})
			for _, want := range []string{"quick", "slow", "late"} {
				if d := c.await("dlq"); string(d.Body) != want {
					t.Errorf("%q died, want %q", d.Body, want)
				}
			}
			if took := time.Since(began); took < 100*time.Millisecond {
				t.Errorf("the delayed one died after %v, want 60 and 40 ms", took)
			}
		})
	}
}

// A message with the header delay comes so many milliseconds later, whatever else waits, and is no redelivery.
func TestDL_22_12_Delay(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.MaxDelay = time.Minute })).client(t)
			c.declare("q", amqp.Table{"x-queue-type": kind})
			if err := c.QueueBind("q", "k", "amq.topic", false, nil); err != nil {
				t.Fatal(err)
			}
			deliveries := c.consume("q")
			began := time.Now()
			for _, m := range []struct {
				body  string
				delay any
			}{
				{"1500", int64(1500)}, {"300", "300"}, {"0", int32(0)},
				{"too long", int64(60_001)}, {"negative", int64(-5)}, {"no number", "soon"},
			} {
				c.publish("amq.topic", "k", amqp.Publishing{Body: []byte(m.body), Headers: amqp.Table{"delay": m.delay}})
			}
			var got []string
			for range 6 {
				d := c.next(deliveries)
				if d.Redelivered {
					t.Errorf("%q is a redelivery", d.Body)
				}
				if _, counted := d.Headers["x-delivery-count"]; counted {
					t.Errorf("%q has headers %v", d.Body, d.Headers)
				}
				var ms int
				if _, err := fmt.Sscan(string(d.Body), &ms); err == nil && time.Since(began) < time.Duration(ms)*time.Millisecond {
					t.Errorf("%q came after %v", d.Body, time.Since(began))
				}
				got = append(got, string(d.Body))
				if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([]string{"0", "too long", "negative", "no number", "300", "1500"}, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// A delayed message that is persistent still waits after a restart, and is still no redelivery.
func TestDL_22_12_DelaySurvivesRestart(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			o := apsara(nil)
			o.FS = vfs.NewMem()
			s := serve(t, o)
			c := s.client(t)
			c.declare("q", amqp.Table{"x-queue-type": kind})
			if err := c.Confirm(false); err != nil {
				t.Fatal(err)
			}
			due := time.Now().Add(300 * time.Millisecond)
			confirm := must[*amqp.DeferredConfirmation](t)(c.PublishWithDeferredConfirm("", "q", false, false,
				amqp.Publishing{Body: []byte("m"), DeliveryMode: amqp.Persistent, Headers: amqp.Table{"delay": int64(300)}}))
			if !confirm.Wait() {
				t.Fatal("not confirmed")
			}
			s.stop()
			s = serve(t, o)
			c = s.client(t)
			d := c.next(c.consume("q"))
			if time.Now().Before(due) || d.Redelivered {
				t.Errorf("redelivered=%v, %v too early", d.Redelivered, time.Until(due))
			}
		})
	}
}

// Names that the documents do not allow are refused.
func TestDL_22_13_Names(t *testing.T) {
	s := serve(t, apsara(nil))
	s.client(t).declare("A-z_0.9#/@", nil)
	for _, op := range []struct {
		what string
		code int
		f    func(ch *amqp.Channel) error
	}{
		{"queue", 406, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("with space", true, false, false, false, nil)
			return err
		}},
		{"exchange", 406, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("größe", "direct", true, false, false, false, nil)
		}},
		{"key", 406, func(ch *amqp.Channel) error { return ch.QueueBind("A-z_0.9#/@", "a key", "amq.direct", false, nil) }},
		{"reserved exchange", 403, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("amq.test", "direct", true, false, false, false, nil)
		}},
		{"reserved queue", 403, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("amq.test", true, false, false, false, nil)
			return err
		}},
	} {
		if e := refused(t, s, op.f); e.Code != op.code {
			t.Errorf("%s: refused with %d %s, want %d", op.what, e.Code, e.Reason, op.code)
		}
	}
}

// The methods of the class tx are answered and do nothing: what is published is there at once, and stays.
func TestDL_22_14_NoTransactions(t *testing.T) {
	c := serve(t, apsara(nil)).client(t)
	c.declare("q", nil)
	if err := c.Tx(); err != nil {
		t.Fatal(err)
	}
	c.publish("", "q", amqp.Publishing{Body: []byte("m")})
	if n := c.length("q"); n != 1 {
		t.Errorf("%d messages before commit, want 1", n)
	}
	if err := errors.Join(c.TxRollback(), c.TxCommit()); err != nil {
		t.Fatal(err)
	}
	if n := c.length("q"); n != 1 {
		t.Errorf("%d messages after rollback, want 1", n)
	}
}

// A message is kept for so long and no longer: then it is gone, dead-letter exchange or not.
func TestDL_22_14_Retention(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			c := serve(t, apsara(func(a *broker.ApsaraMQ) { a.MaxRetention = 60 * time.Millisecond })).client(t)
			c.declare("dlq", nil)
			c.declare("q", deadLettersTo("dlq", "x-queue-type", kind))
			c.publish("", "q", amqp.Publishing{Body: []byte("kept")})
			c.publish("", "q", amqp.Publishing{Body: []byte("expires"), Expiration: "5"})
			if d := c.await("dlq"); string(d.Body) != "expires" {
				t.Errorf("%q died", d.Body)
			}
			c.awaitLength("q", 0)
			if n := c.length("dlq"); n != 0 {
				t.Errorf("%d messages died, want none", n)
			}
		})
	}
}

// A message larger than the limit is refused.
func TestDL_22_14_MessageSize(t *testing.T) {
	s := serve(t, apsara(func(a *broker.ApsaraMQ) { a.MaxMessageSize = 10 }))
	e := refused(t, s, func(ch *amqp.Channel) error {
		return ch.PublishWithContext(context.Background(), "", "q", false, false, amqp.Publishing{Body: make([]byte, 11)})
	})
	if e.Code != 406 || !strings.Contains(e.Reason, "message size 11 is larger than configured max size 10") {
		t.Errorf("refused with %d %s", e.Code, e.Reason)
	}
}

// Priorities mean nothing unless they are switched on; then they are 1 to 10.
func TestDL_22_14_Priorities(t *testing.T) {
	for _, on := range []bool{false, true} {
		for _, kind := range bothTypes {
			t.Run(fmt.Sprintf("%s %v", kind, on), func(t *testing.T) {
				s := serve(t, apsara(func(a *broker.ApsaraMQ) { a.Priorities = on }))
				c := s.client(t)
				args := amqp.Table{"x-queue-type": kind}
				if kind == "classic" {
					args["x-max-priority"] = 10
				}
				c.declare("q", args)
				c.publish("", "q", amqp.Publishing{Body: []byte("low"), Priority: 1})
				c.publish("", "q", amqp.Publishing{Body: []byte("high"), Priority: 9})
				want := "low"
				if on {
					want = "high"
				}
				if d := c.await("q"); string(d.Body) != want {
					t.Errorf("%q comes first, want %q", d.Body, want)
				}
				if d := c.await("q"); d.Priority == 0 {
					t.Error("the property is gone")
				}
				if kind == "classic" && on {
					e := refused(t, s, func(ch *amqp.Channel) error {
						_, err := ch.QueueDeclare("p", true, false, false, false, amqp.Table{"x-max-priority": 11})
						return err
					})
					if e.Code != 406 {
						t.Errorf("refused with %d %s", e.Code, e.Reason)
					}
				}
			})
		}
	}
}

// With apsaramq.error_style errors have the codes and texts of the documents.
func TestDL_22_15_ErrorStyle(t *testing.T) {
	s := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ErrorStyle, a.ErrorHelp, a.MaxMessageSize = true, "http://help", 10 }))
	c := s.client(t)
	c.declare("q", nil)
	if err := c.ExchangeDeclare("x", "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	must[amqp.Queue](t)(c.QueueDeclare("mine", false, false, true, false, nil))
	const tail = `, ReqId:[0-9A-F]{24}, ErrorHelp\[dstQueue=%s,srcExchange=%s,routingKey=%s,http://help\]$`
	text := func(name, queue, exchange, key string) string {
		return "^" + name + fmt.Sprintf(tail, queue, exchange, key)
	}
	for _, op := range []struct {
		code int
		text string
		f    func(ch *amqp.Channel) error
	}{
		{311, text("MessageBodyLengthExceeded", "", "", "q"), func(ch *amqp.Channel) error {
			return ch.PublishWithContext(context.Background(), "", "q", false, false, amqp.Publishing{Body: make([]byte, 11)})
		}},
		{404, text("ExchangeNotExist", "", "none", "k"), func(ch *amqp.Channel) error {
			return ch.PublishWithContext(context.Background(), "none", "k", false, false, amqp.Publishing{})
		}},
		{404, text("ExchangeNotExist", "q", "none", "k"), func(ch *amqp.Channel) error { return ch.QueueBind("q", "k", "none", false, nil) }},
		{404, text("QueueNotExist", "none", "", ""), func(ch *amqp.Channel) error { _, err := ch.QueuePurge("none", false); return err }},
		{405, text("QueueExclusive", "mine", "", ""), func(ch *amqp.Channel) error {
			_, err := ch.Consume("mine", "", false, false, false, false, nil)
			return err
		}},
		{406, text("QueueConsumerNameInvalid", "a b", "", ""), func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("a b", true, false, false, false, nil)
			return err
		}},
		{406, text("ExchangeNameEmpty", "", "", ""), func(ch *amqp.Channel) error { return ch.ExchangeDeclare("", "direct", true, false, false, false, nil) }},
		{406, text("QueueHasDiffField", "q", "", ""), func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("q", false, false, false, false, nil)
			return err
		}},
		{406, text(`ExchangeHasDiffFields\[ODurable=true&NDurable=false;\]`, "", "x", ""), func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("x", "direct", false, false, false, false, nil)
		}},
		{406, text(`ExchangeHasDiffFields\[OType=direct&NType=fanout;OAutoDelete=false&NAutoDelete=true;\]`, "", "x", ""), func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("x", "fanout", true, true, false, false, nil)
		}},
		{406, text("BindingNameInvalid", "q", "x", "a b"), func(ch *amqp.Channel) error { return ch.QueueBind("q", "a b", "x", false, nil) }},
	} {
		if e := refused(t, s, op.f); e.Code != op.code || !regexp.MustCompile(op.text).MatchString(e.Reason) {
			t.Errorf("refused with %d %s, want %d %s", e.Code, e.Reason, op.code, op.text)
		}
	}
	returned := c.NotifyReturn(make(chan amqp.Return, 1))
	if err := c.PublishWithContext(context.Background(), "x", "nowhere", true, false, amqp.Publishing{Body: []byte("m")}); err != nil {
		t.Fatal(err)
	}
	if r := <-returned; r.ReplyCode != 200 || r.ReplyText != "no route has mandatory" {
		t.Errorf("returned with %d %s", r.ReplyCode, r.ReplyText)
	}
}

// What a user lacks a permission for is denied in that style too.
func TestDL_22_15_AccessDenied(t *testing.T) {
	s := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ErrorStyle = true }))
	if _, err := s.b.By("").Do(declare.PutUser{Name: "poor", Password: auth.SHA256.Hash("poor", make([]byte, 4)), Tags: nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "poor", Configure: "^mine$", Write: "^$", Read: "^$"}}); err != nil {
		t.Fatal(err)
	}
	conn := must[*amqp.Connection](t)(amqp.Dial("amqp://poor:poor@" + s.addr))
	defer func() { _ = conn.Close() }()
	ch := must[*amqp.Channel](t)(conn.Channel())
	_, err := ch.QueueDeclare("yours", true, false, false, false, nil)
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != 403 || !strings.HasPrefix(e.Reason, "AccessDeniedByRamPolicy, ReqId:") {
		t.Errorf("refused with %v", err)
	}
}

// Virtual hosts of one node follow their own profiles.
func TestProfilesSideBySide(t *testing.T) {
	s := serve(t, apsara(func(a *broker.ApsaraMQ) { a.ErrorStyle = true }))
	if _, err := s.b.By("guest").As(&broker.Identity{Name: "guest"}).Do(declare.PutVHost{Name: "plain", Change: declare.All(topology.Metadata{Profile: deadletter.RabbitMQ})}); err != nil {
		t.Fatal(err)
	}
	for vhost, want := range map[string]string{"": "nack", "plain": "rejected"} {
		conn := must[*amqp.Connection](t)(amqp.Dial("amqp://guest:guest@" + s.addr + "/" + vhost))
		c := &client{must[*amqp.Channel](t)(conn.Channel()), t}
		c.declare("dlq", nil)
		c.declare("q", deadLettersTo("dlq"))
		c.publish("", "q", amqp.Publishing{Body: []byte("m"), Headers: amqp.Table{"delay": int64(1)}})
		if err := c.next(c.consume("q")).Nack(false, false); err != nil {
			t.Fatal(err)
		}
		d := c.await("dlq")
		_, last := d.Headers["x-last-death-reason"]
		if d.Headers["x-first-death-reason"] != want || last != (vhost == "plain") {
			t.Errorf("vhost %q: headers %v", vhost, d.Headers)
		}
		_, err := c.QueuePurge("none", false)
		var e *amqp.Error
		if plain := errors.As(err, &e) && strings.HasPrefix(e.Reason, "NOT_FOUND - "); plain != (vhost == "plain") {
			t.Errorf("vhost %q: refused with %v", vhost, err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without it the texts are RabbitMQ's.
func TestDL_22_15_ErrorStyleIsOff(t *testing.T) {
	s := serve(t, apsara(nil))
	e := refused(t, s, func(ch *amqp.Channel) error { _, err := ch.QueuePurge("none", false); return err })
	if e.Code != 404 || e.Reason != "NOT_FOUND - no queue 'none' in vhost '/'" {
		t.Errorf("refused with %d %s", e.Code, e.Reason)
	}
}
