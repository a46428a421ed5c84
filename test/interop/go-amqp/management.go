package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/Azure/go-amqp"
)

// management asks the node /management: requests and answers are messages on a pair of
// links, as RabbitMQ's own clients have it.
type management struct {
	requests *amqp.Sender
	answers  *amqp.Receiver
}

// manage attaches the pair. The answers come first: a request needs their credit.
func manage(ctx context.Context, session *amqp.Session) (m *management, err error) {
	const name, node = "management-link-pair", "/management"
	paired := map[string]any{"paired": true}
	m = &management{}
	m.answers, err = session.NewReceiver(ctx, node, &amqp.ReceiverOptions{Name: name, Properties: paired, Credit: 100, TargetAddress: node})
	if err != nil {
		return nil, err
	}
	m.requests, err = session.NewSender(ctx, node, &amqp.SenderOptions{
		Name: name, Properties: paired, SettlementMode: amqp.SenderSettleModeSettled.Ptr(), SourceAddress: node,
	})
	return m, err
}

// ask takes every status but 2xx for an error.
func (m *management) ask(ctx context.Context, method, path string, body any) (answer any, err error) {
	if body == nil {
		body = amqp.Null{}
	}
	me := "$me"
	if err := m.requests.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: path, To: &path, Subject: &method, ReplyTo: &me}, Value: body,
	}, nil); err != nil {
		return nil, err
	}
	a, err := m.answers.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := m.answers.AcceptMessage(ctx, a); err != nil {
		return nil, err
	}
	if status := *a.Properties.Subject; a.Properties.CorrelationID != path || status[0] != '2' {
		return nil, fmt.Errorf("%s %s: %s to %v: %v", method, path, status, a.Properties.CorrelationID, a.Value)
	}
	return a.Value, nil
}

// declare declares a durable queue.
func (m *management) declare(ctx context.Context, queue string, arguments map[string]any) error {
	_, err := m.ask(ctx, "PUT", "/queues/"+url.PathEscape(queue), map[string]any{"durable": true, "arguments": arguments})
	return err
}

// bind declares a durable direct exchange and binds the queue to it.
func (m *management) bind(ctx context.Context, queue, exchange, key string) error {
	if _, err := m.ask(ctx, "PUT", "/exchanges/"+url.PathEscape(exchange), map[string]any{"type": "direct", "durable": true}); err != nil {
		return err
	}
	_, err := m.ask(ctx, "POST", "/bindings", map[string]any{
		"source": exchange, "destination_queue": queue, "binding_key": key, "arguments": map[string]any{},
	})
	return err
}

// checkReady checks how many messages are ready in a queue.
func (m *management) checkReady(ctx context.Context, what, queue string, want uint64) error {
	answer, err := m.ask(ctx, "GET", "/queues/"+url.PathEscape(queue), nil)
	if err != nil {
		return err
	}
	fields, _ := answer.(map[string]any)
	return check(what, fields["message_count"], want)
}
