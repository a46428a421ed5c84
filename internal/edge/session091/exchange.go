package session091

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

func (ch *channel) exchangeDeclare(m *amqp091.ExchangeDeclare) error {
	if m.Passive {
		if err := ch.c.link.PassiveExchange(message.ExchangeName(m.Exchange)); err != nil {
			return err
		}
		ch.reply(amqp091.ExchangeDeclareOk{}, m.NoWait)
		return nil
	}
	_, err := ch.c.link.DeclareExchange(topology.ExchangeDecl{
		Name: message.ExchangeName(m.Exchange), Type: routing.Kind(m.Type), Durable: m.Durable,
		AutoDelete: m.AutoDelete, Internal: m.Internal, Arguments: m.Arguments,
	})
	if err == nil {
		ch.reply(amqp091.ExchangeDeclareOk{}, m.NoWait)
	}
	return err
}

func (ch *channel) exchangeDelete(m *amqp091.ExchangeDelete) error {
	err := ch.c.link.DeleteExchange(message.ExchangeName(m.Exchange), m.IfUnused)
	if err == nil {
		ch.reply(amqp091.ExchangeDeleteOk{}, m.NoWait)
	}
	return err
}

func (ch *channel) exchangeBind(m *amqp091.ExchangeBind) error {
	_, err := ch.c.link.Bind(topology.BindingDecl{
		Source: message.ExchangeName(m.Source), DestinationKind: topology.ExchangeResource, Destination: m.Destination,
		Key: message.RoutingKey(m.RoutingKey), Arguments: m.Arguments,
	})
	if err == nil {
		ch.reply(amqp091.ExchangeBindOk{}, m.NoWait)
	}
	return err
}

func (ch *channel) exchangeUnbind(m *amqp091.ExchangeUnbind) error {
	err := ch.c.link.Unbind(topology.BindingDecl{
		Source: message.ExchangeName(m.Source), DestinationKind: topology.ExchangeResource, Destination: m.Destination,
		Key: message.RoutingKey(m.RoutingKey), Arguments: m.Arguments,
	})
	if err == nil {
		ch.reply(amqp091.ExchangeUnbindOk{}, m.NoWait)
	}
	return err
}
