package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"

	"github.com/Azure/go-amqp"
)

func confirms(ctx context.Context, c *client) error {
	if err := errors.Join(
		c.management.declare(ctx, "orders", nil),
		c.management.declare(ctx, "elsewhere", nil),
		c.management.bind(ctx, "elsewhere", "jobs", "job"),
		c.publishNumbers(ctx, "/queues/orders", 50),
	); err != nil {
		return err
	}
	sender, err := c.session.NewSender(ctx, "/exchanges/jobs/nowhere", nil)
	if err != nil {
		return err
	}
	receipt, err := sender.SendWithReceipt(ctx, durable("lost"), nil)
	if err != nil {
		return err
	}
	outcome, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		check("outcome without a route", outcome, amqp.DeliveryState(&amqp.StateReleased{})),
		c.management.checkReady(ctx, "messages", "orders", 50),
	)
}

func consume(ctx context.Context, c *client) error {
	if err := errors.Join(c.management.declare(ctx, "orders", nil), c.publishNumbers(ctx, "/queues/orders", 20)); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "orders", 5)
	if err != nil {
		return err
	}
	first, err := take(ctx, r, 5)
	if err != nil {
		return err
	}
	if err := c.management.checkReady(ctx, "ready messages beyond the credit", "orders", 15); err != nil {
		return err
	}
	for _, m := range first[:3] {
		if err := r.AcceptMessage(ctx, m); err != nil {
			return err
		}
	}
	if _, err := take(ctx, r, 3); err != nil {
		return err
	}
	if err := c.management.checkReady(ctx, "ready messages after three were accepted", "orders", 12); err != nil {
		return err
	}
	if err := r.Close(ctx); err != nil {
		return err
	}

	if r, err = c.receiver(ctx, "orders", 20); err != nil {
		return err
	}
	messages, err := take(ctx, r, 17)
	if err != nil {
		return err
	}
	var acquired []bool
	for _, m := range messages {
		acquired = append(acquired, m.Header.FirstAcquirer)
		if err := r.AcceptMessage(ctx, m); err != nil {
			return err
		}
	}
	return errors.Join(
		check("bodies", bodies(messages), numbers(3, 20)),
		check("first-acquirer", acquired, slices.Concat(slices.Repeat([]bool{false}, 5), slices.Repeat([]bool{true}, 12))),
		r.Close(ctx),
		c.management.checkReady(ctx, "messages left", "orders", 0),
	)
}

func drain(ctx context.Context, c *client) error {
	if err := errors.Join(c.management.declare(ctx, "orders", nil), c.publishNumbers(ctx, "/queues/orders", 3)); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "orders", -1)
	if err != nil {
		return err
	}
	if err := r.IssueCredit(10); err != nil {
		return err
	}
	messages, err := take(ctx, r, 1) // go-amqp may say the drain before the credit
	if err != nil {
		return err
	}
	if err := r.DrainCredit(ctx, nil); err != nil {
		return err
	}
	for m := r.Prefetched(); m != nil; m = r.Prefetched() {
		messages = append(messages, m)
	}
	if err := errors.Join(
		check("what the drain brings", bodies(messages), numbers(0, 3)),
		c.publish(ctx, "/queues/orders", durable("3")),
		c.management.checkReady(ctx, "messages without credit", "orders", 1),
		r.IssueCredit(1),
	); err != nil {
		return err
	}
	last, err := take(ctx, r, 1)
	if err != nil {
		return err
	}
	for _, m := range append(messages, last...) {
		if err := r.AcceptMessage(ctx, m); err != nil {
			return err
		}
	}
	return check("what the next credit brings", bodies(last), numbers(3, 4))
}

