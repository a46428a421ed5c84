package crash

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// DL-22.1: failures that were counted before a kill are there after it, and what was out at the kill has failed once
// more, on every type of queue.
func TestDL_22_1_KilledWhileCounting(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers")
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			o := node.Options{Bin: *binary, Dir: t.TempDir(), Config: "profile = apsaramq\napsaramq.max_redeliveries = 5\n"}
			round(t, o, func(ch *amqp.Channel) {
				declareFor(t, ch, "marker", nil)
				declareFor(t, ch, "dead", nil)
				declareFor(t, ch, "source", amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
				publishSafely(t, ch, "source")
			})
			for range 3 { // two failures in each: a nack and the kill
				round(t, o, func(ch *amqp.Channel) {
					deliveries, err := ch.Consume("source", "", false, false, false, false, nil)
					if err != nil {
						t.Fatal(err)
					}
					d := soon(t, deliveries)
					if err := d.Nack(false, true); err != nil {
						t.Fatal(err)
					}
					soon(t, deliveries)
					publishSafely(t, ch, "marker") // and with it all that was before
				})
			}
			round(t, o, func(ch *amqp.Channel) {
				deliveries, err := ch.Consume("dead", "", true, false, false, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				if d := soon(t, deliveries); d.Headers["x-first-death-reason"] != "consumption_limit_exceeded" || d.Headers["x-death-total"] != int64(1) {
					t.Errorf("headers %v", d.Headers)
				}
			})
		})
	}
}

// round starts a server, lets f work with it, and kills it.
func round(t *testing.T, o node.Options, f func(ch *amqp.Channel)) {
	t.Helper()
	n, err := node.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	conn, err := dial(n.AMQP)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	f(ch)
}

func declareFor(t *testing.T, ch *amqp.Channel, queue string, args amqp.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// publishSafely publishes a persistent message and waits for its confirm.
func publishSafely(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	c, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte("m"), DeliveryMode: amqp.Persistent})
	if err != nil || !c.Wait() {
		t.Fatal("not confirmed", err)
	}
}

func soon(t *testing.T, deliveries <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case d, ok := <-deliveries:
		if ok {
			return d
		}
	case <-time.After(30 * time.Second):
	}
	t.Fatal("nothing was delivered")
	return amqp.Delivery{}
}
