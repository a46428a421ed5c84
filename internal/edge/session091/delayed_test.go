package session091_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// delaying declares a durable exchange that delays messages and routes them by a type.
func (c *client) delaying(name, by string, args amqp.Table) {
	c.t.Helper()
	all := amqp.Table{"x-delayed-type": by}
	for k, v := range args {
		all[k] = v
	}
	if err := c.ExchangeDeclare(name, "x-delayed-message", true, false, false, false, all); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) bind(queue, key, exchange string) {
	c.t.Helper()
	if err := c.QueueBind(queue, key, exchange, false, nil); err != nil {
		c.t.Fatal(err)
	}
}

// confirmed publishes and waits for the confirm.
func (c *client) confirmed(exchange, key string, p amqp.Publishing) {
	c.t.Helper()
	confirm := must[*amqp.DeferredConfirmation](c.t)(c.PublishWithDeferredConfirm(exchange, key, false, false, p))
	if !confirm.Wait() {
		c.t.Fatal("not confirmed")
	}
}

func delayed(ms any, body string) amqp.Publishing {
	return amqp.Publishing{Headers: amqp.Table{"x-delay": ms}, Body: []byte(body)}
}

// waiting is how many messages an exchange delays.
func (s *server) waiting(t testing.TB, exchange string) (n int) {
	t.Helper()
	var x broker.ExchangeInfo
	s.b.Read(func(state *topology.State, _ *auth.Users) {
		v, _ := state.VHost("/")
		decl, ok := v.Exchange(message.ExchangeName(exchange))
		if !ok {
			t.Fatalf("no exchange %s", exchange)
		}
		x = s.b.DescribeExchange(decl)
	})
	n, ok := s.b.Delayed(x)
	if !ok {
		t.Fatalf("exchange %s delays no messages", exchange)
	}
	return n
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not so after 10 s: %s", what)
		}
	}
}

// nowWait waits until so many messages wait in an exchange: they do until quorum queues have said that they have them.
func (s *server) nowWait(t testing.TB, exchange string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages wait in %s", n, exchange), func() bool { return s.waiting(t, exchange) == n })
}

// A message waits for as long as it asks, and comes then with its own properties, its keys and minus its delay; its own TTL
// begins then. It is no dead letter.
func TestDelayedMessage(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, broker.Options{})
			c := s.client(t)
			c.delaying("later", "topic", nil)
			c.declare("q", deadLettersTo("dlq", "x-queue-type", kind))
			c.declare("dlq", nil)
			c.bind("q", "order.*", "later")
			began := time.Now()
			p := delayed(int32(300), "m")
			p.Headers["other"], p.Expiration, p.MessageId, p.Priority = "o", "250", "id", 3
			p.Headers["CC"] = []any{"none"}
			c.publish("later", "order.new", p)
			if n := c.length("q"); n != 0 {
				t.Errorf("%d messages in the queue before the moment", n)
			}
			s.nowWait(t, "later", 1)
			d := c.await("q")
			if waited := time.Since(began); waited < 300*time.Millisecond {
				t.Errorf("came after %v", waited)
			}
			if diff := cmp.Diff(amqp.Table{"x-delay": int64(-300), "other": "o", "CC": []any{"none"}}, d.Headers); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if d.Exchange != "later" || d.RoutingKey != "order.new" || d.Expiration != "250" || d.MessageId != "id" || d.Priority != 3 || d.Redelivered {
				t.Errorf("got %+v", d)
			}
			s.nowWait(t, "later", 0)
			p.Headers["x-delay"] = int32(20)
			c.publish("later", "order.new", p)
			d = c.await("dlq") // by its own TTL
			death := d.Headers["x-death"].([]any)[0].(amqp.Table)
			if death["reason"] != "expired" || death["original-expiration"] != "250" || death["count"] != int64(1) || death["queue"] != "q" || death["exchange"] != "later" {
				t.Errorf("died as %v", death)
			}
			if d.Headers["x-delay"] != int64(-20) || d.Expiration != "" {
				t.Errorf("the dead letter has x-delay %v and expiration %q", d.Headers["x-delay"], d.Expiration)
			}
		})
	}
}

