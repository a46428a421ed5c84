package session10_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// awaitActive waits for the next flow of a receiver, and returns what it says of being active.
func awaitActive(c *client, handle uint32) (active, said bool, f *amqp10.Flow) {
	c.t.Helper()
	f = awaitFrame[*amqp10.Flow](c).is.(*amqp10.Flow)
	if f.Handle.Value != handle {
		c.t.Fatalf("a flow of link %d, want %d", f.Handle.Value, handle)
	}
	v, _ := f.Properties.Lookup("rabbitmq:active")
	active, said = v.Bool()
	return active, said, f
}

// A receiver of a quorum queue hears once that it is active, with the first flow or the end of a drain.
func TestAReceiverHearsOnceThatItIsActive(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum"})
	c := n.session(t)
	c.consumer(0, 0, "q", 5)
	if active, said, f := awaitActive(c, 0); !active || !said || f.LinkCredit.Value != 5 {
		t.Errorf("the first flow: %v %v, credit %d", active, said, f.LinkCredit.Value)
	}
	c.send(0, &amqp10.Flow{Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](9), Echo: true, NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 100, OutgoingWindow: 100})
	if _, said, f := awaitActive(c, 0); said || f.LinkCredit.Value != 9 {
		t.Errorf("the answer to an echo says it again; credit %d", f.LinkCredit.Value)
	}
}

// With a single active consumer each change is told; the new one hears it before its first message.
func TestReceiversHearWhoIsActive(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
	c := n.session(t)
	c.consumer(0, 0, "q", 0)
	if active, said, _ := awaitActive(c, 0); !active || !said {
		t.Errorf("the first one hears %v %v", active, said)
	}
	c.consumer(0, 1, "q", 5)
	if active, said, _ := awaitActive(c, 1); active || !said {
		t.Errorf("the second one hears %v %v", active, said)
	}
	n.publish(t, "q", "m")
	c.send(0, &amqp10.Detach{Handle: 0, Closed: true})
	if active, said, f := awaitActive(c, 1); !active || !said || f.Available.Value != 1 {
		t.Errorf("the second one hears %v %v, %d available", active, said, f.Available.Value)
	}
	if tr, _ := awaitTransfer(c); tr.Handle != 1 {
		t.Errorf("link %d got the message", tr.Handle)
	}
}

// DL-12.7: deliveries that a consumer timeout takes back are released, each range by a disposition that is not settled. What the
// client says of them then has no effect.
func TestDL_12_7_TimedOutDeliveriesAreReleased(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", amqp.Table{"x-queue-type": "quorum", "x-consumer-timeout": 200})
	c := n.session(t)
	n.publish(t, "q", "a", "b", "c")
	c.consumer(0, 0, "q", 3)
	awaitTransfer(c)
	awaitTransfer(c)
	awaitTransfer(c)
	c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 1, Settled: true, State: composite(&amqp10.Accepted{})})
	for released := uint32(0); released < 2; {
		d := awaitFrame[*amqp10.Disposition](c).is.(*amqp10.Disposition)
		last := d.First
		if d.Last.Set {
			last = d.Last.Value
		}
		if d.Role != amqp10.RoleSender || d.Settled || d.State.Descriptor() != amqp10.DescriptorReleased || d.First == 1 || last != d.First {
			t.Fatalf("the disposition is %+v", d)
		}
		released++
	}
	if got := n.got(t, "q"); string(got.Body) != "a" || !got.Redelivered {
		t.Errorf("%q is in the queue", got.Body)
	}
	c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](2), Settled: true, State: composite(&amqp10.Accepted{})})
	if got := n.got(t, "q"); string(got.Body) != "c" {
		t.Errorf("%q is in the queue, want what was taken back", got.Body)
	}
}
