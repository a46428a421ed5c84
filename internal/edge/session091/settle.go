package session091

import (
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

func (ch *channel) basicAck(args []byte) error {
	m, err := amqp091.ParseAck(args)
	if err != nil {
		return undecodable(amqp091.BasicAckID, args)
	}
	return ch.settle(m.DeliveryTag, m.Multiple, amqp091.BasicAckID, partition.Op{Kind: partition.Ack})
}

func (ch *channel) basicNack(args []byte) error {
	m, err := amqp091.ParseNack(args)
	if err != nil {
		return undecodable(amqp091.BasicNackID, args)
	}
	op := partition.Op{Kind: partition.Reject}
	if m.Requeue {
		op = partition.Op{Kind: partition.Return, How: queue.ReturnNack}
	}
	return ch.settle(m.DeliveryTag, m.Multiple, amqp091.BasicNackID, op)
}

func (ch *channel) basicReject(args []byte) error {
	m, err := amqp091.ParseReject(args)
	if err != nil {
		return undecodable(amqp091.BasicRejectID, args)
	}
	op := partition.Op{Kind: partition.Reject, Failed: true}
	if m.Requeue {
		op = partition.Op{Kind: partition.Return, How: queue.ReturnReject}
	}
	return ch.settle(m.DeliveryTag, false, amqp091.BasicRejectID, op)
}

// settle settles one delivery, or all up to a tag (0: all) (BR-9.7).
func (ch *channel) settle(tag uint64, multiple bool, method amqp091.MethodID, op partition.Op) error {
	c := ch.c
	ch.mu.Lock()
	if ch.untagged.Load() > 0 && ch.unacked.get(tag) == nil {
		ch.mu.Unlock()
		if err := c.awaitTags(ch); err != nil || c.state != stateRunning {
			return err // everything that it holds goes back with the connection
		}
		ch.mu.Lock()
	}
	if !multiple {
		u := ch.unacked.get(tag)
		if u == nil {
			ch.mu.Unlock()
			return unknownTag(tag, method)
		}
		op.Queue, op.ID, op.Consumer = u.q, u.id, u.consumer
		ch.said(&op, tag)
		if ch.tx != nil {
			ch.unacked.pend(u)
			ch.tx.settles = append(ch.tx.settles, tag)
		} else {
			ch.unacked.settled(u)
		}
		if op.Kind == partition.Ack {
			ch.sentFrom(op.Queue).acked++
		}
		ch.mu.Unlock()
		return ch.settled(op)
	}
	if tag == 0 {
		tag = ch.nextTag
	} else if ch.unacked.get(tag) == nil { // settled before: RabbitMQ does not find it either
		ch.mu.Unlock()
		return unknownTag(tag, method)
	}
	for {
		c.settling = c.settling[:0]
		if ch.tx != nil {
			ch.unacked.upTo(tag, maxOps, func(u *unacked) {
				c.settling = append(c.settling, *u)
				ch.unacked.pend(u)
				ch.tx.settles = append(ch.tx.settles, u.tag)
			})
		} else {
			c.settling = ch.unacked.takeUpTo(tag, maxOps, c.settling)
		}
		if op.Kind == partition.Ack {
			for i := range c.settling {
				ch.sentFrom(c.settling[i].q).acked++
			}
		}
		ch.mu.Unlock()
		for i := range c.settling {
			op.Queue, op.ID, op.Consumer = c.settling[i].q, c.settling[i].id, c.settling[i].consumer
			ch.said(&op, c.settling[i].tag)
			if err := ch.settled(op); err != nil {
				clear(c.settling)
				return err
			}
		}
		last := len(c.settling) < maxOps
		clear(c.settling)
		if last {
			return nil
		}
		ch.mu.Lock()
	}
}

// settled adds a settlement to the batch or to the transaction, which may refuse it as too large.
func (ch *channel) settled(op partition.Op) error {
	if op.Note != nil && op.Note.HasKey && ch.c.link.MayDeadLetterTo(op.Queue, op.Note.Key) != nil {
		op.Note.HasKey = false // it might, when it said so
	}
	if ch.tx != nil {
		ch.tx.add(op, 0)
		if op.Kind == partition.Ack {
			ch.tx.acks.Add(1)
		}
		return ch.tx.check()
	}
	ch.freed(op.Consumer) // before addOp, which may run it: otherwise nobody would check the gate again
	if op.Note != nil {
		ch.c.opBytes += op.Note.Size()
	}
	ch.c.addOp(op, opOwner{})
	return nil
}

// freed makes room under the shared prefetch limit for a delivery to c that was settled.
func (ch *channel) freed(c *queue.Consumer) {
	if c == nil {
		return
	}
	if k, ok := c.Target.(*consumer); !ok || !k.limited {
		return
	}
	ch.gate.used.Add(-1)
	if !ch.ungated && ch.gate.limit.Load() != 0 {
		ch.ungated = true
		ch.c.ungated = append(ch.c.ungated, ch)
	}
}

func unknownTag(tag uint64, method amqp091.MethodID) error {
	f := fail(amqp091.CodePreconditionFailed, "unknown delivery tag %d", tag)
	f.method = method
	return f
}
