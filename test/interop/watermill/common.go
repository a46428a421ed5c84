package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

// confirms has no message without a route: Watermill publishes to topics that are there.
func confirms(ctx context.Context) error {
	if err := declare(queues(), "orders"); err != nil {
		return err
	}
	if err := publish(queues(), "orders", numbers(0, 50)...); err != nil {
		return err
	}
	messages, err := subscribe(ctx, queues(), "orders")
	if err != nil {
		return err
	}
	for _, want := range numbers(0, 50) {
		msg, err := next(messages)
		if err != nil {
			return err
		}
		if err := errors.Join(check("body", string(msg.Payload), want), check("id", msg.UUID, "id-"+want)); err != nil {
			return err
		}
		msg.Ack()
	}
	return nil
}

// consume acknowledges three of ten; what a subscription that ends had in hand comes
// again to the next.
func consume(ctx context.Context) error {
	if err := errors.Join(declare(queues(), "orders"), publish(queues(), "orders", numbers(0, 10)...)); err != nil {
		return err
	}
	subscriber, err := wamqp.NewSubscriber(queues(), logger)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, "orders")
	if err != nil {
		return err
	}
	for _, want := range numbers(0, 4) {
		msg, err := next(messages)
		if err != nil {
			return err
		}
		if err := check("body", string(msg.Payload), want); err != nil {
			return err
		}
		if want != "3" {
			msg.Ack()
		}
	}
	if err := subscriber.Close(); err != nil {
		return err
	}
	if messages, err = subscribe(ctx, queues(), "orders"); err != nil {
		return err
	}
	again := map[string]bool{}
	for len(again) < 7 { // the one that comes again may come after others
		msg, err := next(messages)
		if err != nil {
			return err
		}
		again[string(msg.Payload)] = true
		if string(msg.Payload) == "3" {
			if err := check("redelivered", wamqp.IsMessageRedelivered(msg), true); err != nil {
				return err
			}
		}
		msg.Ack()
	}
	for _, body := range numbers(3, 10) {
		if !again[body] {
			return fmt.Errorf("of what was not acknowledged %v came, want %s too", again, body)
		}
	}
	return nil
}

func reject(ctx context.Context) error {
	jobs := deadLetterTo(queues(), "dlx", "")
	jobs.Exchange.GenerateName = func(string) string { return "jobs" }
	jobs.Exchange.Type, jobs.Exchange.Durable = "direct", true
	jobs.QueueBind.GenerateRoutingKey = func(string) string { return "job" }
	jobs.Publish.GenerateRoutingKey = func(string) string { return "job" }
	dlx := queues()
	dlx.Exchange.GenerateName = func(string) string { return "dlx" }
	dlx.Exchange.Type, dlx.Exchange.Durable = "fanout", true
	if err := errors.Join(declare(jobs, "work"), declare(dlx, "dead"), publish(jobs, "work", "broken")); err != nil {
		return err
	}
	work, err := subscribe(ctx, jobs, "work")
	if err != nil {
		return err
	}
	msg, err := next(work)
	if err != nil {
		return err
	}
	msg.Nack()
	dead, err := subscribe(ctx, dlx, "dead")
	if err != nil {
		return err
	}
	if msg, err = next(dead); err != nil {
		return err
	}
	defer msg.Ack()
	all, err := deaths(msg)
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("x-death is %v, want one death", all)
	}
	if age := time.Since(all[0].Time); age < -5*time.Second || age > time.Minute {
		return fmt.Errorf("x-death time is %s ago", age)
	}
	want := death{Reason: "rejected", Queue: "work", Exchange: "jobs", Keys: []string{"job"}, Count: 1, Time: all[0].Time}
	err = errors.Join(check("id", msg.UUID, "id-broken"), check("x-death", all[0], want))
	for _, which := range []string{"first", "last"} {
		for key, want := range map[string]string{"reason": "rejected", "queue": "work", "exchange": "jobs"} {
			name := "x-" + which + "-death-" + key
			err = errors.Join(err, check(name, msg.Metadata.Get(name), want))
		}
	}
	return err
}

func retry(ctx context.Context) error {
	work := deadLetterTo(queues(), "", "wait")
	wait := deadLetterTo(queues(), "", "work")
	wait.Queue.Arguments["x-message-ttl"] = 200
	if err := errors.Join(declare(work, "work"), declare(wait, "wait"), declare(queues(), "parked"), publish(work, "work", "again")); err != nil {
		return err
	}
	messages, err := subscribe(ctx, work, "work")
	if err != nil {
		return err
	}
	var seen [][2]int
	for len(seen) < 4 {
		msg, err := next(messages)
		if err != nil {
			return err
		}
		all, err := deaths(msg)
		if err != nil {
			return err
		}
		rejected := countOf(all, "work", "rejected")
		seen = append(seen, [2]int{rejected, countOf(all, "wait", "expired")})
		if rejected < 3 {
			msg.Nack()
			continue
		}
		if err := publish(queues(), "parked", string(msg.Payload)); err != nil {
			return err
		}
		msg.Ack()
	}
	if err := check("counts of rejected and expired", seen, [][2]int{{0, 0}, {1, 1}, {2, 2}, {3, 3}}); err != nil {
		return err
	}
	parked, err := subscribe(ctx, queues(), "parked")
	if err != nil {
		return err
	}
	msg, err := next(parked)
	if err != nil {
		return err
	}
	msg.Ack()
	return check("parked", string(msg.Payload), "again")
}

func reconnect(ctx context.Context) error {
	if err := errors.Join(declare(queues(), "work"), publish(queues(), "work", numbers(0, 10)...)); err != nil {
		return err
	}
	messages, err := subscribe(ctx, queues(), "work")
	if err != nil {
		return err
	}
	var held *message.Message
	for _, want := range numbers(0, 4) {
		if held, err = next(messages); err != nil {
			return err
		}
		if err := check("body", string(held.Payload), want); err != nil {
			return err
		}
		if want != "3" {
			held.Ack()
		}
	}
	if err := exec.CommandContext(ctx, os.Getenv("INTEROP_RESTART")).Run(); err != nil {
		return err
	}
	held.Nack() // of a connection that is gone: it comes again

	if err := publish(queues(), "work", "10"); err != nil {
		return err
	}
	var bodies []string
	for len(bodies) == 0 || bodies[len(bodies)-1] != "10" { // the subscription goes on by itself
		msg, err := next(messages)
		if err != nil {
			return err
		}
		bodies = append(bodies, string(msg.Payload))
		msg.Ack()
	}
	// Acknowledgements have no answer: 0 to 2 may come again before the rest.
	again := max(len(bodies)-8, 0)
	return errors.Join(
		check("what comes again", bodies[:again], numbers(3-again, 3)),
		check("bodies", bodies[again:], numbers(3, 11)),
	)
}
