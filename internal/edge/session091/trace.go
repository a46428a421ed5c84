package session091

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
)

// trace copies a delivery to the exchange for traced messages. render was called for the same item before. REQUIRES: the pen.
func (c *conn) trace(it *item, rec message.Record, exchange, key, props []byte) {
	d := broker.TracedDelivery{
		Exchange: exchange, Key: key, Properties: props, Record: rec, History: c.rendered(it), Redelivered: it.d.Redelivered, Channel: it.ch.number,
	}
	switch {
	case it.q != nil:
		d.Queue = it.q.Name
	case broker.IsReplyKey(key): // as RabbitMQ names the queue that a requester stands for
		d.Queue = string(key)
	default:
		d.Queue = broker.ReplyTo
	}
	c.link.TraceDelivery(&d)
}

// rendered is the history that the last delivery was rendered with, nil if it had none. REQUIRES: the pen.
func (c *conn) rendered(it *item) *deadletter.History {
	if it.d.History == 0 || c.renderer.ref != it.d.History {
		return nil
	}
	return &c.renderer.history
}
