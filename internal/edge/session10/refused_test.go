package session10_test

import (
	"slices"
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// Clients send credit, messages and detach behind an attach without waiting for its answer. If the link is refused, credit and messages
// find no link and end the session, as in RabbitMQ; a detach is not answered again. The client hears first why there is no link.
func TestWhatComesBehindARefusedAttach(t *testing.T) {
	n := serve(t, broker.Options{}, nil)
	n.declare(t, "q", nil)
	nowhere := []byte("/queues/nope")
	sender := amqp10.AppendFrame(nil, 0, &amqp10.Attach{
		Name: []byte("p"), Role: amqp10.RoleSender, Source: composite(&amqp10.Source{}), Target: composite(&amqp10.Target{Address: nowhere}), InitialDeliveryCount: amqp10.Some[uint32](0),
	})
	receiver := amqp10.AppendFrame(nil, 0, &amqp10.Attach{
		Name: []byte("c"), Role: amqp10.RoleReceiver, Source: composite(&amqp10.Source{Address: nowhere}), Target: composite(&amqp10.Target{}),
	})
	credit := &amqp10.Flow{
		NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 100, OutgoingWindow: 100,
		Handle: amqp10.Some[uint32](0), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](10),
	}
	first, second := one(0), one(1)
	messages, _ := amqp10.AppendTransfer(slices.Clip(sender), 0, &first, 1<<20, 0, text("a"))
	messages, _ = amqp10.AppendTransfer(messages, 0, &second, 1<<20, 0, text("b"))
	for name, s := range map[string]struct {
		bytes []byte
		ends  string
	}{
		"credit":   {amqp10.AppendFrame(receiver, 0, credit), "Unattached link handle: 0"},
		"messages": {messages, "Unknown link handle: 0"},
		"detach":   {amqp10.AppendFrame(slices.Clip(sender), 0, &amqp10.Detach{Closed: true}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := n.session(t)
			c.write(s.bytes)
			await[*amqp10.Attach](c)
			c.want(awaitDetach(c).Error, amqp10.ConditionNotFound, "no queue 'nope' in vhost '/'")
			if s.ends != "" {
				c.want(awaitEnd(c).Error, amqp10.ConditionUnattachedHandle, s.ends)
				c.begin(0, 1000)
			}
			c.publisher(0, 0, "/queues/q") // the handle is free
			c.transfer(0, one(0), text("m"))
			await[*amqp10.Disposition](c)
		})
	}
}
