package letters

import (
	"context"
	"errors"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/wire/amqp091"
)

// letters has an exchange "orders" with the queue "work" and the queue "other" at the key "other", and dead letters of "work".
func letters(t *testing.T, c *broker.Connection, kind string, bodies ...string) {
	t.Helper()
	of := amqp091.Field{Key: "x-queue-type", Value: kind}
	mustDeclare(t, c, "dlq", of)
	mustDeclare(t, c, "work", append([]amqp091.Field{of}, toDLQ...)...)
	mustDeclare(t, c, "other", append([]amqp091.Field{of}, toDLQ...)...)
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "orders", Type: "topic", Durable: true}); err != nil {
		t.Fatal(err)
	}
	for key, queue := range map[message.RoutingKey]string{"new": "work", "other": "other"} {
		if _, err := c.Bind(topology.BindingDecl{Source: "orders", DestinationKind: topology.QueueResource, Destination: queue, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	for i, body := range bodies {
		id := "id-" + body
		publish(t, c, "orders", "new", body, amqp091.PropertyList{MessageID: &id, Headers: amqp091.Table{
			{Key: "tenant", Value: body}, {Key: "n", Value: int32(i)}, {Key: "urgent", Value: i == 0}, {Key: "list", Value: amqp091.Array{"a"}},
		}})
		reject(t, c, "work")
	}
	eventually(t, "they have died", func() bool { return ready(t, c, "dlq") == len(bodies) })
}

// DL-19.6: a replay goes to a queue, to an exchange or with a key that the request names; what it does not name is where each
// message was first published. A message that dies again goes back to where the replay sent it.
func TestDL_19_6_AReplayGoesWhereTheRequestSays(t *testing.T) {
	other, orders, nowhere := "other", message.ExchangeName("orders"), message.ExchangeName("amq.topic")
	for _, kind := range []string{"classic", "quorum"} {
		for _, tt := range []struct {
			name          string
			to            Destination
			want          string
			exchange, key string
		}{
			{"origin", Destination{}, "work", "orders", "new"},
			{"queue", Destination{Queue: "other"}, "other", "", "other"},
			{"key", Destination{Key: &other}, "other", "orders", "other"},
			{"exchange", Destination{Exchange: new(message.ExchangeName), Key: &other}, "other", "", "other"},
			{"exchange with the first key", Destination{Exchange: &orders}, "work", "orders", "new"},
			{"exchange without a route", Destination{Exchange: &nowhere}, "dlq", "", ""},
		} {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				c := open(t, broker.Options{})
				letters(t, c, kind, "a", "b")
				place := "exchange '" + tt.exchange + "' key '" + tt.key + "' -> " + tt.want
				if tt.want == "dlq" {
					r := replay(t, c, "dlq", ReplayRequest{To: tt.to})
					if r.Unroutable != 2 || r.UnroutableBy["exchange 'amq.topic' routes key 'new' to no queue"] != 2 || ready(t, c, "dlq") != 2 {
						t.Errorf("%+v", r)
					}
					return
				}
				if r := replay(t, c, "dlq", ReplayRequest{To: tt.to, DryRun: true}); r.To[place] != 2 || ready(t, c, "dlq") != 2 || ready(t, c, tt.want) != 0 {
					t.Errorf("dry run: %+v", r)
				}
				if r := replay(t, c, "dlq", ReplayRequest{To: tt.to}); r.Replayed != 2 || r.To[place] != 2 || ready(t, c, "dlq") != 0 || ready(t, c, tt.want) != 2 {
					t.Errorf("%+v, %d in %s", r, ready(t, c, tt.want), tt.want)
				}
				g, ok, err := c.Get(message.QueueName(tt.want), true)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				_, exchange, key := broker.Rendered(c.Broker().Bodies().Bytes(g.Body), deathstore.Bytes(c.Broker().Bodies(), g.History), g.Counts, false)
				c.Broker().Bodies().Release(g.Body)
				c.Broker().Bodies().Release(g.History)
				if exchange != tt.exchange || key != tt.key {
					t.Errorf("it is published to exchange %q with key %q, want %q and %q", exchange, key, tt.exchange, tt.key)
				}
				reject(t, c, tt.want)
				eventually(t, "it dies again", func() bool { return ready(t, c, "dlq") == 1 })
				if r := replay(t, c, "dlq", ReplayRequest{}); r.To[place] != 1 || ready(t, c, tt.want) != 1 {
					t.Errorf("after it died again: %+v", r)
				}
			})
		}
	}
}

// A BCC key leads a message to where it was published, and not with a replay to elsewhere, nor when it dies there.
func TestDL_19_6_AReplayElsewhereHasNoOtherKeys(t *testing.T) {
	c := open(t, broker.Options{})
	letters(t, c, "classic")
	publish(t, c, "orders", "new", "m", amqp091.PropertyList{Headers: amqp091.Table{{Key: "BCC", Value: amqp091.Array{"other"}}}})
	reject(t, c, "work")
	mustDeclare(t, c, "third", amqp091.Field{Key: "x-dead-letter-exchange", Value: "orders"})
	if r := replay(t, c, "dlq", ReplayRequest{To: Destination{Queue: "third"}}); r.Replayed != 1 || ready(t, c, "third") != 1 || ready(t, c, "other") != 1 {
		t.Errorf("%+v: %d in third, %d in other", r, ready(t, c, "third"), ready(t, c, "other"))
	}
	reject(t, c, "third")
	eventually(t, "it is dropped", func() bool { return ready(t, c, "third") == 0 })
	if n := ready(t, c, "other"); n != 1 {
		t.Errorf("%d messages in other, want the first only", n)
	}
}

