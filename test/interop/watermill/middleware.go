package main

import (
	"context"
	"errors"
	"time"

	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// nack has a message come back at once until it is taken.
func nack(ctx context.Context) error {
	if err := errors.Join(declare(queues(), "work"), publish(queues(), "work", "stubborn")); err != nil {
		return err
	}
	messages, err := subscribe(ctx, queues(), "work")
	if err != nil {
		return err
	}
	for i, want := range []bool{false, true, true} {
		msg, err := next(messages)
		if err != nil {
			return err
		}
		if err := errors.Join(check("body", string(msg.Payload), "stubborn"), check("redelivered", wamqp.IsMessageRedelivered(msg), want)); err != nil {
			return err
		}
		if i < 2 {
			msg.Nack()
		} else {
			msg.Ack()
		}
	}
	return nil
}

// poison has a router's handler fail: it is tried again three times in memory, then the
// message is published to the poison queue with what was wrong with it.
func poison(ctx context.Context) error {
	if err := errors.Join(declare(queues(), "work"), declare(queues(), "poison"), publish(queues(), "work", "bad")); err != nil {
		return err
	}
	publisher, err := wamqp.NewPublisher(queues(), logger)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	subscriber, err := wamqp.NewSubscriber(queues(), logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	poisoning, err := middleware.PoisonQueue(publisher, "poison")
	if err != nil {
		return err
	}
	router.AddMiddleware(poisoning, middleware.Retry{MaxRetries: 3, InitialInterval: 10 * time.Millisecond, Logger: logger}.Middleware)
	tries := make(chan struct{}, 10)
	router.AddConsumerHandler("shelving", "work", subscriber, func(*message.Message) error {
		tries <- struct{}{}
		return errors.New("no shelf for it")
	})
	running := make(chan error, 1)
	go func() { running <- router.Run(ctx) }()

	messages, err := subscribe(ctx, queues(), "poison")
	if err != nil {
		return err
	}
	msg, err := next(messages)
	if err != nil {
		return err
	}
	msg.Ack()
	err = errors.Join(
		check("tries", len(tries), 4),
		check("body", string(msg.Payload), "bad"),
		check("reason", msg.Metadata.Get(middleware.ReasonForPoisonedKey), "no shelf for it"),
		check("topic", msg.Metadata.Get(middleware.PoisonedTopicKey), "work"),
		check("handler", msg.Metadata.Get(middleware.PoisonedHandlerKey), "shelving"),
	)
	return errors.Join(err, router.Close(), <-running)
}
