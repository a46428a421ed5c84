// Package demo shows dead-lettering with real messages on a running broker. Some orders
// succeed, some fail and are retried with a delay, and some keep failing, end in a parking
// lot and are sent back once the cause is fixed. The command "bartleby demo" calls it. It is
// an ordinary client: it uses AMQP 0-9-1 for messages and the management API for the rest,
// and owns only its virtual host.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Options name the broker.
type Options struct {
	AMQP     string // host:port
	HTTP     string // base address of the management API
	User     string
	Password string
	Out      io.Writer
	Delay    time.Duration // how long a retry waits; 0: 1 s
	Keep     bool          // keep the virtual host afterwards, with dead letters to look at
}

// The names follow the usual examples of this pattern.
const (
	vhost = "bartleby-demo"

	mainExchange = "orders.exchange"
	deadExchange = "orders.dlx"
	mainQueue    = "orders.queue"
	retryQueue   = "orders.retry.queue"
	parkingLot   = "orders.parking-lot.queue"
	mainKey      = "order.created"
	retryKey     = "order.retry"

	attempts = 3
)

// order is a message of the story.
type order struct {
	id    string
	what  string
	fails func(attempt int, mended bool) string // why this attempt fails, "" if it does not
}

var orders = []order{
	{"1001", "two books", func(int, bool) string { return "" }},
	{"1002", "a lamp; the payment service is down for a moment", func(attempt int, _ bool) string {
		if attempt <= 2 {
			return "payment service does not answer"
		}
		return ""
	}},
	{"1003", "a chair; its price is missing, and the code stumbles over that", func(_ int, mended bool) string {
		if !mended {
			return "price: unexpected null"
		}
		return ""
	}},
	{"1004", "a table; likewise", func(_ int, mended bool) string {
		if !mended {
			return "price: unexpected null"
		}
		return ""
	}},
}

// story is one run.
type story struct {
	Options
	api    *api
	began  time.Time
	ch     *amqp.Channel
	mended bool
}

// Run runs the demo in a virtual host of its own, which it deletes afterwards.
func Run(ctx context.Context, o Options) error {
	if o.Delay == 0 {
		o.Delay = time.Second
	}
	s := &story{Options: o, began: time.Now(), api: &api{base: strings.TrimSuffix(o.HTTP, "/"), user: o.User, password: o.Password}}
	if n, there := s.api.messages(ctx, vhost); there {
		_, _ = fmt.Fprintf(o.Out, "The virtual host %s is there already, with %d messages: it is deleted first.\n\n", vhost, n)
	}
	err := s.api.deleteVHost(ctx, vhost) // what an earlier one has kept
	if refused := (*net.OpError)(nil); errors.As(err, &refused) {
		return fmt.Errorf("demo: no node answers at %s (%w): start one with 'bartleby server', or name another with --http and --amqp", s.api.base, refused.Err)
	}
	if err != nil && !errors.Is(err, errNotFound) {
		return fmt.Errorf("demo: virtual host %q: %w", vhost, err)
	}
	if err := s.api.putVHost(ctx, vhost, o.User); err != nil {
		return fmt.Errorf("demo: virtual host %q: %w", vhost, err)
	}
	if !o.Keep {
		defer func() { _ = s.api.deleteVHost(context.WithoutCancel(ctx), vhost) }()
	}
	conn, err := s.connect("bartleby demo")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if s.ch, err = conn.Channel(); err != nil {
		return err
	}
	acts := []func(context.Context) error{s.build, s.publish, s.work, s.inspect, s.mend, s.end}
	if o.Keep {
		acts = append(acts, s.leave)
	}
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	if o.Keep {
		s.where()
	} else {
		fmt.Fprintf(o.Out, "\nWith --keep it also leaves some hundreds of dead letters of several causes, to look at in the console.\n")
	}
	return nil
}