// What is no positive number of milliseconds asks for no delay. A text must be a number.
func TestDelayHeader(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	c.delaying("later", "fanout", nil)
	c.declare("q", nil)
	c.bind("q", "", "later")
	c.publish("later", "", amqp.Publishing{Body: []byte("none")})
	c.await("q")
	for _, v := range []any{0, int64(-5), int64(math.MinInt64), "0", "-7", float64(0.9), float64(-1), math.NaN(), math.Inf(-1), true, nil, time.Now(), amqp.Table{"a": int32(1)}} {
		c.publish("later", "", delayed(v, fmt.Sprint(v)))
		if d := c.await("q"); string(d.Body) != fmt.Sprint(v) {
			t.Errorf("got %q", d.Body)
		}
	}
	for _, v := range []any{"soon", "5s", "", "1.5"} {
		e := refused(t, s, func(ch *amqp.Channel) error { return ch.Publish("later", "", false, false, delayed(v, "m")) })
		if e.Code != 406 || !strings.Contains(e.Reason, fmt.Sprintf("header x-delay is '%s'", v)) {
			t.Errorf("x-delay %q is refused with %v", v, e)
		}
	}
	for _, v := range []any{byte(200), int16(30), int32(30), int64(30), "30", "+30", []byte("30"), float32(30.9), float64(30.9)} {
		began := time.Now()
		c.publish("later", "", delayed(v, "m"))
		want := int64(-30)
		if v == byte(200) {
			want = -200
		}
		if d := c.await("q"); time.Since(began) < 30*time.Millisecond || d.Headers["x-delay"] != want {
			t.Errorf("%T %v came after %v with x-delay %v", v, v, time.Since(began), d.Headers["x-delay"])
		}
	}
	most := 0
	for _, v := range []any{int64(50 * 24 * 3600 * 1000), int64(math.MaxInt64), "99999999999999999999999999", math.Inf(1), float64(1e300)} {
		c.publish("later", "", delayed(v, "m"))
		most++
		s.nowWait(t, "later", most)
	}
}

// Messages come in the order of their moments, and those of one moment in the order in which they were published.
func TestDelayedOrder(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	c.delaying("later", "direct", nil)
	c.declare("q", nil)
	c.bind("q", "k", "later")
	const each = 200
	for i := range each {
		c.publish("later", "k", delayed(400, fmt.Sprint("late ", i)))
	}
	for i := range each {
		c.publish("later", "k", delayed(100, fmt.Sprint("early ", i)))
	}
	got := c.consume("q")
	for _, when := range []string{"early", "late"} {
		for i := range each {
			if d := c.next(got); string(d.Body) != fmt.Sprint(when, " ", i) {
				t.Fatalf("got %q, want %s %d", d.Body, when, i)
			}
		}
	}
}

// What a durable exchange has confirmed waits over a restart, transient messages too, and comes once. What a transient one
// delays is gone with it.
func TestDelaySurvivesRestart(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			o := broker.Options{FS: vfs.NewMem()}
			s := serve(t, o)
			c := s.client(t)
			c.delaying("later", "direct", nil)
			c.declare("q", amqp.Table{"x-queue-type": kind})
			c.bind("q", "k", "later")
			if err := c.ExchangeDeclare("passing", "x-delayed-message", false, false, false, false, amqp.Table{"x-delayed-type": "fanout"}); err != nil {
				t.Fatal(err)
			}
			if err := c.Confirm(false); err != nil {
				t.Fatal(err)
			}
			c.confirmed("passing", "", delayed(1, "gone"))
			c.confirmed("passing", "", delayed(100_000, "gone"))
			due := time.Now().Add(300 * time.Millisecond)
			c.confirmed("later", "k", delayed(300, "transient"))
			p := delayed(300, "persistent")
			p.DeliveryMode = amqp.Persistent
			c.confirmed("later", "k", p)
			p.Headers["x-delay"] = int64(math.MaxInt64)
			c.confirmed("later", "k", p)
			s.stop()
			s = serve(t, o)
			c = s.client(t)
			got := c.consume("q")
			for _, body := range []string{"transient", "persistent"} {
				if d := c.next(got); string(d.Body) != body || time.Now().Before(due) || d.Redelivered || d.Headers["x-delay"] != int64(-300) {
					t.Errorf("%q redelivered=%v, %v too early, %v", d.Body, d.Redelivered, time.Until(due), d.Headers)
				}
			}
			s.nowWait(t, "later", 1)
		})
	}
}

