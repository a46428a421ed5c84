package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// histories returns those of all messages in a queue, in its order. It waits until there are n.
func (s *server) histories(t testing.TB, name message.QueueName, n int) (list []deadletter.History) {
	t.Helper()
	eventually(t, "the dead letters", func() bool {
		var q broker.QueueInfo
		s.b.Read(func(state *topology.State, _ *auth.Users) {
			v, _ := state.VHost("/")
			v.EachQueue(func(decl *topology.Queue) {
				if decl.Name == name {
					q = broker.Describe(decl)
				}
			})
		})
		list = list[:0]
		_, _, err := letters.Browse(t.Context(), s.b, q, queue.Cursor{}, 10_000, func(_ queue.View, _ message.Record, stored []byte) bool {
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
		return len(list) == n
	})
	return list
}

// named is a channel of a client that says who it is.
func (s *server) named(t testing.TB, properties amqp.Table) *amqp.Channel {
	t.Helper()
	c, err := amqp.DialConfig("amqp://guest:guest@"+s.addr, amqp.Config{Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return must[*amqp.Channel](t)(c.Channel())
}

// dying declares a queue of a type whose dead letters go to "dead".
func dying(t testing.TB, ch *amqp.Channel, name, kind string, more amqp.Table) {
	t.Helper()
	args := amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
	for k, v := range more {
		args[k] = v
	}
	must[amqp.Queue](t)(ch.QueueDeclare(name, true, false, false, false, args))
	must[amqp.Queue](t)(ch.QueueDeclare("dead", true, false, false, false, nil))
}

// Who rejected a message is in its history, on classic and on quorum queues: also who had it last when it died of its
// delivery limit, by a nack, a reject or the end of its channel.
func TestWhoRejectedIsKept(t *testing.T) {
	long := make([]byte, 200)
	for i := range long {
		long[i] = 'v'
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, broker.Options{})
			ch := s.named(t, amqp.Table{"product": "shop", "version": string(long), "connection_name": "billing"})
			dying(t, ch, "q", kind, nil)
			deliveries := must[<-chan amqp.Delivery](t)(ch.Consume("q", "tag", false, false, false, false, nil))
			want := deadletter.Cause{
				ConsumerTag: "tag", Connection: s.b.Connections()[0].Name, User: "guest", Name: "billing", Product: "shop", Version: string(long[:64]),
			}
			for i, end := range []func(d *amqp.Delivery) error{
				func(d *amqp.Delivery) error { return d.Reject(false) },
				func(d *amqp.Delivery) error { return d.Nack(false, false) },
			} {
				if err := ch.Publish("", "q", false, false, amqp.Publishing{}); err != nil {
					t.Fatal(err)
				}
				d := <-deliveries
				if err := end(&d); err != nil {
					t.Fatal(err)
				}
				want := want
				want.DeliveryCount = uint32(1 - i) // a reject is a failure, a nack is none
				if got := s.histories(t, "dead", i+1)[i].Cause; got != want {
					t.Errorf("%d: %+v\nwant %+v", i, got, want)
				}
			}
			if kind == "classic" {
				return // it has no delivery limit
			}
			dying(t, ch, "limited", kind, amqp.Table{"x-delivery-limit": 1})
			limited := must[<-chan amqp.Delivery](t)(ch.Consume("limited", "limited", false, false, false, false, nil))
			if err := ch.Publish("", "limited", false, false, amqp.Publishing{}); err != nil {
				t.Fatal(err)
			}
			d := <-limited
			if err := d.Reject(true); err != nil {
				t.Fatal(err)
			}
			<-limited
			if err := ch.Close(); err != nil {
				t.Fatal(err)
			}
			want.ConsumerTag, want.DeliveryCount = "limited", 2
			if got := s.histories(t, "dead", 3)[2]; got.Cause != want || got.Deaths[0].Reason != deadletter.DeliveryLimit {
				t.Errorf("%v, %+v\nwant %+v", got.Deaths[0].Reason, got.Cause, want)
			}
		})
	}
}
