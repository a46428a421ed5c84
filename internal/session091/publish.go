package session091

import (
	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/partition"
)

// basicPublish begins a message; its header and body follow in frames of their own.
func (ch *channel) basicPublish(args []byte) error {
	p, err := amqp091.ParsePublish(args)
	if err != nil {
		return fail(amqp091.CodeSyntaxError, "%s", err)
	}
	if p.Immediate {
		return &failure{code: amqp091.CodeNotImplemented, text: "immediate=true", method: amqp091.BasicPublishID} // BR-8.3
	}
	if ch.c.broker.Alarmed() {
		ch.c.waitForAlarm()
	}
	in := &ch.content
	in.expect = expectHeader
	// The names must outlive the read buffer, since the content may come later.
	in.exchange, in.key = append(in.exchange[:0], p.Exchange...), append(in.key[:0], p.RoutingKey...)
	in.publish = p
	in.publish.Exchange, in.publish.RoutingKey = in.exchange, in.key
	return nil
}

func (ch *channel) contentHeader(payload []byte) error {
	class, size, props, err := amqp091.ParseContentHeader(payload)
	if err != nil {
		return fail(amqp091.CodeSyntaxError, "%s", err)
	}
	if class != amqp091.ClassBasic {
		return &failure{code: amqp091.CodeUnexpectedFrame, method: amqp091.BasicPublishID,
			text: fail(0, "expected content header for class 60, got one for class %d instead", class).text}
	}
	in := &ch.content
	in.size, in.body = size, in.body[:0]
	if size > uint64(ch.c.broker.MaxMessageSize) {
		in.expect = expectMethod
		return &failure{code: amqp091.CodePreconditionFailed, method: amqp091.BasicPublishID,
			text: fail(0, "message size %d is larger than configured max size %d", size, ch.c.broker.MaxMessageSize).text} // BR-4.9
	}
	if size == 0 {
		in.expect = expectMethod
		return ch.published(props, nil)
	}
	in.expect = expectBody
	in.props = append(in.props[:0], props...)
	return nil
}

// keepBody is the size up to which a channel keeps its buffer for large bodies.
const keepBody = 1 << 20

func (ch *channel) contentBody(b []byte) error {
	in := &ch.content
	left := in.size - uint64(len(in.body))
	if uint64(len(b)) > left {
		in.expect = expectMethod
		return &failure{code: amqp091.CodeFrameError, text: "content body frame exceeds remaining content size", method: amqp091.BasicPublishID}
	}
	if len(in.body) == 0 && uint64(len(b)) == left {
		in.expect = expectMethod
		return ch.published(in.props, b) // the usual case: one frame, no copy
	}
	in.body = append(in.body, b...) // grows with what arrives, not with what was announced
	if uint64(len(in.body)) < in.size {
		return nil
	}
	in.expect = expectMethod
	err := ch.published(in.props, in.body)
	if cap(in.body) > keepBody {
		in.body = nil
	}
	return err
}

