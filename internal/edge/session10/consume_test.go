package session10_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/session10"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp10"
)

// publish sends messages by AMQP 0-9-1 and waits until they are stored.
func (n *node) publish(t testing.TB, queue string, bodies ...string) {
	t.Helper()
	ch := n.channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		c, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte(body), DeliveryMode: 2})
		if err != nil {
			t.Fatal(err)
		}
		if !c.Wait() {
			t.Fatal("not confirmed")
		}
	}
}

// got is what a client of AMQP 0-9-1 gets of a queue.
func (n *node) got(t testing.TB, queue string) *amqp.Delivery {
	t.Helper()
	ch := n.channel(t)
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return &d
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("nothing comes to %s", queue)
	return nil
}

// awaitTransfer returns the next message for a link, whole.
func awaitTransfer(c *client) (t *amqp10.Transfer, payload []byte) {
	c.t.Helper()
	for {
		f := awaitFrame[*amqp10.Transfer](c)
		next := f.is.(*amqp10.Transfer)
		if t == nil {
			t = next
		}
		payload = append(payload, f.payload...)
		if !next.More {
			return t, payload
		}
	}
}

var kinds = []string{"classic", "quorum"}

// What a receiver says becomes of its deliveries (DL-14.6).
func TestOutcomesOfDeliveries(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			n.declare(t, "dlq", nil)
			n.declare(t, "q", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
			c := n.session(t)
			c.consumer(0, 0, "q", 100)
			next := uint32(0)
			settle := func(state amqp10.Composite) {
				t.Helper()
				tr, _ := awaitTransfer(c)
				if tr.DeliveryID.Value != next {
					t.Fatalf("delivery %d, want %d", tr.DeliveryID.Value, next)
				}
				next++
				c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: tr.DeliveryID.Value, Settled: true, State: composite(state)})
			}
			header := func() (h amqp10.Header, m amqp10.Message) {
				t.Helper()
				tr, payload := awaitTransfer(c)
				next = tr.DeliveryID.Value + 1
				m, err := amqp10.ParseMessage(payload)
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Decode(m.Header); err != nil {
					t.Fatal(err)
				}
				c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: tr.DeliveryID.Value, Settled: true, State: composite(&amqp10.Accepted{})})
				return h, m
			}
			n.publish(t, "q", "released")
			settle(&amqp10.Released{})
			if h, _ := header(); h.DeliveryCount != 0 || h.FirstAcquirer {
				t.Errorf("released: %+v", h)
			}
			n.publish(t, "q", "modified")
			settle(&amqp10.Modified{DeliveryFailed: true})
			if h, _ := header(); kind == "quorum" && h.DeliveryCount != 1 || h.FirstAcquirer {
				t.Errorf("modified: %+v", h)
			}
			n.publish(t, "q", "modified, not failed")
			settle(&amqp10.Modified{})
			if h, _ := header(); h.DeliveryCount != 0 {
				t.Errorf("modified, not failed: %+v", h)
			}
			n.publish(t, "q", "undeliverable")
			settle(&amqp10.Modified{UndeliverableHere: true})
			if d := n.got(t, "dlq"); string(d.Body) != "undeliverable" || d.Headers["x-first-death-reason"] != "rejected" {
				t.Errorf("undeliverable: %q %v", d.Body, d.Headers)
			}
			n.publish(t, "q", "rejected")
			settle(&amqp10.Rejected{Error: &amqp10.Error{Condition: []byte("com.example.BadOrder"), Description: []byte("no amount")}})
			if d := n.got(t, "dlq"); string(d.Body) != "rejected" || d.Headers["x-first-death-reason"] != "rejected" {
				t.Errorf("rejected: %q %v", d.Body, d.Headers)
			}
			c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, State: composite(&amqp10.Received{})})
			c.heard(0, 0, next, 100)
			n.publish(t, "q", "one more")
			settle(&amqp10.Accepted{}) // nothing was unsettled, so nobody looked at it
			n.publish(t, "q", "last")
			tr, _ := awaitTransfer(c)
			c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: tr.DeliveryID.Value, State: composite(&amqp10.Received{})})
			c.want(awaitEnd(c).Error, amqp10.ConditionInvalidField, "Unrecognised state")
			if d := n.got(t, "q"); string(d.Body) != "last" || !d.Redelivered {
				t.Errorf("%q, want the last one again", d.Body)
			}
		})
	}
}

