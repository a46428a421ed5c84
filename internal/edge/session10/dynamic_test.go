package session10_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/edge/session10"
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
	c.want(await[*amqp10.Detach](c).Error, amqp10.ConditionResourceDeleted, "") // of the publisher
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
	c.begin(1, 1000) // the session of a requester does not see it, as in RabbitMQ
	c.publisher(1, 1, address)
	send := func(id uint32, body string) {
		t.Helper()
		c.transfer(1, onLink1(id), text(body))
		if d := await[*amqp10.Disposition](c); d.State.Descriptor() != amqp10.DescriptorAccepted {
			t.Errorf("%s: %v", body, d.State)
		}
	}
	send(0, "nobody takes it")
	c.credit(0, 0, 0, 2, false)
	c.transfer(1, onLink1(1), text("a"))
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

// A queue that is deleted takes the links with it that have sent to it; others learn of it by their next message.
func TestADeletedQueueDetachesItsPublishers(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	n.declare(t, "other", nil)
	c := n.session(t)
	c.publisher(0, 0, "/queues/q")
	c.publisher(0, 1, "/queues/q")
	c.publisher(0, 2, "/queues/other")
	c.transfer(0, onLink1(0), text("a"))
	await[*amqp10.Disposition](c)
	if _, err := n.b.Connections()[0].DeleteQueue("q", false, false); err != nil {
		t.Fatal(err)
	}
	for _, handle := range []uint32{1, 0} {
		d := await[*amqp10.Detach](c)
		if d.Handle != handle || !d.Closed {
			t.Errorf("%+v", d)
		}
		c.want(d.Error, amqp10.ConditionResourceDeleted, "")
	}
	tr := one(1)
	tr.Handle = 2
	c.transfer(0, tr, text("b"))
	if d := await[*amqp10.Disposition](c); d.State.Descriptor() != amqp10.DescriptorAccepted {
		t.Errorf("%+v", d)
	}
}

// What a link holds goes back in its order when the link is detached.
func TestADetachGivesBackInOrder(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	bodies := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	n.publish(t, "q", bodies...)
	c := n.session(t)
	c.consumer(0, 0, "q", 8)
	for range bodies {
		awaitTransfer(c)
	}
	c.consumer(0, 1, "q", 8)
	c.send(0, &amqp10.Detach{Handle: 0, Closed: true})
	for _, want := range bodies {
		if got := c.bodyOf(awaitFrame[*amqp10.Transfer](c).payload); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Conditions of a broken protocol are RabbitMQ's in strict mode, which fails there.
func TestViolations(t *testing.T) {
	for _, strict := range []bool{false, true} {
		n := serve(t, broker.Options{}, func(o *session10.Options) { o.Strict = strict })
		condition := amqp10.ConditionInvalidField
		if strict {
			condition = amqp10.ConditionInternalError
		}
		c := n.session(t)
		c.send(0, &amqp10.Attach{Name: []byte("p"), Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), Target: composite(&amqp10.Target{Address: []byte("/exchanges/amq.topic")})})
		c.want(await[*amqp10.End](c).Error, condition, "initial-delivery-count")
		c.send(5, &amqp10.Begin{RemoteChannel: amqp10.Some[uint16](3)})
		c.want(await[*amqp10.Close](c).Error, condition, "remote-channel")
	}
}

// Names that are no UTF-8 do not spoil the frame that tells of them.
func TestANameThatIsNoUTF8(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	c.send(0, &amqp10.Attach{Name: []byte("c"), Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: []byte("/queues/%ff")}), Target: composite(&amqp10.Target{})})
	await[*amqp10.Attach](c)
	c.want(await[*amqp10.Detach](c).Error, amqp10.ConditionNotFound, "no queue 'ÿ' in vhost '/'")
}

// A link that is refused after its temporary queue was made leaves none behind.
func TestARefusedLinkLeavesNoTemporaryQueue(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	c := n.session(t)
	c.send(0, &amqp10.Attach{
		Name: []byte("t"), Role: amqp10.RoleSender, InitialDeliveryCount: amqp10.Some[uint32](0),
		Source: composite(&amqp10.Source{Outcomes: capabilities("amqp:unheard-of:list")}),
		Target: composite(&amqp10.Target{Dynamic: true, Capabilities: capabilities("temporary-queue")}),
	})
	await[*amqp10.Attach](c)
	c.want(await[*amqp10.Detach](c).Error, amqp10.ConditionNotImplemented, "Outcomes not supported")
	if made, gone := n.b.Totals.QueuesCreated.Load(), n.b.Totals.QueuesGone.Load(); made != 1 || gone != 1 {
		t.Errorf("%d queues were made and %d deleted", made, gone)
	}
}
