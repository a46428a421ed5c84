package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// What a consumer gets is copied with the number of its channel, its connection and whether it came before; the confirms of a
// traced publisher do not wait for a queue of copies that refuses them.
func TestDeliveriesAreTraced(t *testing.T) {
	s := serve(t, broker.Options{NodeName: "rabbit@here"})
	first := s.client(t)
	first.declare("q", nil)
	first.declare("copies", amqp.Table{"x-queue-type": "quorum"})
	if err := first.QueueBind("copies", "deliver.q", "amq.rabbitmq.trace", false, nil); err != nil {
		t.Fatal(err)
	}
	revise := func(m topology.Metadata) topology.Metadata { m.Tracing = true; return m }
	if _, err := s.b.ReviseVHost("/", revise, nil); err != nil {
		t.Fatal(err)
	}
	c := s.client(t)
	from := c.consume("q")
	first.publish("", "q", amqp.Publishing{Body: []byte("m"), MessageId: "id", DeliveryMode: 2, Headers: amqp.Table{"h": "v"}})
	if err := c.next(from).Nack(false, true); err != nil {
		t.Fatal(err)
	}
	c.next(from)
	first.awaitLength("copies", 2)
	for _, redelivered := range []int32{0, 1} {
		d := first.await("copies")
		h := d.Headers
		props, _ := h["properties"].(amqp.Table)
		if d.Exchange != "amq.rabbitmq.trace" || string(d.Body) != "m" || h["redelivered"] != redelivered || h["channel"] != int32(1) || h["node"] != "rabbit@here" ||
			h["user"] != "guest" || h["vhost"] != "/" || props["message_id"] != "id" || props["delivery_mode"] != int32(2) || h["exchange_name"] != "" {
			t.Errorf("copy %+v", d)
		}
		if d.DeliveryMode != 0 || d.MessageId != "" {
			t.Errorf("the copy has properties of the message: %+v", d)
		}
	}
}
