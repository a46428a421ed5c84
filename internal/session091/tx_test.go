package session091_test

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/broker"
)

// DL-10.7: a commit fails if any of its publishes was refused, wherever it stands, and whatever was
// logged before it.
func TestCommitTellsOfEveryRefusal(t *testing.T) {
	full := amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"}
	for _, kind := range []string{"classic", "quorum"} {
		for _, order := range [][]string{{"full", "open"}, {"open", "full"}, {"open", "open", "full", "open"}, {"other", "full"}, {"other", "full", "open"}} {
			t.Run(kind, func(t *testing.T) {
				s := serve(t, broker.Options{})
				c := s.client(t)
				args := amqp.Table{"x-queue-type": kind}
				c.declare("open", args)
				c.declare("other", amqp.Table{"x-queue-type": map[string]string{"classic": "quorum", "quorum": "classic"}[kind]})
				limited := amqp.Table{"x-queue-type": kind}
				for k, v := range full {
					limited[k] = v
				}
				c.declare("full", limited)
				if err := c.Confirm(false); err != nil {
					t.Fatal(err)
				}
				confirms := c.NotifyPublish(make(chan amqp.Confirmation, 3))
				for range 3 { // a quorum queue refuses once it is over its limit
					c.publish("", "full", amqp.Publishing{DeliveryMode: amqp.Persistent})
					<-confirms
				}
				c = s.client(t)
				if err := c.Tx(); err != nil {
					t.Fatal(err)
				}
				for _, to := range order {
					c.publish("", to, amqp.Publishing{DeliveryMode: amqp.Persistent})
				}
				var refused *amqp.Error
				if err := c.TxCommit(); !errors.As(err, &refused) || refused.Code != amqp.PreconditionFailed || refused.Reason != "PRECONDITION_FAILED - partial tx completion" {
					t.Fatalf("commit of publishes to %v: %v", order, err)
				}
			})
		}
	}
}
