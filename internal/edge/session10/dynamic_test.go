package session10_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

func capabilities(names ...string) amqp10.Value {
	v, _, _ := amqp10.ReadValue(amqp10.AppendSymbols(nil, names...))
	return v
}

// dynamic attaches a receiver with a node that is made for it, and returns the node's address.
func (c *client) dynamic(handle uint32, capability string, settled bool) string {
	c.t.Helper()
	a := &amqp10.Attach{
		Name: []byte("dynamic"), Handle: handle, Role: amqp10.RoleReceiver, Target: composite(&amqp10.Target{}),
		Source: composite(&amqp10.Source{Dynamic: true, ExpiryPolicy: amqp10.TerminusExpiryPolicyLinkDetach, Capabilities: capabilities(capability)}),
	}
	if settled {
		a.SndSettleMode = amqp10.Some(amqp10.SenderSettleModeSettled)
	}
	c.send(0, a)
	answer := await[*amqp10.Attach](c)
	var src amqp10.Source
	if answer.Source.IsNull() || src.Decode(answer.Source) != nil {
		c.t.Fatalf("refused: %s", said(await[*amqp10.Detach](c).Error))
	}
	return string(src.Address)
}

// onLink1 is a transfer of a whole message on the link with handle 1.
func onLink1(id uint32) amqp10.Transfer {
	t := one(id)
	t.Handle = 1
	return t
}

// A temporary queue is the connection's own, and goes with its link or its session.
func TestTemporaryQueues(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	address := c.dynamic(0, "temporary-queue", false)
	name := strings.TrimPrefix(address, "/queues/")
	if !strings.HasPrefix(name, "amq.dyn-test-dynamic-") {
		t.Errorf("the address %s", address)
	}
	c.publisher(0, 1, address)
	c.transfer(0, onLink1(0), text("a"))
	await[*amqp10.Disposition](c)
	c.credit(0, 0, 0, 1, false)
	if got := c.bodyOf(awaitFrame[*amqp10.Transfer](c).payload); got != "a" {
		t.Errorf("%q", got)
	}
	exists := func(name string) bool {
		list := n.b.Connections()
		return len(list) == 1 && list[0].HasQueue(message.QueueName(name))
	}
	if !exists(name) {
		t.Error("there is no queue")
	}
	c.send(0, &amqp10.Detach{Handle: 0, Closed: true})
	await[*amqp10.Detach](c)
	if exists(name) {
		t.Error("the queue outlives its link")
	}
	c.begin(1, 1000)
	c.send(1, &amqp10.Attach{
		Name: []byte("t"), Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), InitialDeliveryCount: amqp10.Some[uint32](0),
		Target: composite(&amqp10.Target{Dynamic: true, Capabilities: capabilities("temporary-queue")}),
	})
	var tgt amqp10.Target
	if err := tgt.Decode(await[*amqp10.Attach](c).Target); err != nil {
		t.Fatal(err)
	}
	name = strings.TrimPrefix(string(tgt.Address), "/queues/")
	if !exists(name) {
		t.Error("there is no queue for the target")
	}
	c.send(1, &amqp10.End{})
	await[*amqp10.End](c)
	if exists(name) {
		t.Error("the queue outlives its session")
	}
}

// A direct reply comes at once, settled, to whoever has credit; without credit it is dropped, and after the link it has no
// address any more.
func TestDirectReplies(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	address := c.dynamic(0, "rabbitmq:volatile-queue", true)
	if !strings.HasPrefix(address, "/queues/amq.rabbitmq.reply-to.") {
		t.Errorf("the address %s", address)
	}
	c.publisher(0, 1, address)
	send := func(id uint32, body string) {
		t.Helper()
		c.transfer(0, onLink1(id), text(body))
		if d := await[*amqp10.Disposition](c); d.State.Descriptor() != amqp10.DescriptorAccepted {
			t.Errorf("%s: %v", body, d.State)
		}
	}
	send(0, "nobody takes it")
	c.credit(0, 0, 0, 2, false)
	c.transfer(0, onLink1(1), text("a"))
	f := awaitFrame[*amqp10.Transfer](c)
	if tr := f.is.(*amqp10.Transfer); !tr.Settled.Value || tr.Handle != 0 || c.bodyOf(f.payload) != "a" {
		t.Errorf("%+v %s", tr, f.payload)
	}
	c.credit(0, 0, 1, 4, true)
	if fl := await[*amqp10.Flow](c); !fl.Drain || fl.DeliveryCount.Value != 5 || fl.LinkCredit.Value != 0 {
		t.Errorf("%+v", fl)
	}
	send(2, "drained")
	c.credit(0, 0, 5, 1, false)
	c.fence()

	// From AMQP 0-9-1.
	other, err := amqp.Dial("amqp://guest:guest@" + n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ch, err := other.Channel()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(address, "/queues/")
	if err := ch.Publish("", name, false, false, amqp.Publishing{Body: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	if got := c.bodyOf(awaitFrame[*amqp10.Transfer](c).payload); got != "b" {
		t.Errorf("%q", got)
	}
	c.send(0, &amqp10.Detach{Handle: 0, Closed: true})
	await[*amqp10.Detach](c)
	if _, ok := n.b.Requester(name); ok {
		t.Error("the address outlives its link")
	}
}

// Other nodes are not made.
func TestDynamicNodesThatAreNone(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	for name, src := range map[string]*amqp10.Source{
		"no capability":    {Dynamic: true},
		"another":          {Dynamic: true, Capabilities: capabilities("topic")},
		"an address":       {Dynamic: true, Address: []byte("/queues/q"), Capabilities: capabilities("temporary-queue")},
		"not settled":      {Dynamic: true, ExpiryPolicy: amqp10.TerminusExpiryPolicyLinkDetach, Capabilities: capabilities("rabbitmq:volatile-queue")},
		"no expiry policy": {Dynamic: true, Capabilities: capabilities("rabbitmq:volatile-queue")},
	} {
		t.Run(name, func(t *testing.T) {
			c := n.session(t)
			c.send(0, &amqp10.Attach{Name: []byte("c"), Role: amqp10.RoleReceiver, Source: composite(src), Target: composite(&amqp10.Target{})})
			await[*amqp10.Attach](c)
			c.want(await[*amqp10.Detach](c).Error, amqp10.ConditionNotImplemented, "Dynamic source not supported")
		})
	}
}