// A destination that makes no sense, does not exist or may not be written to is refused before anything moves.
func TestDL_19_6_AReplayRefusesADestination(t *testing.T) {
	c := open(t, broker.Options{})
	letters(t, c, "classic", "a")
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "inner", Type: "fanout", Durable: true, Internal: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Broker().By("").Do(declare.PutUser{Name: "tenant", Password: auth.PasswordHash{}, Tags: []auth.Tag{auth.Management}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Broker().By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "tenant", Write: "^(orders|nope|inner)$", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	exchange := func(name message.ExchangeName) *message.ExchangeName { return &name }
	long, broken := strings.Repeat("k", 256), "\xff"
	for _, tt := range []struct {
		user string
		to   Destination
		kind topology.Kind
		text string
	}{
		{"guest", Destination{Queue: "nope"}, topology.PreconditionFailed, "the queue 'nope' does not exist"},
		{"guest", Destination{Queue: "dlq"}, topology.PreconditionFailed, "the destination is the queue itself"},
		{"guest", Destination{Queue: "work", Exchange: exchange("orders")}, topology.PreconditionFailed, "cannot be combined"},
		{"guest", Destination{Exchange: exchange("nope")}, topology.PreconditionFailed, "the exchange 'nope' does not exist"},
		{"guest", Destination{Exchange: exchange("in%sner")}, topology.PreconditionFailed, "the exchange 'in%sner' does not exist"},
		{"guest", Destination{Exchange: exchange("inner")}, topology.AccessRefused, "internal exchange 'inner'"},
		{"guest", Destination{Key: &long}, topology.PreconditionFailed, "at most 255 bytes"},
		{"guest", Destination{Key: &broken}, topology.PreconditionFailed, "must be UTF-8"},
		{"tenant", Destination{Queue: "work"}, topology.AccessRefused, "amq.default"},
		{"tenant", Destination{Exchange: exchange("amq.topic")}, topology.AccessRefused, "exchange 'amq.topic'"},
	} {
		for _, dry := range []bool{true, false} {
			_, err := As(c.Broker().As(tt.user, "/")).Replay(context.Background(), "dlq", ReplayRequest{To: tt.to, DryRun: dry})
			var refused *topology.Error
			if !errors.As(err, &refused) || refused.Kind != tt.kind || !strings.Contains(refused.Text, tt.text) {
				t.Errorf("%+v: %v, want %v with %q", tt.to, err, tt.kind, tt.text)
			}
		}
	}
	if n := ready(t, c, "dlq"); n != 1 {
		t.Errorf("%d dead letters are left, want 1", n)
	}
	if r, err := As(c.Broker().As("tenant", "/")).Replay(context.Background(), "dlq", ReplayRequest{To: Destination{Exchange: exchange("orders")}}); err != nil || r.Replayed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// DL-19.6: filters choose by message id, by headers as a consumer would see them, and by whether a replay has moved the
// message before. The result names by their last death what they left out.
func TestDL_19_6_FiltersByPropertiesAndReplays(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		c := open(t, broker.Options{})
		letters(t, c, kind, "a", "b", "c")
		if r := replay(t, c, "dlq", ReplayRequest{MessageID: "id-b"}); r.Replayed != 1 || r.PassedBy["rejected in queue 'work'"] != 2 {
			t.Errorf("by id: %+v", r)
		}
		reject(t, c, "work")
		eventually(t, "b dies again", func() bool { return ready(t, c, "dlq") == 3 })
		yes, no := true, false
		for _, tt := range []struct {
			name string
			r    ReplayRequest
			want int
		}{
			{"text", ReplayRequest{Headers: []HeaderValue{{"tenant", "a"}}}, 1},
			{"a number", ReplayRequest{Headers: []HeaderValue{{"n", "2"}}}, 1},
			{"a boolean", ReplayRequest{Headers: []HeaderValue{{"urgent", "false"}}}, 2},
			{"both", ReplayRequest{Headers: []HeaderValue{{"tenant", "a"}, {"n", "2"}}}, 0},
			{"a header of the broker", ReplayRequest{Headers: []HeaderValue{{"x-first-death-queue", "work"}}}, 3},
			{"a list", ReplayRequest{Headers: []HeaderValue{{"list", "a"}}}, 0},
			{"no such header", ReplayRequest{Headers: []HeaderValue{{"nope", ""}}}, 0},
			{"replayed", ReplayRequest{Replayed: &yes}, 1},
			{"replayed from here", ReplayRequest{Headers: []HeaderValue{{"x-replayed-from", "dlq"}}}, 1},
			{"not replayed", ReplayRequest{Replayed: &no}, 2},
			{"another reason and an id", ReplayRequest{Queue: "nope", MessageID: "id-a"}, 0},
		} {
			tt.r.DryRun = true
			if r := replay(t, c, "dlq", tt.r); r.Matched != tt.want || r.PassedBy["rejected in queue 'work'"] != 3-tt.want {
				t.Errorf("%s %s: %+v, want %d matched", kind, tt.name, r, tt.want)
			}
		}
	}
}