// A dead letter tells a client of AMQP 1.0 where it died (DL-14.1).
func TestDeathsAsAnnotations(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "dlq", nil)
	n.declare(t, "q", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	c.transfer(0, one(0), text("letter"))
	await[*amqp10.Disposition](c)
	c.consumer(0, 1, "q", 1)
	tr, _ := awaitTransfer(c)
	c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: tr.DeliveryID.Value, Settled: true, State: composite(&amqp10.Rejected{})})
	c.consumer(0, 2, "dlq", 1)
	_, payload := awaitTransfer(c)
	m, err := amqp10.ParseMessage(payload)
	if err != nil {
		t.Fatal(err)
	}
	deaths, ok := m.MessageAnnotation("x-opt-deaths")
	if !ok || deaths.Len() != 1 {
		t.Fatalf("deaths %v of %d", ok, deaths.Len())
	}
	list := deaths.Items()
	death, _ := list.Next()
	q, _ := death.Lookup("queue")
	if name, _ := q.Text(); string(name) != "q" {
		t.Errorf("it died in %q", name)
	}
	if string(m.Bare) != string(text("letter")) {
		t.Errorf("% x is not the message that was sent", m.Bare)
	}
}

// A receiver gets as much as it has credit for; what a drain leaves over ends (2.6.7).
func TestCredit(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			n.declare(t, "q", amqp.Table{"x-queue-type": kind})
			n.publish(t, "q", "0", "1", "2", "3", "4")
			c := n.session(t)
			c.consumer(0, 0, "q", 2)
			next := 0
			take := func(count int) {
				t.Helper()
				for range count {
					if _, payload := awaitTransfer(c); c.bodyOf(payload) != fmt.Sprint(next) {
						t.Fatalf("%q, want %d", c.bodyOf(payload), next)
					}
					next++
				}
			}
			take(2)
			c.credit(0, 0, 2, 1, false)
			take(1)
			// An answer that is asked for comes behind all that was given.
			c.send(0, &amqp10.Flow{
				NextIncomingID: amqp10.Some[uint32](3), IncomingWindow: 1000, OutgoingWindow: 1000,
				Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](3), LinkCredit: amqp10.Some[uint32](0), Echo: true,
			})
			if f := await[*amqp10.Flow](c); f.DeliveryCount.Value != 3 || f.LinkCredit.Value != 0 || f.NextOutgoingID != 3 {
				t.Errorf("%+v", f)
			}
			c.credit(0, 0, 3, 10, true)
			take(2)
			if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 13 || f.LinkCredit.Value != 0 || f.Available.Value != 0 {
				t.Errorf("%+v", f)
			}
			n.publish(t, "q", "5", "6")
			c.credit(0, 0, 13, 1, true)
			take(1)
			if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 14 || f.LinkCredit.Value != 0 {
				t.Errorf("%+v", f)
			}
			c.credit(0, 0, 14, 5, false)
			take(1)
			// Credit may be taken back.
			c.credit(0, 0, 15, 0, false)
			c.fence()
			n.publish(t, "q", "7")
			c.credit(0, 0, 15, 0, true)
			if f := await[*amqp10.Flow](c); f.DeliveryCount.Value != 15 || f.Available.Value != 1 {
				t.Errorf("%+v", f)
			}
			c.credit(0, 0, 15, 1, false)
			take(1)
			// What is taken back may have been used up: it counts all the same.
			c.credit(0, 0, 13, 1, false)
			c.credit(0, 0, 16, 10, true)
			if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 26 || f.LinkCredit.Value != 0 {
				t.Errorf("%+v", f)
			}
			n.publish(t, "q", "8", "9")
			c.credit(0, 0, 26, 1, true)
			take(1)
			if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 27 || f.LinkCredit.Value != 0 || f.Available.Value != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A receiver that ends its credit while messages are on their way to it says a delivery-count that is behind. What it takes after
