// Command go-amqp plays the stories of AMQP 1.0 with Azure's go-amqp, which leaves
// declaring and connecting again to its user.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"
)

// patience is how long whatever must come about may take.
const patience = 20 * time.Second

func main() {
	stories := map[string]func(context.Context, *client) error{
		"confirms": confirms, "consume": consume, "drain": drain, "reject": reject, "retry": retry,
		"modify": modify, "release": release, "causes": causes, "reconnect": reconnect,
	}
	if err := play(stories[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(story func(context.Context, *client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }()
	return story(ctx, c)
}

// client is a connection with a session, and the node /management of the broker.
type client struct {
	conn       *amqp.Conn
	session    *amqp.Session
	management *management
}

// connect opens the virtual host of the story, which AMQP 1.0 names as the host.
func connect(ctx context.Context) (c *client, err error) {
	c = &client{}
	c.conn, err = amqp.Dial(ctx, "amqp://"+net.JoinHostPort(os.Getenv("AMQP_HOST"), os.Getenv("AMQP_PORT")), &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain("guest", "guest"), HostName: "vhost:" + os.Getenv("AMQP_VHOST"),
	})
	if err != nil {
		return nil, err
	}
	if c.session, err = c.conn.NewSession(ctx, nil); err == nil {
		c.management, err = manage(ctx, c.session)
	}
	return c, err
}

// durable is a message that outlives the broker.
func durable(body string) *amqp.Message {
	m := amqp.NewMessage([]byte(body))
	m.Header = &amqp.MessageHeader{Durable: true}
	return m
}

// publish sends messages and takes every outcome but accepted for an error.
func (c *client) publish(ctx context.Context, address string, messages ...*amqp.Message) error {
	sender, err := c.session.NewSender(ctx, address, nil)
	if err != nil {
		return err
	}
	var receipts []amqp.SendReceipt
	for _, m := range messages {
		receipt, err := sender.SendWithReceipt(ctx, m, nil)
		if err != nil {
			return err
		}
		receipts = append(receipts, receipt)
	}
	for i, receipt := range receipts {
		outcome, err := receipt.Wait(ctx)
		if err != nil {
			return err
		}
		if _, ok := outcome.(*amqp.StateAccepted); !ok {
			return fmt.Errorf("the outcome of %q is %T", messages[i].GetData(), outcome)
		}
	}
	return sender.Close(ctx)
}

// publishNumbers publishes 0 to n-1.
func (c *client) publishNumbers(ctx context.Context, address string, n int) error {
	var messages []*amqp.Message
	for _, body := range numbers(0, n) {
		messages = append(messages, durable(body))
	}
	return c.publish(ctx, address, messages...)
}

// receiver consumes a queue; go-amqp gives credit again for what is settled.
func (c *client) receiver(ctx context.Context, queue string, credit int32) (*amqp.Receiver, error) {
	return c.session.NewReceiver(ctx, "/queues/"+queue, &amqp.ReceiverOptions{Credit: credit})
}

// take waits for n messages.
func take(ctx context.Context, r *amqp.Receiver, n int) (messages []*amqp.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(messages) < n {
		m, err := r.Receive(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("%d messages came, want %d: %w", len(messages), n, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// takeOne consumes one message of a queue, and accepts it.
func (c *client) takeOne(ctx context.Context, queue string) (*amqp.Message, error) {
	r, err := c.receiver(ctx, queue, 1)
	if err != nil {
		return nil, err
	}
	messages, err := take(ctx, r, 1)
	if err != nil {
		return nil, err
	}
	return messages[0], errors.Join(r.AcceptMessage(ctx, messages[0]), r.Close(ctx))
}

// numbers are the bodies from one number to another, the last excluded.
func numbers(from, to int) []string {
	bodies := []string{}
	for i := from; i < to; i++ {
		bodies = append(bodies, strconv.Itoa(i))
	}
	return bodies
}

func bodies(messages []*amqp.Message) []string {
	all := []string{}
	for _, m := range messages {
		all = append(all, string(m.GetData()))
	}
	return all
}