// connect opens a connection to the demo's virtual host.
func (s *story) connect(name string) (*amqp.Connection, error) {
	conn, err := amqp.DialConfig("amqp://"+s.AMQP, amqp.Config{
		Vhost: vhost, SASL: []amqp.Authentication{&amqp.PlainAuth{Username: s.User, Password: s.Password}},
		Properties: amqp.Table{"connection_name": name, "product": name, "version": "1.4"},
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %s: %w", s.AMQP, err)
	}
	return conn, nil
}

func (s *story) title(text string) {
	fmt.Fprintf(s.Out, "\n%s\n%s\n", text, strings.Repeat("-", len(text)))
}

// note prints what happened to an order, and when.
func (s *story) note(order, format string, args ...any) {
	fmt.Fprintf(s.Out, "%6.2f s  order %s  %s\n", time.Since(s.began).Seconds(), order, fmt.Sprintf(format, args...))
}

// build declares exchanges and queues, as an application would.
func (s *story) build(context.Context) error {
	s.title("The topology")
	fmt.Fprintf(s.Out, `  publisher -> %s -(%s)-> %s -> consumer
                                                  |  rejected
                                  %s <-(%s)-'
                                      |
                     %s, TTL %v
                                      |  expired
               %s <-(%s)-'

  after %d failures the consumer parks the message in %s
`, mainExchange, mainKey, mainQueue, deadExchange, retryKey, retryQueue, s.Delay, mainExchange, mainKey, attempts, parkingLot)
	for _, x := range []string{mainExchange, deadExchange} {
		if err := s.ch.ExchangeDeclare(x, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return err
		}
	}
	queues := []struct {
		name string
		args amqp.Table
	}{
		{mainQueue, amqp.Table{"x-dead-letter-exchange": deadExchange, "x-dead-letter-routing-key": retryKey}},
		{retryQueue, amqp.Table{
			"x-message-ttl": s.Delay.Milliseconds(), "x-dead-letter-exchange": mainExchange, "x-dead-letter-routing-key": mainKey,
		}},
		{parkingLot, nil},
	}
	for _, q := range queues {
		if _, err := s.ch.QueueDeclare(q.name, true, false, false, false, q.args); err != nil {
			return err
		}
	}
	if err := s.ch.QueueBind(mainQueue, mainKey, mainExchange, false, nil); err != nil {
		return err
	}
	if err := s.ch.QueueBind(retryQueue, retryKey, deadExchange, false, nil); err != nil {
		return err
	}
	return s.ch.Confirm(false)
}

func (s *story) publish(ctx context.Context) error {
	s.title("Orders come in")
	for _, o := range orders {
		if err := s.send(ctx, mainExchange, mainKey, amqp.Publishing{
			MessageId: o.id, DeliveryMode: amqp.Persistent, ContentType: "text/plain", Body: []byte(o.what),
		}); err != nil {
			return err
		}
		s.note(o.id, "published: %s", o.what)
	}
	return nil
}

// send publishes and waits for the confirm.
func (s *story) send(ctx context.Context, exchange, key string, p amqp.Publishing) error {
	c, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, p)
	if err != nil {
		return err
	}
	ok, err := c.WaitContext(ctx)
	if err == nil && !ok {
		err = errors.New("the broker refused a message")
	}
	return err
}

// work consumes until every order is done or parked.
func (s *story) work(ctx context.Context) error {
	s.title("The consumer works")
	return s.consume(ctx, len(orders))
}

func (s *story) consume(ctx context.Context, n int) error {
	if err := s.ch.Qos(1, 0, false); err != nil {
		return err
	}
	const tag = "demo"
	deliveries, err := s.ch.Consume(mainQueue, tag, false, false, false, false, nil)
	if err != nil {
		return err
	}
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for settled := 0; settled < n; {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the consumer was cancelled")
			}
			done, err := s.handle(ctx, &d)
			if err != nil {
				return err
			}
			if done {
				settled++
			}
		case <-patience.C:
			return errors.New("no message arrived for a minute")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.ch.Cancel(tag, false)
}