func reject(ctx context.Context, c *client) error {
	id := durable("broken")
	id.Properties = &amqp.MessageProperties{MessageID: "m-1"}
	id.ApplicationProperties = map[string]any{"trace": "t-1"}
	if err := errors.Join(
		c.management.declare(ctx, "work", map[string]any{"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}),
		c.management.bind(ctx, "work", "jobs", "job"),
		c.management.declare(ctx, "dead", nil),
		c.management.bind(ctx, "dead", "dlx", "dead"),
		c.publish(ctx, "/exchanges/jobs/job", id),
	); err != nil {
		return err
	}
	work, err := c.receiver(ctx, "work", 1)
	if err != nil {
		return err
	}
	doomed, err := take(ctx, work, 1)
	if err != nil {
		return err
	}
	if err := errors.Join(checkHeader(doomed[0], true, 0), work.RejectMessage(ctx, doomed[0], nil)); err != nil {
		return err
	}
	d, err := c.takeOne(ctx, "dead")
	if err != nil {
		return err
	}
	return errors.Join(
		check("body", string(d.GetData()), "broken"),
		check("message id", d.Properties.MessageID, any("m-1")),
		check("application property trace", d.ApplicationProperties["trace"], any("t-1")),
		check("x-exchange", d.Annotations["x-exchange"], any("dlx")),
		check("x-routing-key", d.Annotations["x-routing-key"], any("dead")),
		check("first-acquirer", d.Header.FirstAcquirer, false),
		checkRejected(d),
	)
}

func retry(ctx context.Context, c *client) error {
	if err := errors.Join(
		c.management.declare(ctx, "work", map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}),
		c.management.declare(ctx, "wait", map[string]any{
			"x-message-ttl": uint64(200), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
		}),
		c.management.declare(ctx, "parked", nil),
		c.publish(ctx, "/queues/work", durable("again")),
	); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "work", 1)
	if err != nil {
		return err
	}
	var seen [][2]uint64
	for parked := false; !parked; {
		messages, err := take(ctx, r, 1)
		if err != nil {
			return err
		}
		m := messages[0]
		rejected := countOf(m, "work", "rejected")
		seen = append(seen, [2]uint64{rejected, countOf(m, "wait", "expired")})
		if parked = rejected == 3; parked {
			err = errors.Join(c.publish(ctx, "/queues/parked", durable(string(m.GetData()))), r.AcceptMessage(ctx, m))
		} else {
			err = r.RejectMessage(ctx, m, nil)
		}
		if err != nil {
			return err
		}
	}
	parked, err := c.takeOne(ctx, "parked")
	if err != nil {
		return err
	}
	return errors.Join(
		check("counts of rejected and expired", seen, [][2]uint64{{0, 0}, {1, 1}, {2, 2}, {3, 3}}),
		check("parked", string(parked.GetData()), "again"),
		c.management.checkReady(ctx, "left in work", "work", 0),
		c.management.checkReady(ctx, "left in wait", "wait", 0),
	)
}

// declareCounting declares work as a quorum queue, which counts and keeps annotations
// of outcomes, with dead for its dead letters.
func (c *client) declareCounting(ctx context.Context) error {
	return errors.Join(
		c.management.declare(ctx, "work", map[string]any{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		}),
		c.management.declare(ctx, "dead", nil),
		c.publish(ctx, "/queues/work", durable("order")),
	)
}

