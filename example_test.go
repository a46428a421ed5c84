package bartleby_test

import (
	"context"
	"fmt"
	"log"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq"
)

// A broker in memory, and a message that is rejected into the queue for the dead.
func Example() {
	broker, err := bartleby.Start(context.Background(), bartleby.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = broker.Stop() }()

	connection, err := amqp.Dial(broker.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	channel, err := connection.Channel()
	if err != nil {
		log.Fatal(err)
	}
	for name, arguments := range map[string]amqp.Table{
		"orders":      {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"},
		"orders.dead": nil,
	} {
		if _, err := channel.QueueDeclare(name, true, false, false, false, arguments); err != nil {
			log.Fatal(err)
		}
	}
	if err := channel.Publish("", "orders", false, false, amqp.Publishing{Body: []byte("two books")}); err != nil {
		log.Fatal(err)
	}

	order, _, err := channel.Get("orders", false)
	if err != nil {
		log.Fatal(err)
	}
	if err := order.Reject(false); err != nil {
		log.Fatal(err)
	}
	dead, _, err := channel.Get("orders.dead", true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s in %s\n", dead.Body, dead.Headers["x-first-death-reason"], dead.Headers["x-first-death-queue"])
	// Output: two books: rejected in orders
}
