package session10_test

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/declare"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// A message goes the whole way by AMQP 1.0: accepted, delivered, settled.
func TestWholeWay(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			n := serve(t, broker.Options{}, nil)
			n.declare(t, "q", amqp.Table{"x-queue-type": kind})
			c := n.session(t)
			if f := c.publisher(0, 0, "/queues/q"); f.LinkCredit.Value != 170 {
				t.Errorf("credit %d, want 170", f.LinkCredit.Value)
			}
			const count = 100
			for i := range uint32(count) {
				c.transfer(0, amqp10.Transfer{DeliveryID: amqp10.Some(i), DeliveryTag: []byte{byte(i)}}, text(fmt.Sprint("m", i)))
			}
			for next := uint32(0); next < count; {
				d := await[*amqp10.Disposition](c)
				if d.First != next || d.State.Descriptor() != amqp10.DescriptorAccepted || !d.Settled || d.Role != amqp10.RoleReceiver {
					t.Fatalf("disposition %+v, want accepted from %d", d, next)
				}
				next = max(d.First, d.Last.Value) + 1
			}
			c.consumer(0, 1, "q", count)
			for i := range uint32(count) {
				f := awaitFrame[*amqp10.Transfer](c)
				tr := f.is.(*amqp10.Transfer)
				if tr.Handle != 1 || tr.DeliveryID.Value != i || c.bodyOf(f.payload) != fmt.Sprint("m", i) {
					t.Fatalf("transfer %+v of %q, want m%d", tr, c.bodyOf(f.payload), i)
				}
			}
			c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](count - 1), State: composite(&amqp10.Accepted{})})
			if d := await[*amqp10.Disposition](c); d.Last.Value != count-1 || !d.Settled || d.Role != amqp10.RoleSender {
				t.Errorf("the answer is %+v", d)
			}
			c.send(0, &amqp10.Close{})
			await[*amqp10.Close](c)
			c.ended()
			q, err := n.channel(t).QueueDeclarePassive("q", true, false, false, false, amqp.Table{"x-queue-type": kind})
			if err != nil || q.Messages != 0 {
				t.Errorf("%d messages are left (%v)", q.Messages, err)
			}
		})
	}
}

// As in RabbitMQ, the limits of a user's and a node's channels are none of sessions, which do not count there either.
func TestSessionsAreNoChannels(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	if _, err := n.b.By("").Do(declare.SetUserLimits{Name: "guest", Limits: map[auth.Limit]any{auth.MaxChannels: int64(1)}}); err != nil {
		t.Fatal(err)
	}
	n.b.SetAccountRules(broker.AccountRules{MaxChannels: 1})
	c := n.session(t)
	c.begin(1, 1000)
	c.begin(2, 1000)
	n.declare(t, "q", nil) // on the one channel that there may be
	c.publisher(2, 0, "/queues/q")
	c.send(1, &amqp10.End{})
	await[*amqp10.End](c)
	if _, err := n.b.By("").Do(declare.SetUserLimits{Name: "guest", Limits: map[auth.Limit]any{auth.MaxChannels: int64(0)}}); err != nil {
		t.Fatal(err)
	}
	c.begin(1, 1000)
}