// What no binding matches at its moment goes to the alternate exchange, and is dropped and counted where that has no queue
// either. A mandatory message is kept, and so not returned.
func TestDelayedUnroutable(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	c.declare("unbound", nil)
	if err := c.ExchangeDeclare("alternate", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	c.bind("unbound", "", "alternate")
	c.delaying("later", "direct", amqp.Table{"alternate-exchange": "alternate"})
	c.delaying("nowhere", "direct", nil)
	returned := c.NotifyReturn(make(chan amqp.Return, 1))
	if err := c.Publish("later", "k", true, false, delayed(50, "m")); err != nil {
		t.Fatal(err)
	}
	if n := c.length("unbound"); n != 0 {
		t.Error("the alternate exchange has it before its moment")
	}
	if d := c.await("unbound"); d.Headers["x-delay"] != int64(-50) {
		t.Errorf("headers %v", d.Headers)
	}
	if err := c.Publish("nowhere", "k", true, false, delayed(10, "m")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is dropped", func() bool {
		return s.waiting(t, "nowhere") == 0 && s.b.Totals.Traffic[broker.LoginAMQP091].UnroutableDropped.Load() == 1
	})
	for _, strategy := range []partition.Strategy{partition.Disabled, partition.AtMostOnce, partition.AtLeastOnce} {
		if n := s.b.Node().Deaths(queue.Classic, strategy, deadletter.Expired); n != 0 {
			t.Errorf("%d messages count as dead, %s", n, strategy)
		}
	}
	if err := c.Publish("nowhere", "k", true, false, delayed(0, "m")); err != nil {
		t.Fatal(err)
	}
	if r := <-returned; r.Headers["x-delay"] != int32(0) {
		t.Errorf("returned with %v", r.Headers)
	}
}

// A dead letter waits in an exchange that delays, too, once: what has waited does not again, wherever it dies.
func TestDelayedDeadLetter(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, broker.Options{})
			c := s.client(t)
			c.delaying("later", "direct", nil)
			c.declare("q", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "later", "x-dead-letter-routing-key": "again"})
			c.bind("q", "again", "later")
			p := delayed(200, "m")
			p.Expiration = "10000"
			c.publish("", "q", p)
			deliveries := c.consume("q")
			d := c.next(deliveries)
			if d.Headers["x-delay"] != int32(200) {
				t.Errorf("before it has waited its x-delay is %v", d.Headers["x-delay"])
			}
			began := time.Now()
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
			d = c.next(deliveries)
			if waited := time.Since(began); waited < 200*time.Millisecond {
				t.Errorf("came after %v", waited)
			}
			if d.Headers["x-delay"] != int64(-200) || d.Headers["x-first-death-reason"] != "rejected" || d.RoutingKey != "again" || d.Exchange != "later" || d.Expiration != "" {
				t.Errorf("got %v %+v", d.Headers, d)
			}
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
			d = c.next(deliveries)
			if n := d.Headers["x-death"].([]any)[0].(amqp.Table)["count"]; n != int64(2) || d.Headers["x-delay"] != int64(-200) {
				t.Errorf("died %v times, x-delay %v", n, d.Headers["x-delay"])
			}
		})
	}
}

