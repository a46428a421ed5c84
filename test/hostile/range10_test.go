package hostile

import (
	"bytes"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// One frame that ends very many deliveries, with as much about each as may be said.
func TestRange10(t *testing.T) {
	const count = 20_000
	outcomes := map[string]amqp10.Composite{
		"modified": &amqp10.Modified{MessageAnnotations: much(0)},
		"failed":   &amqp10.Modified{DeliveryFailed: true, MessageAnnotations: much(0)},
		"not here": &amqp10.Modified{UndeliverableHere: true, MessageAnnotations: much(0)},
		"rejected": &amqp10.Rejected{Error: &amqp10.Error{Condition: []byte("c"), Description: bytes.Repeat([]byte("d"), 16_000)}},
	}
	for _, kind := range []string{"classic", "quorum"} {
		for what, outcome := range outcomes {
			t.Run(kind+" "+what, func(t *testing.T) {
				start10(t)
				queue10(t, "dead", kind, 0, 0)
				filled(t, "q", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, count, 100)
				beside(t, 128*mib, func() func() {
					c := session10(t)
					c.perform(0, receiving(0, "c", "q"), credit(0, 0, count, false, false))
					for got := 0; got < count; {
						f := c.next()
						if f == nil {
							t.Fatalf("it ended after %d deliveries", got)
						}
						if _, ok := f.Is.(*amqp10.Transfer); ok {
							got++
						}
					}
					go c.drain()
					c.perform(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](count - 1), Settled: true, State: client10.Described(outcome)})
					time.Sleep(time.Second)
					return func() { _ = c.Close() }
				})
			})
		}
	}
}
