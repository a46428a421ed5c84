package session091

import (
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// method handles a method on an open channel. It only collects publish, ack, reject and
// nack; before any other method it runs the collected operations.
func (ch *channel) method(f amqp091.Frame) error {
	id, args, _ := amqp091.SplitMethod(f.Payload)
	switch id {
	case amqp091.BasicPublishID:
		return ch.basicPublish(args)
	case amqp091.BasicAckID:
		return ch.basicAck(args)
	case amqp091.BasicNackID:
		return ch.basicNack(args)
	case amqp091.BasicRejectID:
		return ch.basicReject(args)
	}
	m, err := ch.c.decode(f)
	if err != nil {
		return err
	}
	ch.c.flushOps()
	ch.c.confirm()
	if err := ch.dispatch(m); wordless(err) {
		return err
	} else if err != nil {
		return ch.inStyle(asFailure(err, m.ID()), involvedIn(m))
	}
	return nil
}

func (ch *channel) dispatch(m amqp091.Method) error {
	switch m := m.(type) {
	case *amqp091.ChannelOpen:
		return fail(amqp091.CodeChannelError, "second 'channel.open' seen")
	case *amqp091.ChannelClose:
		ch.release()
		ch.c.forgetChannel(ch)
		ch.reply(amqp091.ChannelCloseOk{}, false)
		return nil
	case *amqp091.ChannelFlow:
		if !m.Active {
			return fail(amqp091.CodeNotImplemented, "active=false") // BR-4.6
		}
		ch.reply(amqp091.ChannelFlowOk{Active: true}, false)
		return nil
	case *amqp091.AccessRequest:
		ch.reply(amqp091.AccessRequestOk{Ticket: 1}, false) // BR-4.7
		return nil
	case *amqp091.ExchangeDeclare:
		return ch.exchangeDeclare(m)
	case *amqp091.ExchangeDelete:
		return ch.exchangeDelete(m)
	case *amqp091.ExchangeBind:
		return ch.exchangeBind(m)
	case *amqp091.ExchangeUnbind:
		return ch.exchangeUnbind(m)
	case *amqp091.QueueDeclare:
		return ch.queueDeclare(m)
	case *amqp091.QueueBind:
		return ch.queueBind(m)
	case *amqp091.QueueUnbind:
		return ch.queueUnbind(m)
	case *amqp091.QueuePurge:
		return ch.queuePurge(m)
	case *amqp091.QueueDelete:
		return ch.queueDelete(m)
	case *amqp091.BasicQos:
		return ch.basicQos(m)
	case *amqp091.BasicConsume:
		return ch.basicConsume(m)
	case *amqp091.BasicCancel:
		return ch.basicCancel(m)
	case *amqp091.BasicCancelOk:
		return nil
	case *amqp091.BasicGet:
		return ch.basicGet(m)
	case *amqp091.BasicRecover:
		return ch.basicRecover(m.Requeue, false)
	case *amqp091.BasicRecoverAsync:
		return ch.basicRecover(m.Requeue, true)
	case *amqp091.ConfirmSelect:
		return ch.confirmSelect(m)
	case *amqp091.TxSelect:
		return ch.txSelect()
	case *amqp091.TxCommit:
		return ch.txCommit()
	case *amqp091.TxRollback:
		return ch.txRollback()
	}
	return fail(amqp091.CodeCommandInvalid, "unimplemented method")
}

// reply answers unless no-wait is set.
func (ch *channel) reply(m amqp091.Method, noWait bool) {
	if !noWait {
		ch.c.putMethod(ch.number, m)
	}
}

// queueName returns the queue that a method names. An empty name means the queue that was last declared on the
// channel (BR-6.1).
func (ch *channel) queueName(name string) (message.QueueName, error) {
	if name != "" {
		return message.QueueName(name), nil
	}
	if ch.lastQueue == "" {
		return "", fail(amqp091.CodeNotFound, "no previously declared queue")
	}
	return ch.lastQueue, nil
}

func sortConsumers(list []*consumer) {
	slices.SortFunc(list, func(a, b *consumer) int { return strings.Compare(a.tag, b.tag) })
}

func (c *conn) sortedChannels() []*channel {
	list := make([]*channel, 0, len(c.channels))
	for _, ch := range c.channels {
		list = append(list, ch)
	}
	slices.SortFunc(list, func(a, b *channel) int { return int(a.number) - int(b.number) })
	return list
}
