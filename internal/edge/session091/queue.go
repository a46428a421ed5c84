package session091

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

func (ch *channel) queueDeclare(m *amqp091.QueueDeclare) error {
	ch.provoke(message.QueueName(m.Queue))
	if m.Queue == broker.ReplyTo || broker.IsReplyKey([]byte(m.Queue)) {
		return ch.declareReplyQueue(m)
	}
	var d broker.Declared
	var err error
	if m.Passive {
		d, err = ch.c.link.PassiveQueue(message.QueueName(m.Queue))
	} else {
		d, err = ch.c.link.DeclareQueue(topology.QueueDecl{
			Name: message.QueueName(m.Queue), Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete, Arguments: m.Arguments,
		})
	}
	if err != nil {
		return err
	}
	ch.lastQueue = d.Name
	ch.reply(amqp091.QueueDeclareOk{Queue: string(d.Name), MessageCount: uint32(d.Messages), ConsumerCount: uint32(d.Consumers)}, m.NoWait)
	return nil
}

// declareReplyQueue answers declarations of direct reply-to queues, which do not exist (BR-12.3, BR-12.5).
func (ch *channel) declareReplyQueue(m *amqp091.QueueDeclare) error {
	if m.Queue != broker.ReplyTo {
		if _, ok := ch.c.broker.Requester(m.Queue); !ok {
			return topology.NoQueue(ch.c.link.VHost, message.QueueName(m.Queue))
		}
	}
	ch.reply(amqp091.QueueDeclareOk{Queue: m.Queue, ConsumerCount: 1}, m.NoWait)
	return nil
}

func (ch *channel) queueBind(m *amqp091.QueueBind) error {
	d, err := ch.binding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if _, err := ch.c.link.Bind(d); err != nil {
		return err
	}
	ch.reply(amqp091.QueueBindOk{}, m.NoWait)
	return nil
}

func (ch *channel) queueUnbind(m *amqp091.QueueUnbind) error {
	d, err := ch.binding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if err := ch.c.link.Unbind(d); err != nil {
		return err
	}
	ch.reply(amqp091.QueueUnbindOk{}, false)
	return nil
}

// binding is the binding that queue.bind and queue.unbind name. If queue and key are empty, the key is the queue's
// name (BR-6.1).
func (ch *channel) binding(queue, exchange, key string, args amqp091.Table) (topology.BindingDecl, error) {
	name, err := ch.queueName(queue)
	if err != nil {
		return topology.BindingDecl{}, err
	}
	if broker.IsReplyQueue(name) {
		return topology.BindingDecl{}, fail(amqp091.CodeAccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue") // BR-12.5
	}
	if queue == "" && key == "" {
		key = string(name)
	}
	return topology.BindingDecl{
		Source: message.ExchangeName(exchange), DestinationKind: topology.QueueResource, Destination: string(name),
		Key: message.RoutingKey(key), Arguments: args,
	}, nil
}

func (ch *channel) queuePurge(m *amqp091.QueuePurge) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if _, live := ch.c.broker.Requester(string(name)); live {
		ch.reply(amqp091.QueuePurgeOk{}, m.NoWait) // there is nothing to purge: replies do not wait in a queue
		return nil
	}
	n, err := ch.c.link.Purge(name)
	if err == nil {
		ch.reply(amqp091.QueuePurgeOk{MessageCount: uint32(n)}, m.NoWait)
	}
	return err
}

func (ch *channel) queueDelete(m *amqp091.QueueDelete) error {
	if m.Queue == broker.ReplyTo {
		ch.reply(amqp091.QueueDeleteOk{}, m.NoWait) // BR-12.5
		return nil
	}
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if _, live := ch.c.broker.Requester(string(name)); live {
		ch.reply(amqp091.QueueDeleteOk{}, m.NoWait) // it stays, as a name without a requester does
		return nil
	}
	return ch.deleteQueue(name, m.IfUnused, m.IfEmpty, func(messages int) {
		ch.reply(amqp091.QueueDeleteOk{MessageCount: uint32(messages)}, m.NoWait)
	})
}
