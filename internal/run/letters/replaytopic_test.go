package letters

import (
	"context"
	"errors"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-3.5, BR-5.11: a replay is a publish by its caller. The origin in a message is its publisher's word: it gives
// nobody access to keys that he may not use, nor to an internal exchange.
func TestBR_3_5_AReplayKeepsToWhatItsUserMayPublish(t *testing.T) {
	c := open(t, broker.Options{})
	mustDeclare(t, c, "parking")
	mustDeclare(t, c, "theirs")
	for _, x := range []topology.ExchangeDecl{{Name: "orders", Type: "topic", Durable: true}, {Name: "inner", Type: "fanout", Durable: true, Internal: true}} {
		if _, err := c.DeclareExchange(x); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Bind(topology.BindingDecl{Source: x.Name, DestinationKind: topology.QueueResource, Destination: "theirs", Key: "#"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Broker().By("").Do(declare.PutUser{Name: "tenant", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.Management}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Broker().By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "tenant", Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Broker().By("").Do(declare.PutTopicPermission{TopicPermission: auth.TopicPermission{VHost: "/", User: "tenant", Exchange: "orders", Write: "^mine", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	tenant := c.Broker().As("tenant", "/")
	for _, from := range []struct {
		exchange string
		keys     amqp091.Array
		refused  bool
	}{
		{"orders", amqp091.Array{"mine.new"}, false},
		{"orders", amqp091.Array{"theirs.new"}, true},
		{"orders", amqp091.Array{"mine.new", "theirs.new"}, true},
		{"inner", amqp091.Array{"any"}, true},
	} {
		death := amqp091.Table{
			{Key: "count", Value: int64(1)}, {Key: "reason", Value: "rejected"}, {Key: "queue", Value: "work"},
			{Key: "time", Value: amqp091.Timestamp(1)}, {Key: "exchange", Value: from.exchange}, {Key: "routing-keys", Value: from.keys},
		}
		publish(t, tenant, "", "parking", "m", amqp091.PropertyList{Headers: amqp091.Table{{Key: "x-death", Value: amqp091.Array{death}}}})
		r, err := As(tenant).Replay(context.Background(), "parking", ReplayRequest{})
		var refusal *topology.Error
		if refused := errors.As(err, &refusal) && refusal.Kind == topology.AccessRefused; refused != from.refused {
			t.Errorf("%s %v: %+v, %v", from.exchange, from.keys, r, err)
		}
		if n := ready(t, c, "theirs"); (n == 0) != from.refused {
			t.Errorf("%s %v: %d messages came", from.exchange, from.keys, n)
		}
		for _, q := range []message.QueueName{"theirs", "parking"} {
			if _, err := c.Purge(q); err != nil {
				t.Fatal(err)
			}
		}
	}
}