// that counts from what it has got. go-amqp drains in this way.
func TestCreditThatEndsWhileMessagesAreOnTheirWay(t *testing.T) {
	for _, drain := range []bool{true, false} {
		t.Run(fmt.Sprintf("drain=%t", drain), func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			n.declare(t, "q", nil)
			n.publish(t, "q", "0", "1", "2")
			c := n.session(t)
			c.consumer(0, 0, "q", 10)
			for range 3 {
				awaitTransfer(c)
			}
			if !drain {
				c.heard(0, 0, 1, 0)
			} else {
				c.credit(0, 0, 1, 0, true)
				if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 3 || f.LinkCredit.Value != 0 {
					t.Errorf("%+v", f)
				}
			}
			n.publish(t, "q", "3", "4")
			c.credit(0, 0, 3, 1, false)
			if _, payload := awaitTransfer(c); c.bodyOf(payload) != "3" {
				t.Errorf("%q", c.bodyOf(payload))
			}
			c.credit(0, 0, 4, 0, true) // and no more than that
			if f := await[*amqp10.Flow](c); f.DeliveryCount.Value != 4 || f.Available.Value != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A drain of more than the output takes goes on until the queue is empty.
func TestALargeDrain(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	body := string(make([]byte, 256<<10))
	const count = 100
	bodies := make([]string, count)
	for i := range bodies {
		bodies[i] = body
	}
	n.publish(t, "q", bodies...)
	c := n.session(t)
	c.consumer(0, 0, "q", 0)
	c.credit(0, 0, 0, 1000, true)
	c.credit(0, 0, 0, 1001, false)
	for range count {
		awaitTransfer(c)
	}
	if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 1000 || f.LinkCredit.Value != 0 {
		t.Errorf("%+v", f)
	}
	n.publish(t, "q", "after it") // what the client has said meanwhile holds
	awaitTransfer(c)
}

// A client with a small frame size and a window of one transfer gets a message piece by piece.
func TestAWindowOfOne(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	body := bytes.Repeat([]byte("bartleby"), 500)
	second := string(body) + "second"
	n.publish(t, "q", string(body), second) // it is parked whole, and its first piece leaves in front of the end of the drain
	c := n.dial(t)
	c.login()
	c.send(0, &amqp10.Open{ContainerID: []byte("small"), MaxFrameSize: amqp10.Some[uint32](512)})
	await[*amqp10.Open](c)
	c.begin(0, 1)
	c.consumer(0, 0, "q", 0)
	c.send(0, &amqp10.Flow{
		NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1, OutgoingWindow: 1000,
		Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](10), Drain: true,
	})
	var payloads [][]byte
	pieces := uint32(0)
	for whole := []byte(nil); len(payloads) < 2; {
		f := awaitFrame[*amqp10.Transfer](c)
		tr := f.is.(*amqp10.Transfer)
		pieces++
		if first := len(whole) == 0; first != tr.DeliveryID.Set || len(f.payload) > 512 {
			t.Fatalf("piece %d: %+v, %d bytes", pieces, tr, len(f.payload))
		}
		whole = append(whole, f.payload...)
		if !tr.More {
			payloads, whole = append(payloads, whole), nil
		}
		c.send(0, &amqp10.Flow{NextIncomingID: amqp10.Some(pieces), IncomingWindow: 1, OutgoingWindow: 1000})
	}
	if got := c.bodyOf(payloads[0]); got != string(body) || pieces < 8 {
		t.Errorf("%d bytes in %d pieces", len(got), pieces)
	}
	if got := c.bodyOf(payloads[1]); got != second {
		t.Errorf("%d bytes", len(got))
	}
	// The end of the drain comes behind the deliveries that waited for the window, all of their pieces.
	if f := await[*amqp10.Flow](c); !f.Drain || f.DeliveryCount.Value != 10 || f.NextOutgoingID != pieces {
		t.Errorf("%+v after %d pieces", f, pieces)
	}
}

// A session whose window is closed does not stop another of the connection, and what waits in it goes back with its link.
func TestAClosedWindow(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.declare(t, "r", nil)
	body := string(make([]byte, 100<<10))
	for range 10 {
		n.publish(t, "q", body, body, body, body, body, body, body, body, body, body)
	}
	n.publish(t, "r", "1", "2", "3")
	c := n.open(t)
	c.begin(0, 0)
	c.begin(1, 100)
	c.send(0, &amqp10.Attach{Name: []byte("c"), Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: []byte("/queues/q")}), Target: composite(&amqp10.Target{})})
	await[*amqp10.Attach](c)
	flow := &amqp10.Flow{OutgoingWindow: 1000, Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](1000)}
	c.send(0, flow)
	c.consumer(1, 0, "r", 10)
	for _, want := range []string{"1", "2", "3"} {
		f := awaitFrame[*amqp10.Transfer](c)
		if f.channel != 1 || c.bodyOf(f.payload) != want {
			t.Fatalf("%+v on channel %d", f.is, f.channel)
		}
	}
	c.send(0, &amqp10.Detach{Closed: true})
	if d := awaitDetach(c); d.Handle != 0 || d.Error != nil {
		t.Errorf("%+v", d)
	}
	q, err := n.channel(t).QueueDeclarePassive("q", true, false, false, false, nil)
	if err != nil || q.Messages != 100 {
		t.Errorf("%d messages are ready (%v), want 100", q.Messages, err)
	}
}

