// Command go-amqp091 plays the common stories with amqp091-go, which leaves connecting
// again to its user.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// patience is how long whatever must come about may take.
const patience = 20 * time.Second

func main() {
	stories := map[string]func(context.Context, *amqp.Connection) error{
		"confirms": confirms, "consume": consume, "reject": reject, "retry": retry, "close": closing, "reconnect": reconnect,
	}
	if err := play(stories[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(story func(context.Context, *amqp.Connection) error) error {
	connection, err := amqp.Dial(os.Getenv("AMQP_URI"))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	return story(ctx, connection)
}

// confirming opens a channel that confirms what is published.
func confirming(connection *amqp.Connection) (*amqp.Channel, error) {
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	return channel, channel.Confirm(false)
}

// publish publishes a persistent message, mandatory, and waits until it is confirmed.
func publish(ctx context.Context, channel *amqp.Channel, exchange, key string, message amqp.Publishing) error {
	message.DeliveryMode = amqp.Persistent
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, message)
	if err != nil {
		return err
	}
	confirmed, err := confirmation.WaitContext(ctx)
	if err == nil && !confirmed {
		err = fmt.Errorf("the broker did not confirm %s", message.Body)
	}
	return err
}

// publishNumbers publishes 0 to n-1.
func publishNumbers(ctx context.Context, channel *amqp.Channel, exchange, key string, n int) error {
	for _, body := range numbers(0, n) {
		if err := publish(ctx, channel, exchange, key, amqp.Publishing{Body: []byte(body)}); err != nil {
			return err
		}
	}
	return nil
}

// declare declares a durable queue.
func declare(channel *amqp.Channel, name string, arguments amqp.Table) error {
	_, err := channel.QueueDeclare(name, true, false, false, false, arguments)
	return err
}

// bind declares a durable direct exchange and binds the queue to it.
func bind(channel *amqp.Channel, queue, exchange, key string) error {
	if err := channel.ExchangeDeclare(exchange, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
		return err
	}
	return channel.QueueBind(queue, key, exchange, false, nil)
}

// checkReady checks how many messages are ready in a queue.
func checkReady(what string, channel *amqp.Channel, queue string, want int) error {
	q, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return err
	}
	return check(what, q.Messages, want)
}

func consumer(channel *amqp.Channel, queue string) (<-chan amqp.Delivery, error) {
	return channel.Consume(queue, "", false, false, false, false, nil)
}

// take waits for n deliveries.
func take(ctx context.Context, incoming <-chan amqp.Delivery, n int) (deliveries []amqp.Delivery, err error) {
	for len(deliveries) < n {
		select {
		case d, ok := <-incoming:
			if !ok {
				return nil, fmt.Errorf("the consumer ended after %d deliveries of %d", len(deliveries), n)
			}
			deliveries = append(deliveries, d)
		case <-time.After(patience):
			return nil, fmt.Errorf("%d deliveries came, want %d", len(deliveries), n)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return deliveries, nil
}

// numbers are the bodies from one number to another, the last excluded.
func numbers(from, to int) []string {
	bodies := []string{}
	for i := from; i < to; i++ {
		bodies = append(bodies, strconv.Itoa(i))
	}
	return bodies
}

func bodies(deliveries []amqp.Delivery) []string {
	all := []string{}
	for _, d := range deliveries {
		all = append(all, string(d.Body))
	}
	return all
}
