package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/declare"
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
	if _, err := s.b.By("").Do(declare.PutVHost{Name: "/", Change: declare.VHostChange{Tracing: new(true)}}); err != nil {
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

// What a client does is told as events, in order: its login, its connection, channel and consumers, and their ends.
func TestEventsOfAClient(t *testing.T) {
	s := serve(t, broker.Options{Events: broker.EventExchange{Enabled: true, VHost: "/"}})
	listener := s.client(t)
	listener.declare("q", nil)
	listener.declare("events", nil)
	for _, key := range []string{"connection.*", "channel.*", "consumer.*", "user.authentication.*"} {
		if err := listener.QueueBind("events", key, "amq.rabbitmq.event", false, nil); err != nil {
			t.Fatal(err)
		}
	}
	c, err := amqp.DialConfig("amqp://guest:guest@"+s.addr, amqp.Config{Properties: amqp.Table{"connection_name": "mine"}})
	if err != nil {
		t.Fatal(err)
	}
	ch := must[*amqp.Channel](t)(c.Channel())
	must[<-chan amqp.Delivery](t)(ch.Consume("q", "first", false, true, false, false, nil))
	if err := ch.Cancel("first", false); err != nil {
		t.Fatal(err)
	}
	must[<-chan amqp.Delivery](t)(ch.Consume("q", "second", true, false, false, false, amqp.Table{"x-priority": int32(3)}))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := amqp.Dial("amqp://guest:wrong@" + s.addr); err == nil {
		t.Fatal("logged in with a wrong password")
	}
	pids := map[string]any{}
	for _, want := range []struct {
		key  string
		with amqp.Table
	}{
		{"user.authentication.success", amqp.Table{"name": "guest", "auth_mechanism": "PLAIN", "connection_type": "network", "ssl": false}},
		{"connection.created", amqp.Table{"user": "guest", "vhost": "/", "user_provided_name": "mine", "type": "network", "protocol": "{0,9,1}", "channel_max": int64(2047), "ssl": false}},
		{"channel.created", amqp.Table{"number": int64(1), "user": "guest", "vhost": "/"}},
		{"consumer.created", amqp.Table{"consumer_tag": "first", "queue": "q", "exclusive": true, "ack_required": true, "prefetch_count": int64(0)}},
		{"consumer.deleted", amqp.Table{"consumer_tag": "first", "queue": "q", "user_who_performed_action": "guest"}},
		{"consumer.created", amqp.Table{"consumer_tag": "second", "queue": "q", "exclusive": false, "ack_required": false}},
		{"channel.closed", amqp.Table{"consumer_count": int64(1), "user_who_performed_action": "guest"}},
		{"connection.closed", amqp.Table{"user_provided_name": "mine"}},
		{"user.authentication.failure", amqp.Table{"name": "guest", "error": "user 'guest' - invalid credentials"}},
	} {
		d := listener.await("events")
		if d.RoutingKey != want.key || d.Exchange != "amq.rabbitmq.event" {
			t.Fatalf("got %s %v, want %s", d.RoutingKey, d.Headers, want.key)
		}
		for name, value := range want.with {
			if d.Headers[name] != value {
				t.Errorf("%s: %s is %v, want %v", want.key, name, d.Headers[name], value)
			}
		}
		switch want.key {
		case "connection.created", "channel.created":
			pids[want.key] = d.Headers["pid"]
		case "connection.closed", "channel.closed":
			if before := want.key[:len(want.key)-len("closed")] + "created"; d.Headers["pid"] != pids[before] || pids[before] == nil {
				t.Errorf("%s has pid %v, %s had %v", want.key, d.Headers["pid"], before, pids[before])
			}
		case "consumer.created", "consumer.deleted":
			if d.Headers["channel"] != pids["channel.created"] {
				t.Errorf("%s has channel %v, which was %v", want.key, d.Headers["channel"], pids["channel.created"])
			}
		}
	}
}