// Deliveries are settled in ranges, in any order, and those that were settled before are no error.
func TestRanges(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	bodies := make([]string, 20)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	n.publish(t, "q", bodies...)
	c := n.session(t)
	c.consumer(0, 0, "q", 20)
	for range bodies {
		awaitTransfer(c)
	}
	settle := func(first, last uint32) {
		c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: first, Last: amqp10.Some(last), State: composite(&amqp10.Accepted{})})
		if d := await[*amqp10.Disposition](c); d.First != first || d.Last.Value != last || !d.Settled {
			t.Errorf("%+v", d)
		}
	}
	settle(10, 12)
	settle(11, 11)
	settle(5, 1<<30)   // far beyond what was sent
	settle(0, 1<<31-1) // the largest range that is one
	c.send(0, &amqp10.End{})
	await[*amqp10.End](c)
	q, err := n.channel(t).QueueDeclarePassive("q", true, false, false, false, nil)
	if err != nil || q.Messages != 0 {
		t.Errorf("%d messages are left (%v)", q.Messages, err)
	}
}

// What a link, a session or a connection has not settled when it ends goes back.
func TestUnsettledGoesBack(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"detach":     func(c *client) { c.send(0, &amqp10.Detach{Closed: true}); awaitDetach(c) },
		"end":        func(c *client) { c.send(0, &amqp10.End{}); awaitEnd(c) },
		"close":      func(c *client) { c.send(0, &amqp10.Close{}); awaitClose(c) },
		"disconnect": func(c *client) { _ = c.nc.Close() },
	} {
		for _, kind := range kinds {
			t.Run(name+" "+kind, func(t *testing.T) {
				n := serve(t, broker.Options{}, nil)
				n.declare(t, "q", amqp.Table{"x-queue-type": kind})
				n.publish(t, "q", "a", "b")
				c := n.session(t)
				c.consumer(0, 0, "q", 5)
				awaitTransfer(c)
				awaitTransfer(c)
				end(c)
				for _, want := range []string{"a", "b"} {
					if d := n.got(t, "q"); string(d.Body) != want || !d.Redelivered {
						t.Errorf("%q, want %q", d.Body, want)
					}
				}
			})
		}
	}
}

// The end of its queue detaches a consumer.
func TestTheQueueIsDeleted(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.consumer(0, 0, "q", 5)
	c.heard(0, 0, 0, 5) // after the detach, credit for the handle would end the session
	if _, err := n.channel(t).QueueDelete("q", false, false, false); err != nil {
		t.Fatal(err)
	}
	d := awaitDetach(c)
	c.want(d.Error, amqp10.ConditionResourceDeleted, "")
	c.send(0, &amqp10.Detach{Closed: true})
	n.declare(t, "r", nil)
	c.consumer(0, 0, "r", 5) // its handle is free
}

// Settled deliveries leave the queue when they are sent.
func TestSettledDeliveries(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.publish(t, "q", "a")
	c := n.session(t)
	c.send(0, &amqp10.Attach{
		Name: []byte("c"), Role: amqp10.RoleReceiver, SndSettleMode: amqp10.Some(amqp10.SenderSettleModeSettled),
		Source: composite(&amqp10.Source{Address: []byte("/queues/q")}), Target: composite(&amqp10.Target{}),
	})
	if a := await[*amqp10.Attach](c); a.SndSettleMode.Value != amqp10.SenderSettleModeSettled {
		t.Errorf("%+v", a)
	}
	c.credit(0, 0, 0, 1, false)
	if tr, _ := awaitTransfer(c); !tr.Settled.Value {
		t.Errorf("%+v", tr)
	}
	c.send(0, &amqp10.End{})
	await[*amqp10.End](c)
	q, err := n.channel(t).QueueDeclarePassive("q", true, false, false, false, nil)
	if err != nil || q.Messages != 0 {
		t.Errorf("%d messages are left (%v)", q.Messages, err)
	}
}

// The consumer with the higher priority gets the messages.
func TestPriorities(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	c := n.session(t)
	c.consumer(0, 0, "q", 5)
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendInt(amqp10.AppendSymbol(b, "rabbitmq:priority"), 3)
	properties, _, _ := amqp10.ReadValue(amqp10.EndCompound(b, start, 2))
	c.send(0, &amqp10.Attach{
		Name: []byte("first"), Handle: 1, Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: []byte("/queues/q")}), Target: composite(&amqp10.Target{}), Properties: properties,
	})
	await[*amqp10.Attach](c)
	c.credit(0, 1, 0, 5, true)
	await[*amqp10.Flow](c) // its credit is known, and ended
	c.credit(0, 1, 5, 5, false)
	c.fence()
	n.publish(t, "q", "a", "b")
	for range 2 {
		if tr, _ := awaitTransfer(c); tr.Handle != 1 {
			t.Errorf("link %d gets it", tr.Handle)
		}
	}
}

