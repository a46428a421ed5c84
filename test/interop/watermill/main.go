// Command watermill plays the common stories with Watermill's publisher and subscriber
// for AMQP, and those of its middleware for failing handlers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

// patience is how long whatever must come about may take.
const patience = 20 * time.Second

func main() {
	stories := map[string]func(context.Context) error{
		"confirms": confirms, "consume": consume, "reject": reject, "retry": retry, "reconnect": reconnect, "nack": nack, "poison": poison,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	err := stories[os.Args[1]](ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// logger is silent: reconnecting is told as an error many times.
var logger = watermill.NopLogger{}

// queues is Watermill's configuration of a durable queue for each topic; publishing
// waits for the confirmation.
func queues() wamqp.Config {
	config := wamqp.NewDurableQueueConfig(os.Getenv("AMQP_URI"))
	config.Marshaler = marshaler{}
	config.Publish.ConfirmDelivery = true
	config.Publish.ChannelPoolSize = 1
	return config
}

// deadLetterTo has what a handler refuses go to another queue.
func deadLetterTo(config wamqp.Config, exchange, key string) wamqp.Config {
	config.Consume.NoRequeueOnNack = true
	config.Queue.Arguments = amqp.Table{"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}
	return config
}

// marshaler is Watermill's own but for headers that are not strings, as a dead
// letter's are: Watermill refuses them; here they become JSON.
type marshaler struct{ wamqp.DefaultMarshaler }

// Unmarshal makes a message of a delivery.
func (m marshaler) Unmarshal(d amqp.Delivery) (*message.Message, error) {
	headers := amqp.Table{}
	for key, value := range d.Headers {
		if _, ok := value.(string); !ok {
			text, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			value = string(text)
		}
		headers[key] = value
	}
	d.Headers = headers
	return m.DefaultMarshaler.Unmarshal(d)
}

// death is an entry of x-death, as marshaler has it.
type death struct {
	Reason   string    `json:"reason"`
	Queue    string    `json:"queue"`
	Exchange string    `json:"exchange"`
	Keys     []string  `json:"routing-keys"`
	Count    int       `json:"count"`
	Time     time.Time `json:"time"`
}

func deaths(msg *message.Message) (all []death, err error) {
	text := msg.Metadata.Get("x-death")
	if text == "" {
		return nil, nil
	}
	return all, json.Unmarshal([]byte(text), &all)
}

// countOf is how often the message died in the queue for the reason.
func countOf(all []death, queue, reason string) int {
	for _, d := range all {
		if d.Queue == queue && d.Reason == reason {
			return d.Count
		}
	}
	return 0
}

// publish publishes messages to a topic and waits until they are confirmed.
func publish(config wamqp.Config, topic string, bodies ...string) error {
	publisher, err := wamqp.NewPublisher(config, logger)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	for _, body := range bodies {
		if err := publisher.Publish(topic, message.NewMessage("id-"+body, []byte(body))); err != nil {
			return err
		}
	}
	return nil
}

// declare makes the queue of a topic.
func declare(config wamqp.Config, topic string) error {
	subscriber, err := wamqp.NewSubscriber(config, logger)
	if err != nil {
		return err
	}
	defer func() { _ = subscriber.Close() }()
	return subscriber.SubscribeInitialize(topic)
}

// subscribe returns the messages of a topic until the context ends.
func subscribe(ctx context.Context, config wamqp.Config, topic string) (<-chan *message.Message, error) {
	subscriber, err := wamqp.NewSubscriber(config, logger)
	if err != nil {
		return nil, err
	}
	return subscriber.Subscribe(ctx, topic)
}

// next is the next message.
func next(messages <-chan *message.Message) (*message.Message, error) {
	select {
	case msg, ok := <-messages:
		if !ok {
			return nil, fmt.Errorf("the subscription ended")
		}
		return msg, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("no message came")
	}
}

// numbers are the bodies from one number to another, the last excluded.
func numbers(from, to int) []string {
	bodies := []string{}
	for i := from; i < to; i++ {
		bodies = append(bodies, strconv.Itoa(i))
	}
	return bodies
}

// check is an error unless got is what is wanted.
func check(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