// published handles a whole message.
func (ch *channel) published(props, body []byte) error {
	c := ch.c
	p := &c.pub
	p.Exchange, p.Key, p.Raw, p.Size = ch.content.exchange, ch.content.key, props, len(body)
	p.Body = append(p.Body[:0], body)
	var err error
	if p.Props, err = amqp091.ParseProps(props); err != nil {
		return fail(amqp091.CodeSyntaxError, "%s", err)
	}
	if err := c.link.Check(p); err != nil {
		if first := c.link.MayPublish(p); first != nil {
			err = first // the exchange is looked at before the message
		}
		return asFailure(err, amqp091.BasicPublishID)
	}
	if p.Props.Has(amqp091.FlagReplyTo) && string(p.Props.ReplyTo) == broker.ReplyTo {
		if ch.requester == "" {
			return &failure{code: amqp091.CodePreconditionFailed, text: "fast reply consumer does not exist", method: amqp091.BasicPublishID}
		}
		p.SetReplyTo(ch.requester) // BR-12.2
	}
	if len(p.Exchange) == 0 && broker.IsReplyKey(p.Key) {
		return ch.replied(p)
	}
	targets, err := c.link.Route(p)
	if err != nil {
		c.flushOps() // what came before on this channel is done before it closes
		return asFailure(err, amqp091.BasicPublishID)
	}
	c.broker.Totals.Published.Add(1)
	if len(targets) == 0 {
		return ch.unroutable(p, body)
	}
	op := partition.Op{Kind: partition.Publish, Targets: targets, Body: c.link.Store(p), TTL: p.TTL(), Priority: p.Priority()}
	stored := len(c.broker.Bodies().Bytes(op.Body))
	if ch.tx != nil {
		ch.tx.add(op, stored)
		return ch.tx.check()
	}
	owner := opOwner{}
	if ch.confirms != nil {
		ch.confirms.next++
		owner = opOwner{ch: ch, tag: ch.confirms.next}
	}
	c.addPublish(op, owner, stored)
	return nil
}

// unroutable returns a mandatory message that goes nowhere (BR-8.2).
func (ch *channel) unroutable(p *broker.Publication, body []byte) error {
	c := ch.c
	if ch.tx != nil {
		if ch.content.publish.Mandatory {
			ch.tx.returns = append(ch.tx.returns, ch.appendReturn(nil, p, body)...)
		}
		return ch.tx.check()
	}
	if ch.content.publish.Mandatory {
		c.flushOps()
		c.broker.Totals.UnroutableReturned.Add(1)
		c.out.put(func(b []byte) []byte { return ch.appendReturn(b, p, body) })
	} else {
		c.broker.Totals.UnroutableDropped.Add(1)
	}
	if ch.confirms != nil {
		ch.confirms.next++
		c.addOp(partition.Op{Kind: partition.Publish}, opOwner{ch: ch, tag: ch.confirms.next})
	}
	return nil
}

func (ch *channel) appendReturn(b []byte, p *broker.Publication, body []byte) []byte {
	b = amqp091.AppendReturn(b, ch.number, amqp091.CodeNoRoute, "NO_ROUTE", p.Exchange, p.Key)
	b = amqp091.AppendContentHeader(b, ch.number, amqp091.ClassBasic, uint64(len(body)), p.Canonical())
	return amqp091.AppendBody(b, ch.number, body, ch.c.frameMax)
}

// replied hands a reply to the channel that waits for it (BR-12.2). A reply that
// comes too late is dropped, and confirmed all the same (BR-12.4).
func (ch *channel) replied(p *broker.Publication) error {
	c := ch.c
	c.flushOps()
	if err := c.link.MayPublish(p); err != nil {
		return asFailure(err, amqp091.BasicPublishID)
	}
	c.broker.Totals.Published.Add(1)
	if to, ok := c.broker.Requester(string(p.Key)); ok {
		to.Reply(p.Exchange, p.Key, c.link.Store(p))
	}
	if ch.confirms != nil {
		ch.confirms.next++
		c.addOp(partition.Op{Kind: partition.Publish}, opOwner{ch: ch, tag: ch.confirms.next})
	}
	return nil
}

// maxReplies is how many bytes may wait for a requester before replies are
// dropped: a reply has no queue to wait in, and is delivered at most once (BR-12.4).
const maxReplies = 64 << 20

// Reply implements broker.Requester.
func (ch *channel) Reply(exchange, key []byte, body message.Ref) {
	if ch.c.out.pending.Load() > maxReplies {
		ch.c.broker.Bodies().Release(body)
		return
	}
	it := item{kind: itemReply, ch: ch, reply: &reply{
		exchange: append([]byte{}, exchange...), key: append([]byte{}, key...), tag: ch.replyTag,
	}}
	it.d.Body, it.d.NoAck = body, true
	ch.c.out.deliver(&it, len(ch.c.broker.Bodies().Bytes(body)))
	ch.c.flush(true)
}
