package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What a client has rejected, or what has expired, before it deletes the queue has died: it is not lost with it.
func TestDeletedQueueLeavesItsDead(t *testing.T) {
	const messages = 1500
	for _, kind := range []string{"classic", "quorum"} {
		for _, target := range []string{"classic", "quorum"} {
			t.Run(kind+" to "+target, func(t *testing.T) {
				s := serve(t, broker.Options{})
				c := s.client(t)
				c.declare("dead", amqp.Table{"x-queue-type": target})
				c.declare("q", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
				c.fill("q", messages)
				from := c.consume("q")
				var last amqp.Delivery
				for range messages {
					last = c.next(from)
				}
				if err := last.Nack(true, false); err != nil {
					t.Fatal(err)
				}
				must[int](t)(c.QueueDelete("q", false, false, false))
				dead := c.consume("dead")
				for range messages {
					c.next(dead)
				}
			})
		}
	}
}

// The same where the rejection and the deletion come in one write.
func TestRejectedAndDeletedInOneWrite(t *testing.T) {
	const messages = 1500
	for _, kind := range []string{"classic", "quorum"} {
		for _, target := range []string{"classic", "quorum"} {
			t.Run(kind+" to "+target, func(t *testing.T) {
				s := serve(t, broker.Options{})
				c := s.client(t)
				c.declare("dead", amqp.Table{"x-queue-type": target})
				c.declare("q", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
				c.fill("q", messages)
				w := s.login(t)
				w.methods(1, amqp091.BasicConsume{Queue: "q"})
				last := uint64(0)
				for range messages {
					last = await[*amqp091.BasicDeliver](w).DeliveryTag
				}
				w.methods(1, amqp091.BasicNack{DeliveryTag: last, Multiple: true}, amqp091.QueueDelete{Queue: "q"})
				await[*amqp091.QueueDeleteOk](w)
				dead := c.consume("dead")
				for range messages {
					c.next(dead)
				}
				if n := c.length("dead"); n != 0 {
					t.Errorf("%d dead letters too many", n)
				}
			})
		}
	}
}
