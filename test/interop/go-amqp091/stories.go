package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func confirms(ctx context.Context, connection *amqp.Connection) error {
	channel, err := confirming(connection)
	if err != nil {
		return err
	}
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	if err := declare(channel, "orders", nil); err != nil {
		return err
	}
	if err := publishNumbers(ctx, channel, "", "orders", 50); err != nil {
		return err
	}
	if err := check("messages that came back", len(returned), 0); err != nil {
		return err
	}
	if err := publish(ctx, channel, "", "nowhere", amqp.Publishing{Body: []byte("lost")}); err != nil {
		return err
	}
	back := <-returned // comes before the confirmation
	return errors.Join(
		check("reply code", back.ReplyCode, uint16(amqp.NoRoute)),
		check("returned body", string(back.Body), "lost"),
		checkReady("messages", channel, "orders", 50),
	)
}

func consume(ctx context.Context, connection *amqp.Connection) error {
	watching, err := confirming(connection)
	if err != nil {
		return err
	}
	if err := errors.Join(declare(watching, "orders", nil), publishNumbers(ctx, watching, "", "orders", 20)); err != nil {
		return err
	}
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(5, 0, false); err != nil {
		return err
	}
	incoming, err := consumer(channel, "orders")
	if err != nil {
		return err
	}
	first, err := take(ctx, incoming, 5)
	if err != nil {
		return err
	}
	if err := checkReady("ready messages beyond the prefetch", watching, "orders", 15); err != nil {
		return err
	}
	for _, d := range first[:3] {
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	if _, err := take(ctx, incoming, 3); err != nil {
		return err
	}
	if err := checkReady("ready messages after three acknowledgements", watching, "orders", 12); err != nil {
		return err
	}
	if err := channel.Close(); err != nil {
		return err
	}

	if channel, err = connection.Channel(); err != nil {
		return err
	}
	if incoming, err = consumer(channel, "orders"); err != nil {
		return err
	}
	deliveries, err := take(ctx, incoming, 17)
	if err != nil {
		return err
	}
	var redelivered []bool
	for _, d := range deliveries {
		redelivered = append(redelivered, d.Redelivered)
	}
	return errors.Join(
		check("bodies", bodies(deliveries), numbers(3, 20)),
		check("redelivered", redelivered, slices.Concat(slices.Repeat([]bool{true}, 5), slices.Repeat([]bool{false}, 12))),
		deliveries[16].Ack(true),
		channel.Close(),
		checkReady("messages left", watching, "orders", 0),
	)
}

func reject(ctx context.Context, connection *amqp.Connection) error {
	channel, err := confirming(connection)
	if err != nil {
		return err
	}
	if err := errors.Join(
		declare(channel, "work", amqp.Table{"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead"}),
		bind(channel, "work", "jobs", "job"),
		declare(channel, "dead", nil),
		bind(channel, "dead", "dlx", "dead"),
		publish(ctx, channel, "jobs", "job", amqp.Publishing{
			Body: []byte("broken"), MessageId: "m-1", Headers: amqp.Table{"trace": "t-1"},
		}),
	); err != nil {
		return err
	}
	work, err := consumer(channel, "work")
	if err != nil {
		return err
	}
	rejected, err := take(ctx, work, 1)
	if err != nil {
		return err
	}
	if err := rejected[0].Reject(false); err != nil {
		return err
	}
	dead, err := consumer(channel, "dead")
	if err != nil {
		return err
	}
	letters, err := take(ctx, dead, 1)
	if err != nil {
		return err
	}
	d := letters[0]
	return errors.Join(
		check("body", string(d.Body), "broken"),
		check("message id", d.MessageId, "m-1"),
		check("header trace", d.Headers["trace"], "t-1"),
		check("exchange and key", []string{d.Exchange, d.RoutingKey}, []string{"dlx", "dead"}),
		checkRejected(d.Headers),
		d.Ack(false),
	)
}

func retry(ctx context.Context, connection *amqp.Connection) error {
	channel, err := confirming(connection)
	if err != nil {
		return err
	}
	if err := errors.Join(
		declare(channel, "work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}),
		declare(channel, "wait", amqp.Table{
			"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
		}),
		declare(channel, "parked", nil),
		publish(ctx, channel, "", "work", amqp.Publishing{Body: []byte("again")}),
	); err != nil {
		return err
	}
	incoming, err := consumer(channel, "work")
	if err != nil {
		return err
	}
	var seen [][2]int64
	for parked := false; !parked; {
		deliveries, err := take(ctx, incoming, 1)
		if err != nil {
			return err
		}
		d := deliveries[0]
		rejected := countOf(d.Headers, "work", "rejected")
		seen = append(seen, [2]int64{rejected, countOf(d.Headers, "wait", "expired")})
		if parked = rejected == 3; parked {
			err = errors.Join(publish(ctx, channel, "", "parked", amqp.Publishing{Body: d.Body}), d.Ack(false))
		} else {
			err = d.Nack(false, false)
		}
		if err != nil {
			return err
		}
	}
	parked, _, err := channel.Get("parked", true)
	return errors.Join(
		err,
		check("counts of rejected and expired", seen, [][2]int64{{0, 0}, {1, 1}, {2, 2}, {3, 3}}),
		check("parked", string(parked.Body), "again"),
		checkReady("left in work", channel, "work", 0),
		checkReady("left in wait", channel, "wait", 0),
	)
}

// closing closes channels and connections, one of them with a message under way: nobody hears of an error.
func closing(ctx context.Context, _ *amqp.Connection) error {
	for range 50 {
		connection, err := amqp.Dial(os.Getenv("AMQP_URI"))
		if err != nil {
			return err
		}
		channel, err := confirming(connection)
		if err != nil {
			return err
		}
		ended := []chan *amqp.Error{channel.NotifyClose(make(chan *amqp.Error, 1)), connection.NotifyClose(make(chan *amqp.Error, 1))}
		if err := declare(channel, "orders", nil); err != nil {
			return err
		}
		if err := channel.PublishWithContext(ctx, "", "orders", false, false, amqp.Publishing{Body: []byte("0")}); err != nil {
			return err
		}
		if err := errors.Join(channel.Close(), connection.Close()); err != nil {
			return err
		}
		for _, told := range ended {
			select {
			case why, some := <-told:
				if some {
					return fmt.Errorf("after Close it is told of %w", why)
				}
			case <-time.After(patience):
				return errors.New("nobody is told that it is closed")
			}
		}
	}
	return nil
}

func reconnect(ctx context.Context, connection *amqp.Connection) error {
	channel, err := confirming(connection)
	if err != nil {
		return err
	}
	if err := errors.Join(
		declare(channel, "work", nil),
		bind(channel, "work", "jobs", "job"),
		publishNumbers(ctx, channel, "jobs", "job", 10),
		channel.Qos(3, 0, false),
	); err != nil {
		return err
	}
	incoming, err := consumer(channel, "work")
	if err != nil {
		return err
	}
	first, err := take(ctx, incoming, 3)
	if err != nil {
		return err
	}
	for _, d := range first {
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	lost := connection.NotifyClose(make(chan *amqp.Error, 1))
	if err := exec.CommandContext(ctx, os.Getenv("INTEROP_RESTART")).Run(); err != nil {
		return err
	}
	select {
	case <-lost:
	case <-ctx.Done():
		return errors.New("nobody was told that the connection is lost")
	}

	if connection, err = amqp.Dial(os.Getenv("AMQP_URI")); err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if channel, err = confirming(connection); err != nil {
		return err
	}
	if err := publish(ctx, channel, "jobs", "job", amqp.Publishing{Body: []byte("10")}); err != nil {
		return err
	}
	if incoming, err = consumer(channel, "work"); err != nil {
		return err
	}
	var all []string
	for len(all) == 0 || all[len(all)-1] != "10" {
		deliveries, err := take(ctx, incoming, 1)
		if err != nil {
			return err
		}
		all = append(all, string(deliveries[0].Body))
		if err := deliveries[0].Ack(false); err != nil {
			return err
		}
	}
	return checkSurvivors(all)
}
