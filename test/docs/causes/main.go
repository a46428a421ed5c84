// Command causes is the consumer of the guide on reporting causes: it fails at every order of a queue, and says why.
//
//	causes settle|headers QUEUE
//
// With settle it tells the broker, and rejects the order. With headers it publishes the order to QUEUE.dead with headers
// that say why, and acknowledges it. It ends when the queue is empty.
package main

import (
	"fmt"
	"log"
	"os"
	"runtime/debug"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: causes settle|headers QUEUE")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(how, queue string) error {
	connection, err := amqp.DialConfig(os.Getenv("AMQP_URI"), amqp.Config{Properties: amqp.Table{
		"connection_name": "billing", "product": "causes", "version": "1.0",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	for {
		order, ok, err := channel.Get(queue, false)
		if err != nil || !ok {
			return err
		}
		failed := process(order)
		switch how {
		case "settle":
			err = settle(channel, order, failed)
		case "headers":
			err = park(channel, order, failed, queue+".dead")
		default:
			err = fmt.Errorf("%q is neither settle nor headers", how)
		}
		if err != nil {
			return err
		}
	}
}

// NoCustomer is what orders without a customer fail with.
type NoCustomer struct{ order string }

func (e *NoCustomer) Error() string { return "order " + e.order + " has no customer" }

func process(order amqp.Delivery) error { return &NoCustomer{string(order.Body)} }

// settle tells the broker why the order is rejected, and rejects it.
func settle(channel *amqp.Channel, order amqp.Delivery, failed error) error {
	err := channel.Publish("bartleby.settle", "", false, false, amqp.Publishing{
		Headers: amqp.Table{
			"delivery-tag": int64(order.DeliveryTag),
			"error-class":  fmt.Sprintf("%T", failed),
			"error":        failed.Error(),
		},
		Body: debug.Stack(),
	})
	if err != nil {
		return err
	}
	return order.Reject(false)
}

// park publishes the order to another queue with the error in headers, and acknowledges it.
func park(channel *amqp.Channel, order amqp.Delivery, failed error, queue string) error {
	headers := amqp.Table{
		"x-exception-fqcn":       fmt.Sprintf("%T", failed),
		"x-exception-message":    failed.Error(),
		"x-exception-stacktrace": string(debug.Stack()),
	}
	for key, value := range order.Headers {
		headers[key] = value
	}
	confirmed, err := channel.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
		Headers: headers, Body: order.Body, DeliveryMode: amqp.Persistent,
	})
	if err != nil {
		return err
	}
	if !confirmed.Wait() {
		return fmt.Errorf("the broker has not taken the order")
	}
	return order.Ack(false)
}
