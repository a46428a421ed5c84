package shop

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq"
)

// broker starts a broker for one test, in memory and at a port of its own: tests that
// run at once do not see each other's queues.
func broker(t *testing.T) *amqp.Channel {
	t.Helper()
	b, err := bartleby.Start(t.Context(), bartleby.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	connection, err := amqp.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

// A retry by two queues: what is rejected waits in the second one and comes back.
func TestRetriedOrderComesBack(t *testing.T) {
	t.Parallel()
	channel := broker(t)
	const wait = 50 * time.Millisecond
	for name, arguments := range map[string]amqp.Table{
		"orders":       {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.retry"},
		"orders.retry": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": wait.Milliseconds()},
	} {
		if _, err := channel.QueueDeclare(name, true, false, false, false, arguments); err != nil {
			t.Fatal(err)
		}
	}
	orders, err := channel.Consume("orders", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := channel.Publish("", "orders", false, false, amqp.Publishing{Body: []byte("two books")}); err != nil {
		t.Fatal(err)
	}

	order := <-orders
	rejected := time.Now()
	if err := order.Reject(false); err != nil {
		t.Fatal(err)
	}
	order = <-orders
	if took := time.Since(rejected); took < wait {
		t.Errorf("the order came back after %s, want %s", took, wait)
	}
	if _, died := order.Headers["x-death"]; !died || string(order.Body) != "two books" {
		t.Errorf("%q with headers %v came back, want the order and its deaths", order.Body, order.Headers)
	}
}
