package shovel

import (
	"context"
	"fmt"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// user is the name under which shovels work on this node.
const user = "rmq-shovel"

// link is a shovel's access to a virtual host of this node.
func (w *worker) link(a address) *broker.Connection {
	c := w.b.AsOperator(user, a.vhost)
	c.Rename("Shovel " + w.name)
	return c
}

// localSource is a queue of this node.
type localSource struct {
	link  *broker.Connection
	sub   *broker.Subscription
	ready int
}

func (w *worker) openLocalSource(a address) (source, error) {
	e := &w.definition.source
	s := &localSource{link: w.link(a)}
	name, ready, err := declareSource(s.link, e)
	if err == nil {
		s.ready = ready
		s.sub, err = s.link.Subscribe(name, broker.RandomName("amq.ctag-"), e.prefetch)
	}
	if err != nil {
		s.link.Disconnect()
		return nil, err
	}
	return s, nil
}

// declareSource declares the source queue: the named one, or an exclusive queue that is
// bound to the source exchange.
func declareSource(c *broker.Connection, e *end) (name message.QueueName, ready int, err error) {
	var q broker.Declared
	if e.exchange == "" {
		q, err = declareQueue(c, e)
		return q.Name, q.Messages, err
	}
	q, err = c.DeclareQueue(topology.QueueDecl{Exclusive: true})
	if err != nil {
		return "", 0, err
	}
	_, err = c.Bind(topology.BindingDecl{
		Source: message.ExchangeName(e.exchange), DestinationKind: topology.QueueResource, Destination: string(q.Name), Key: message.RoutingKey(e.key),
	})
	return q.Name, q.Messages, err
}

// declareQueue first looks for the queue: an existing queue of the name is the right one, whatever its arguments.
func declareQueue(c *broker.Connection, e *end) (broker.Declared, error) {
	q, err := c.PassiveQueue(message.QueueName(e.queue))
	if err == nil || e.predeclared {
		return q, err
	}
	return c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(e.queue), Durable: true, Arguments: e.arguments})
}

func (s *localSource) length() int { return s.ready }

func (s *localSource) next(ctx context.Context, limit int) ([]carried, error) {
	taken, err := s.sub.Next(ctx, limit)
	if err != nil {
		return nil, err
	}
	list := make([]carried, len(taken))
	for i := range taken {
		t := &taken[i]
		list[i] = carried{exchange: t.Exchange, key: t.Key, body: t.Body, handle: *t}
		if list[i].properties, err = amqp091.DecodeProps(t.Properties); err != nil {
			return nil, fmt.Errorf("properties of a stored message: %w", err)
		}
	}
	return list, nil
}

func taken(list []carried) []broker.Taken {
	taken := make([]broker.Taken, len(list))
	for i := range list {
		taken[i] = list[i].handle.(broker.Taken)
	}
	return taken
}

func (s *localSource) ack(list []carried) error {
	s.sub.Ack(taken(list))
	return nil
}

func (s *localSource) giveBack(list []carried) error {
	s.sub.Return(taken(list))
	return nil
}

func (s *localSource) close() {
	s.sub.Cancel()
	s.link.Disconnect()
}

// localTarget is an exchange of this node.
type localTarget struct {
	link  *broker.Connection
	queue bool // a queue: if it is deleted, no message is dropped, and the shovel restarts
}

func (w *worker) openLocalTarget(a address) (target, error) {
	e := &w.definition.dest
	t := &localTarget{w.link(a), e.queue != ""}
	var err error
	switch {
	case e.queue != "":
		_, err = declareQueue(t.link, e)
	case e.exchange != "":
		err = t.link.PassiveExchange(message.ExchangeName(e.exchange))
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// alarmPoll is how often a blocked target checks whether the alarm is over.
const alarmPoll = 200 * time.Millisecond

func (t *localTarget) publish(ctx context.Context, list []carried, _ bool) ([]bool, error) {
	for t.blocked() {
		if err := pause(ctx, alarmPoll); err != nil {
			return nil, err
		}
	}
	batch := make([]broker.Publication, len(list))
	for i := range list {
		var err error
		if batch[i], err = publication(&list[i]); err != nil {
			return nil, err
		}
	}
	return t.link.PublishAll(batch, t.queue)
}

// publication is the message as it is published on this node.
func publication(m *carried) (p broker.Publication, err error) {
	p.Exchange, p.Key = []byte(m.exchange), []byte(m.key)
	p.Body, p.Size = [][]byte{m.body}, len(m.body)
	p.Raw = amqp091.AppendPropsFrom(nil, m.properties)
	p.Props, err = amqp091.ParseProps(p.Raw)
	return p, err
}

func (t *localTarget) blocked() bool { return t.link.Broker().Alarmed() }

func (t *localTarget) close() { t.link.Disconnect() }
