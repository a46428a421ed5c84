package session091_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// BR-8.11: what a transaction has published and settled stays so when the power fails at its commit-ok.
func TestBR_8_11_ACommittedTransactionIsDurable(t *testing.T) {
	ack := func(d amqp.Delivery) error { return d.Ack(false) }
	reject := func(d amqp.Delivery) error { return d.Reject(false) }
	nack := func(d amqp.Delivery) error { return d.Nack(false, true) }
	const n = 20
	for _, tc := range []struct {
		name     string
		from, to []string // types of the queues settled in, and of those published to
		settle   func(amqp.Delivery) error
		left     int // in each queue settled in
		dead     int
	}{
		{"acks alone", []string{"classic"}, nil, ack, 0, 0},
		{"acks of a quorum queue alone", []string{"quorum"}, nil, ack, 0, 0},
		{"classic, classic", []string{"classic"}, []string{"classic"}, ack, 0, 0},
		{"classic, quorum", []string{"classic"}, []string{"quorum"}, ack, 0, 0},
		{"quorum, classic", []string{"quorum"}, []string{"classic"}, ack, 0, 0},
		{"quorum, quorum", []string{"quorum"}, []string{"quorum"}, ack, 0, 0},
		{"several of each", []string{"classic", "quorum", "classic", "classic", "quorum"}, []string{"quorum", "classic", "classic"}, ack, 0, 0},
		{"rejects alone", []string{"classic"}, nil, reject, 0, n},
		{"rejects in several, and publishes", []string{"classic", "quorum", "classic"}, []string{"quorum", "classic"}, reject, 0, 3 * n},
		{"nacks", []string{"classic", "quorum"}, []string{"quorum"}, nack, n, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := vfs.NewCrashableMem()
			s := serve(t, broker.Options{FS: files})
			c := s.client(t)
			c.declare("dead", nil)
			name := func(prefix string, i int) string { return prefix + string(rune('a'+i)) }
			for i, kind := range tc.from {
				c.declare(name("from ", i), amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
			}
			for i, kind := range tc.to {
				c.declare(name("to ", i), amqp.Table{"x-queue-type": kind})
			}
			if err := c.Confirm(false); err != nil {
				t.Fatal(err)
			}
			confirms := c.NotifyPublish(make(chan amqp.Confirmation, n*len(tc.from)))
			for i := range tc.from {
				for range n {
					c.publish("", name("from ", i), amqp.Publishing{DeliveryMode: amqp.Persistent})
				}
			}
			for range n * len(tc.from) {
				if !(<-confirms).Ack {
					t.Fatal("a message was refused")
				}
			}
			c = s.client(t)
			if err := c.Tx(); err != nil {
				t.Fatal(err)
			}
			for i := range tc.from {
				for range n {
					if err := tc.settle(c.awaitUnsettled(name("from ", i))); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range tc.to {
				for range n {
					c.publish("", name("to ", i), amqp.Publishing{DeliveryMode: amqp.Persistent})
				}
			}
			if err := c.TxCommit(); err != nil {
				t.Fatal(err)
			}
			c = serve(t, broker.Options{FS: files.CrashClone(vfs.CrashCloneCfg{})}).client(t)
			for range tc.dead {
				c.await("dead")
			}
			for i := range tc.from {
				if got := c.length(name("from ", i)); got != tc.left {
					t.Errorf("%d messages are left in %s, want %d", got, name("from ", i), tc.left)
				}
			}
			for i := range tc.to {
				if got := c.length(name("to ", i)); got != n {
					t.Errorf("%d messages are in %s, want %d", got, name("to ", i), n)
				}
			}
			if _, more, err := c.Get("dead", true); more || err != nil {
				t.Error("there are more dead letters: ", err)
			}
		})
	}
}