// A consumer whose client does not read is paused, however much it has said that it takes, and goes on when it reads.
func TestASlowReader(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind+" large", func(t *testing.T) { slowReader(t, kind, 60, 512<<10) })
		t.Run(kind+" many", func(t *testing.T) { slowReader(t, kind, 3000, 3000) })
	}
}

func slowReader(t *testing.T, kind string, count, size int) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": kind})
	body := string(make([]byte, size))
	for range count {
		n.publish(t, "q", body)
	}
	c := n.session(t)
	c.consumer(0, 0, "q", 0)
	c.credit(0, 0, 0, 1<<30, false)
	ch := n.channel(t)
	deadline := time.Now().Add(patience)
	for before := -1; ; { // it takes some, and then no more
		q, err := ch.QueueDeclarePassive("q", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Messages == before && before < count {
			if before == 0 {
				t.Fatal("all of it waits for a client that does not read")
			}
			break
		}
		before = q.Messages
		if time.Now().After(deadline) {
			t.Fatal("it takes nothing")
		}
		time.Sleep(50 * time.Millisecond)
	}
	for range count {
		awaitTransfer(c)
	}
}

// What a receiver says when it rejects is in the history of the dead letter; in strict mode it is forgotten, as by RabbitMQ.
func TestWhyItWasRejected(t *testing.T) {
	for _, strict := range []bool{false, true} {
		n := serve(t, broker.Options{}, func(o *session10.Options) { o.Strict = strict })
		n.declare(t, "dlq", nil)
		n.declare(t, "q", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
		n.publish(t, "q", "a", "b")
		c := n.session(t)
		c.consumer(0, 0, "q", 2)
		awaitTransfer(c)
		awaitTransfer(c)
		c.send(0, &amqp10.Disposition{
			Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](1), Settled: true,
			State: composite(&amqp10.Rejected{Error: &amqp10.Error{Condition: []byte("com.example.NoAmount"), Description: []byte("the order has no amount")}}),
		})
		want := deadletter.Cause{ConsumerTag: "c", User: "guest", Name: "test", Class: "com.example.NoAmount", Error: "the order has no amount", DeliveryCount: 1}
		if strict {
			want.Class, want.Error = "", ""
		}
		for i, h := range n.histories(t, "dlq", 2) {
			if h.Cause.Connection == "" {
				t.Error("no connection")
			}
			h.Cause.Connection = ""
			if h.Cause != want {
				t.Errorf("strict %v, %d: %+v, want %+v", strict, i, h.Cause, want)
			}
		}
	}
}

// histories are those of the n letters in a queue, once they are there.
func (n *node) histories(t testing.TB, name message.QueueName, count int) (list []deadletter.History) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(list) != count; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d letters are in %s, want %d", len(list), name, count)
		}
		var q broker.QueueInfo
		n.b.Read(func(state *topology.State, _ *auth.Users) {
			v, _ := state.VHost("/")
			v.EachQueue(func(decl *topology.Queue) {
				if decl.Name == name {
					q = broker.Describe(decl)
				}
			})
		})
		list = list[:0]
		_, _, err := letters.Browse(t.Context(), n.b, q, queue.Cursor{}, 10_000, func(_ queue.View, _ message.Record, stored []byte) bool {
			h, err := deadletter.Parse(stored)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, h)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// What waits for the client's window goes back to its queue when its link ends, also behind what waits for another link.
func TestWhatIsParkedGoesBackWithItsLink(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			c := n.open(t)
			c.begin(0, 0)
			for handle, name := range []string{"first", "second"} {
				n.declare(t, name, amqp.Table{"x-queue-type": kind})
				n.publish(t, name, "a", "b")
				c.consumer(0, uint32(handle), name, 0)
				c.send(0, &amqp10.Flow{
					NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 0, OutgoingWindow: 1000,
					Handle: amqp10.Some(uint32(handle)), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](10),
				})
				c.fence()
			}
			c.send(0, &amqp10.Detach{Handle: 1, Closed: true})
			await[*amqp10.Detach](c)
			if a, b := n.got(t, "second"), n.got(t, "second"); string(a.Body) != "a" || string(b.Body) != "b" {
				t.Errorf("%q and %q are in the queue", a.Body, b.Body)
			}
			c.send(0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 10, OutgoingWindow: 1000})
			for _, want := range []string{"a", "b"} {
				if tr, payload := awaitTransfer(c); tr.Handle != 0 || c.bodyOf(payload) != want {
					t.Errorf("%q on link %d, want %q of the first queue", c.bodyOf(payload), tr.Handle, want)
				}
			}
		})
	}
}