func modify(ctx context.Context, c *client) error {
	if err := c.declareCounting(ctx); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "work", 1)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		first   bool
		count   uint32
		attempt any
		outcome amqp.ModifyMessageOptions
	}{
		{true, 0, nil, amqp.ModifyMessageOptions{DeliveryFailed: true, Annotations: amqp.Annotations{"x-opt-attempt": "first"}}},
		{false, 1, "first", amqp.ModifyMessageOptions{Annotations: amqp.Annotations{"x-opt-attempt": "second"}}},
		{false, 1, "second", amqp.ModifyMessageOptions{UndeliverableHere: true, Annotations: amqp.Annotations{"x-opt-why": "no customer"}}},
	} {
		messages, err := take(ctx, r, 1)
		if err != nil {
			return err
		}
		if err := errors.Join(
			checkHeader(messages[0], step.first, step.count),
			check("x-opt-attempt", messages[0].Annotations["x-opt-attempt"], step.attempt),
			r.ModifyMessage(ctx, messages[0], &step.outcome),
		); err != nil {
			return err
		}
	}
	d, err := c.takeOne(ctx, "dead")
	if err != nil {
		return err
	}
	return errors.Join(
		check("body", string(d.GetData()), "order"),
		check("x-opt-attempt", d.Annotations["x-opt-attempt"], any("second")),
		check("x-opt-why", d.Annotations["x-opt-why"], any("no customer")),
		check("deaths", countOf(d, "work", "rejected"), uint64(1)),
		check("first-acquirer", d.Header.FirstAcquirer, false),
	)
}

func release(ctx context.Context, c *client) error {
	if err := c.declareCounting(ctx); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "work", 1)
	if err != nil {
		return err
	}
	for i := range int64(3) {
		messages, err := take(ctx, r, 1)
		if err != nil {
			return err
		}
		acquired, _ := messages[0].Annotations["x-acquired-count"].(int64)
		if err := errors.Join(
			checkHeader(messages[0], i == 0, 0),
			check("x-acquired-count", acquired, i),
			r.ReleaseMessage(ctx, messages[0]),
		); err != nil {
			return err
		}
	}
	messages, err := take(ctx, r, 1)
	if err != nil {
		return err
	}
	return errors.Join(
		r.AcceptMessage(ctx, messages[0]),
		r.Close(ctx),
		c.management.checkReady(ctx, "left in work", "work", 0),
		c.management.checkReady(ctx, "dead", "dead", 0),
	)
}

// causes rejects with an error, which the Dead Letter Office shows.
func causes(ctx context.Context, c *client) error {
	if err := c.declareCounting(ctx); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "work", 1)
	if err != nil {
		return err
	}
	messages, err := take(ctx, r, 1)
	if err != nil {
		return err
	}
	if err := r.RejectMessage(ctx, messages[0], &amqp.Error{Condition: "com.example:no-customer", Description: "order 7 has no customer"}); err != nil {
		return err
	}
	got, err := causeOf(ctx, "dead")
	return errors.Join(err, check("cause", got, cause{From: "settle", Class: "com.example:no-customer", Error: "order 7 has no customer"}))
}

func reconnect(ctx context.Context, c *client) error {
	if err := errors.Join(
		c.management.declare(ctx, "work", nil),
		c.management.bind(ctx, "work", "jobs", "job"),
		c.publishNumbers(ctx, "/exchanges/jobs/job", 10),
	); err != nil {
		return err
	}
	r, err := c.receiver(ctx, "work", 3)
	if err != nil {
		return err
	}
	first, err := take(ctx, r, 3)
	if err != nil {
		return err
	}
	for _, m := range first {
		if err := r.AcceptMessage(ctx, m); err != nil {
			return err
		}
	}
	if err := exec.CommandContext(ctx, os.Getenv("INTEROP_RESTART")).Run(); err != nil {
		return err
	}
	select {
	case <-c.conn.Done():
	case <-ctx.Done():
		return errors.New("nobody was told that the connection is lost")
	}

	if c, err = connect(ctx); err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }()
	if err := c.publish(ctx, "/exchanges/jobs/job", durable("10")); err != nil {
		return err
	}
	if r, err = c.receiver(ctx, "work", 3); err != nil {
		return err
	}
	var all []string
	for len(all) == 0 || all[len(all)-1] != "10" {
		messages, err := take(ctx, r, 1)
		if err != nil {
			return err
		}
		all = append(all, string(messages[0].GetData()))
		if err := r.AcceptMessage(ctx, messages[0]); err != nil {
			return err
		}
	}
	return checkSurvivors(all)
}
