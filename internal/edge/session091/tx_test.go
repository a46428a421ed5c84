package session091_test

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
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

// BR-8.11: a transaction is as large as others can wait for: what goes beyond it is refused at once, and
// the largest is carried out.
func TestBR_8_11_ATransactionIsBounded(t *testing.T) {
	const queues, most = 16, partition.MaxSteps / 16
	s := serve(t, broker.Options{})
	for _, more := range []int{0, 1} {
		c := s.client(t)
		closed := c.NotifyClose(make(chan *amqp.Error, 1))
		for i := range queues {
			c.declare(string(rune('a'+i)), nil)
			if err := c.QueueBind(string(rune('a'+i)), "", "amq.fanout", false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Tx(); err != nil {
			t.Fatal(err)
		}
		for range most + more {
			c.publish("amq.fanout", "", amqp.Publishing{})
		}
		if more == 0 {
			if err := c.TxCommit(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := <-closed; err.Code != amqp.PreconditionFailed || err.Reason != "PRECONDITION_FAILED - transaction has more than 65536 operations" {
			t.Error(err)
		}
		if got := s.client(t).length("a"); got != most {
			t.Errorf("%d messages are in a queue, want the %d that were committed", got, most)
		}
	}
}

// BR-8.11: one message may be in a transaction whatever its size, if it is allowed at all.
func TestBR_8_11_OneLargeMessageMayBeInATransaction(t *testing.T) {
	const size = partition.MaxWhole + 1
	s := serve(t, broker.Options{MaxMessageSize: size})
	c := s.client(t)
	closed := c.NotifyClose(make(chan *amqp.Error, 1))
	c.declare("q", nil)
	if err := c.Tx(); err != nil {
		t.Fatal(err)
	}
	c.publish("", "q", amqp.Publishing{Body: make([]byte, size)})
	if err := c.TxCommit(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.publish("", "q", amqp.Publishing{Body: make([]byte, size/2)})
	}
	if err := <-closed; err.Reason != "PRECONDITION_FAILED - transaction is larger than 33554432 bytes" {
		t.Error(err)
	}
}

// BR-15.13: what goes nowhere counts once its transaction is committed, and not if it is rolled back.
func TestBR_15_13_UnroutableMessagesOfATransactionCount(t *testing.T) {
	s := serve(t, broker.Options{})
	c := s.client(t)
	if err := c.Tx(); err != nil {
		t.Fatal(err)
	}
	publish := func() {
		t.Helper()
		for i := range 5 {
			if err := c.Publish("amq.direct", "nowhere", i < 2, false, amqp.Publishing{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(what string, dropped, returned uint64) {
		t.Helper()
		if d, r := s.b.Totals.Traffic[broker.LoginAMQP091].UnroutableDropped.Load(), s.b.Totals.Traffic[broker.LoginAMQP091].UnroutableReturned.Load(); d != dropped || r != returned {
			t.Errorf("%s: %d are dropped and %d returned, want %d and %d", what, d, r, dropped, returned)
		}
	}
	publish()
	if err := c.TxRollback(); err != nil {
		t.Fatal(err)
	}
	want("rolled back", 0, 0)
	publish()
	if err := c.TxCommit(); err != nil {
		t.Fatal(err)
	}
	want("committed", 3, 2)
	publish()
	if err := c.TxCommit(); err != nil {
		t.Fatal(err)
	}
	want("committed again", 6, 4)
}