// handle is the application: it does the order, or rejects it, or parks it. done
// says whether the order will not come again.
func (s *story) handle(ctx context.Context, d *amqp.Delivery) (done bool, err error) {
	o := find(d.MessageId)
	attempt := failures(d.Headers) + 1
	why := o.fails(attempt, s.mended)
	switch {
	case why == "" && attempt > 1:
		s.note(o.id, "done, at attempt %d", attempt)
		return true, d.Ack(false)
	case why == "":
		s.note(o.id, "done")
		return true, d.Ack(false)
	case attempt <= attempts:
		s.note(o.id, "attempt %d fails: %s -> rejected -> %s -> %s, back in %v", attempt, why, deadExchange, retryQueue, s.Delay)
		return false, d.Reject(false)
	}
	s.note(o.id, "failed %d times: %s -> %s", attempts, why, parkingLot)
	headers := d.Headers
	headers["x-error"] = why
	err = s.send(ctx, "", parkingLot, amqp.Publishing{
		Headers: headers, MessageId: d.MessageId, DeliveryMode: amqp.Persistent, ContentType: d.ContentType, Body: d.Body,
	})
	if err != nil {
		return false, err
	}
	return true, d.Ack(false)
}

func find(id string) order {
	for _, o := range orders {
		if o.id == id {
			return o
		}
	}
	return order{id: id, fails: func(int, bool) string { return "" }}
}

// failures reads x-death as an application should: the entry of this queue with
// this reason, wherever it stands in the list.
func failures(headers amqp.Table) int {
	deaths, _ := headers["x-death"].([]any)
	for _, d := range deaths {
		t, _ := d.(amqp.Table)
		if t["queue"] == mainQueue && t["reason"] == "rejected" {
			n, _ := t["count"].(int64)
			return int(n)
		}
	}
	return 0
}

// inspect looks into the parking lot without changing it.
func (s *story) inspect(ctx context.Context) error {
	s.title("The parking lot, looked at by a person")
	letters, err := s.api.peek(ctx, vhost, parkingLot, 10)
	if err != nil {
		return err
	}
	for _, l := range letters {
		fmt.Fprintf(s.Out, "  order %s: %q\n    error   %s\n", l.ID, l.Payload, l.Error)
		for _, d := range l.Deaths {
			fmt.Fprintf(s.Out, "    died    %d x in %s (%s), last published to %q with key %q\n", d.Count, d.Queue, d.Reason, d.Exchange, strings.Join(d.Keys, ", "))
		}
	}
	return nil
}

// mend fixes the cause and replays, after a dry run.
func (s *story) mend(ctx context.Context) error {
	s.title("The bug is fixed, and the messages go back")
	s.mended = true
	for _, dry := range []bool{true, false} {
		r, err := s.api.replay(ctx, vhost, parkingLot, dry)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("replayed %d", r.Replayed)
		if dry {
			what = fmt.Sprintf("dry run: %d of %d would go back", r.Matched, r.Examined)
		}
		fmt.Fprintf(s.Out, "  %s\n", what)
		for to, n := range r.To {
			fmt.Fprintf(s.Out, "    %d x %s\n", n, to)
		}
		if !dry && r.Replayed != 2 {
			return fmt.Errorf("%d messages were replayed, want 2: %+v", r.Replayed, r)
		}
	}
	fmt.Fprintln(s.Out)
	return s.consume(ctx, 2)
}

func (s *story) end(context.Context) error {
	s.title("Nothing is left behind")
	for _, name := range []string{mainQueue, retryQueue, parkingLot} {
		q, err := s.ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.Out, "  %-26s %d messages\n", name, q.Messages)
		if q.Messages != 0 {
			return fmt.Errorf("queue %q still holds %d messages", name, q.Messages)
		}
	}
	return nil
}