// An exchange that delays may be bound to others. What goes around it does not wait, and what has waited waits in no other.
func TestDelayedThroughBindings(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	if err := c.ExchangeDeclare("in", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	c.delaying("later", "topic", nil)
	c.delaying("behind", "topic", nil)
	c.declare("now", nil)
	c.declare("then", amqp.Table{"x-queue-type": "quorum"})
	c.declare("too", nil)
	c.bind("now", "", "in")
	for _, b := range [][2]string{{"in", "later"}, {"later", "behind"}} {
		if err := c.ExchangeBind(b[1], "#", b[0], false, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.bind("then", "a.*", "behind")
	c.bind("too", "copy", "later")
	p := delayed(100, "m")
	p.Headers["BCC"] = []any{"copy"}
	c.publish("in", "a.b", p)
	if d := c.await("now"); d.Headers["x-delay"] != int32(100) {
		t.Errorf("what did not wait has x-delay %v", d.Headers["x-delay"])
	}
	for _, q := range []string{"then", "too"} {
		if d := c.await(q); d.Headers["x-delay"] != int64(-100) || d.Exchange != "in" || d.Headers["BCC"] != nil {
			t.Errorf("%s got %v from %q", q, d.Headers, d.Exchange)
		}
	}
	s.nowWait(t, "later", 0)
	s.nowWait(t, "behind", 0)
}

// The type of exchange names another type, which is there.
func TestDelayedDeclaration(t *testing.T) {
	s := serve(t, broker.Options{})
	for _, test := range []struct {
		args amqp.Table
		want string
	}{
		{nil, "Invalid argument, 'x-delayed-type' must be an existing exchange type"},
		{amqp.Table{"x-delayed-type": int32(1)}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"},
		{amqp.Table{"x-delayed-type": "x-delayed-message"}, "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"},
		{amqp.Table{"x-delayed-type": "slow"}, "unknown exchange type 'slow'"},
		{amqp.Table{"x-delayed-type": "x-consistent-hash", "hash-property": "size"}, "Unsupported property"},
	} {
		e := refused(t, s, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, test.args)
		})
		if e.Code != 406 || !strings.Contains(e.Reason, test.want) {
			t.Errorf("%v is refused with %v, want %q", test.args, e, test.want)
		}
	}
	c := s.client(t)
	c.delaying("later", "headers", nil)
	c.delaying("later", "headers", nil)
	c.declare("q", nil)
	if err := c.QueueBind("q", "", "later", false, amqp.Table{"kind": "a"}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"b", "a"} {
		p := delayed(10, kind)
		p.Headers["kind"] = kind
		c.publish("later", "", p)
	}
	if d := c.await("q"); string(d.Body) != "a" {
		t.Errorf("got %q", d.Body)
	}
}

// What waits is dropped with its exchange, and counted, however the exchange goes.
func TestDelayedDropped(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	if err := c.Confirm(false); err != nil {
		t.Fatal(err)
	}
	c.declare("q", nil)
	dropped := uint64(0)
	for _, auto := range []bool{false, true} {
		for _, durable := range []bool{false, true} {
			if err := c.ExchangeDeclare("later", "x-delayed-message", durable, auto, false, false, amqp.Table{"x-delayed-type": "direct"}); err != nil {
				t.Fatal(err)
			}
			c.bind("q", "k", "later")
			for range 3 {
				c.confirmed("later", "k", delayed(20, "m"))
			}
			for range 3 {
				c.await("q")
			}
			for range 2 {
				c.confirmed("later", "k", delayed(math.MaxInt32, "m"))
			}
			var err error
			if auto {
				err = c.QueueUnbind("q", "k", "later", nil)
			} else {
				err = c.ExchangeDelete("later", false, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			if dropped += 2; s.b.Totals.DelayedDropped.Load() != dropped {
				t.Errorf("%d messages count as dropped, want %d", s.b.Totals.DelayedDropped.Load(), dropped)
			}
		}
	}
	if late := s.b.Node().DeathsConfirmed(); late != 0 {
		t.Errorf("%d dead letters were confirmed", late)
	}
}

// What is published in a transaction waits from its commit on.
func TestDelayedInATransaction(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	c.delaying("later", "direct", nil)
	c.declare("q", amqp.Table{"x-queue-type": "quorum"})
	c.bind("q", "k", "later")
	if err := c.Tx(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func() error{c.TxRollback, c.TxCommit} {
		c.publish("later", "k", delayed(50, "m"))
		c.publish("later", "k", delayed(math.MaxInt32, "m"))
		if n := s.waiting(t, "later"); n != 0 {
			t.Errorf("%d messages wait before the commit", n)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if d := c.await("q"); d.Headers["x-delay"] != int64(-50) {
		t.Errorf("headers %v", d.Headers)
	}
	s.nowWait(t, "later", 1)
}

// A message that a full queue refuses stays with its exchange until there is room.
func TestDelayedAwaitsRoom(t *testing.T) {
	for _, kind := range bothTypes {
		t.Run(kind, func(t *testing.T) {
			o := broker.Options{FS: vfs.NewMem(), RetryHeld: 20 * time.Millisecond}
			s := serve(t, o)
			c := s.client(t)
			c.delaying("later", "direct", nil)
			c.declare("q", amqp.Table{"x-queue-type": kind, "x-max-length": int32(1), "x-overflow": "reject-publish"})
			c.declare("free", nil)
			c.bind("q", "k", "later")
			c.bind("free", "k", "later")
			if err := c.Confirm(false); err != nil {
				t.Fatal(err)
			}
			first := amqp.Publishing{Body: []byte("first"), DeliveryMode: amqp.Persistent}
			c.confirmed("", "q", first)
			p := delayed(10, "m")
			p.DeliveryMode = amqp.Persistent
			c.confirmed("later", "k", p)
			c.await("free")
			s.nowWait(t, "later", 1)
			s.stop()
			s = serve(t, o)
			c = s.client(t)
			if d := c.await("q"); string(d.Body) != "first" {
				t.Errorf("got %q", d.Body)
			}
			if d := c.await("q"); string(d.Body) != "m" || d.Headers["x-delay"] != int64(-10) {
				t.Errorf("got %q %v", d.Body, d.Headers)
			}
			s.nowWait(t, "later", 0)
		})
	}
}

// A message that one of its targets has, and another refuses, is held in its exchange. After a stop in order and a start it
// does not come again to the target that has had it, whether it is persistent or not.
func TestADelayedMessageComesOnceOverARestart(t *testing.T) {
	for name, mode := range map[string]uint8{"transient": amqp.Transient, "persistent": amqp.Persistent} {
		t.Run(name, func(t *testing.T) {
			o := broker.Options{FS: vfs.NewMem(), RetryHeld: 20 * time.Millisecond}
			s := serve(t, o)
			c := s.client(t)
			c.delaying("later", "fanout", nil)
			c.declare("q", nil)
			c.declare("full", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
			c.bind("q", "", "later")
			c.bind("full", "", "later")
			if err := c.Confirm(false); err != nil {
				t.Fatal(err)
			}
			c.confirmed("", "full", amqp.Publishing{Body: []byte("first"), DeliveryMode: amqp.Persistent})
			p := delayed(10, "m")
			p.DeliveryMode = mode
			c.confirmed("later", "", p)
			if d := c.await("q"); string(d.Body) != "m" {
				t.Fatalf("q has %q", d.Body)
			}
			s.nowWait(t, "later", 1)
			s.stop()
			s = serve(t, o)
			c = s.client(t)
			if d := c.await("full"); string(d.Body) != "first" {
				t.Fatalf("full has %q", d.Body)
			}
			s.nowWait(t, "later", 0) // it was tried again, and has gone everywhere
			if n := c.length("q"); n != 0 {
				t.Errorf("%d messages came to q again", n)
			}
		})
	}
}
