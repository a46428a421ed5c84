package session091

import (
	"fmt"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp091"
)

// basicPublish begins a message; its header and body follow in frames of their own.
func (ch *channel) basicPublish(args []byte) error {
	p, err := amqp091.ParsePublish(args)
	if err != nil {
		return undecodable(amqp091.BasicPublishID, args)
	}
	if p.Immediate {
		return &failure{code: amqp091.CodeNotImplemented, text: "immediate=true", method: amqp091.BasicPublishID} // BR-8.3
	}
	if on, err := ch.passAlarm(p.Exchange, 0); !on {
		return err
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
	in.size = size
	if size > uint64(ch.c.link.MaxMessageSize()) {
		in.expect = expectMethod
		return ch.refusedPublish(ch.c.link.TooLarge(size))
	}
	if size == 0 {
		in.expect = expectMethod
		return ch.published(props, nil)
	}
	in.expect = expectBody
	c := ch.c
	in.props, c.spareProps = append(c.spareProps, props...), nil
	return c.holds(in)
}

// holds counts the buffers of an incomplete message, and is called again when more of it arrives. The buffers may be
// much larger than their content.
func (c *conn) holds(in *content) error {
	counted := cap(in.props) + cap(in.body)
	c.unfinished += counted - in.counted
	in.counted = counted
	if most := max(maxUnfinished, 5*c.link.MaxMessageSize()); c.unfinished > most {
		return &failure{code: amqp091.CodeResourceError, text: fmt.Sprintf("messages that have not come whole take more than %d bytes", most), method: amqp091.BasicPublishID}
	}
	return nil
}

// laidDown releases the buffers of the channel's present message. The connection keeps one pair of buffers for all
// its channels, because few channels have an incomplete message at a time.
func (in *content) laidDown(c *conn) {
	c.unfinished -= in.counted
	in.counted = 0
	if in.body != nil && cap(in.body) <= keepBody { // a larger buffer would stay without use
		c.spareBody = in.body[:0]
	}
	if cap(in.props) <= keepProps && cap(in.props) > cap(c.spareProps) {
		c.spareProps = in.props[:0]
	}
	in.props, in.body = nil, nil
	clear(c.pub.Body) // otherwise it stays with a connection that no longer publishes
}

// maxUnfinished is how many bytes of incomplete messages the channels of a connection may
// hold, if messages may not be that large; otherwise it is four of the largest messages, with
// the excess size of their buffers.
const maxUnfinished = 64 << 20

// keepBody is the largest body buffer that a connection keeps.
const keepBody = 1 << 20

// keepProps is the same for properties. It is small, because the next message takes the buffer even if its own
// properties are small.
const keepProps = 16 << 10

func (ch *channel) contentBody(b []byte) error {
	in := &ch.content
	left := in.size - uint64(len(in.body))
	if uint64(len(b)) > left {
		in.expect = expectMethod
		return &failure{code: amqp091.CodeFrameError, text: "content body frame exceeds remaining content size", method: amqp091.BasicPublishID}
	}
	if len(in.body) == 0 && uint64(len(b)) == left {
		in.expect = expectMethod
		err := ch.published(in.props, b) // the usual case: one frame, no copy
		in.laidDown(ch.c)
		return err
	}
	if on, err := ch.passAlarm(in.exchange, in.size); !on { // otherwise many channels would go on with large messages
		return err
	}
	if c := ch.c; in.body == nil && uint64(cap(c.spareBody)) <= 4*in.size { // not a much larger buffer: its whole size counts
		in.body, c.spareBody = c.spareBody, nil
	}
	in.body = append(in.body, b...) // grows with what arrives, not with what was announced
	if uint64(len(in.body)) < in.size {
		return ch.c.holds(in)
	}
	in.expect = expectMethod
	err := ch.published(in.props, in.body)
	in.laidDown(ch.c)
	return err
}

// published handles a whole message.
func (ch *channel) published(props, body []byte) error {
	c := ch.c
	p := &c.pub
	p.Exchange, p.Key, p.Raw, p.Size, p.Channel = ch.content.exchange, ch.content.key, props, len(body), ch.number
	p.Body = append(p.Body[:0], body)
	if p.Props.Parse(props) != nil {
		return &failure{code: amqp091.CodeInternalError} // RabbitMQ's reader crashes here, without a text
	}
	requests := p.Props.Has(amqp091.FlagReplyTo) && string(p.Props.ReplyTo) == broker.ReplyTo
	if err := c.link.Check(p); err != nil || requests && ch.requester == "" {
		return ch.refusedPublish(ch.refusal(p, requests && ch.requester == "", err))
	}
	if requests {
		p.SetReplyTo(ch.requester) // BR-12.2
	}
	isReply := len(p.Exchange) == 0 && broker.IsReplyKey(p.Key)
	if isReply && !p.HasMoreKeys() {
		return ch.replied(p)
	}
	targets, err := c.link.Route(p)
	if err != nil && c.link.Settles(p.Exchange) {
		return ch.note(p, body)
	}
	if err != nil {
		c.flushOps() // operations before it on this channel are done before the channel closes
		return ch.refusedPublish(err)
	}
	counts := ch.publishing(p.Exchange)
	if ch.tx == nil {
		counts.published.Add(1) // in a transaction they count at commit
	} else {
		ch.tx.messages.Add(1)
	}
	replied := ch.copyReplies(p) || isReply // the requester may be gone (BR-12.4)
	switch {
	case len(targets) > 0:
	case !replied:
		return ch.unroutable(p, body)
	case ch.tx != nil:
		return ch.tx.check()
	default:
		ch.nothingToRun()
		return nil
	}
	op := c.link.Op(p, targets)
	stored := c.broker.Bodies().Size(op.Body)
	if ch.tx != nil {
		ch.tx.add(op, stored)
		ch.tx.countsOf(counts).published++
		return ch.tx.check()
	}
	owner := opOwner{}
	if ch.confirms != nil {
		owner = opOwner{ch: ch, tag: ch.confirms.add(counts)}
		op.Owner, op.Token = ch, owner.tag
	}
	c.addPublish(op, owner, stored)
	return nil
}

// refusedPublish is the failure for the channel's present publish.
func (ch *channel) refusedPublish(err error) error {
	in := &ch.content
	return ch.inStyle(asFailure(err, amqp091.BasicPublishID), involved{exchange: string(in.exchange), key: string(in.key)})
}

// unroutable returns a mandatory message without a route (BR-8.2).
func (ch *channel) unroutable(p *broker.Publication, body []byte) error {
	c := ch.c
	if ch.tx != nil {
		c.link.NoteUnroutable(&ch.tx.nowhere, ch.content.publish.Mandatory)
		n := ch.tx.countsOf(ch.publishing(p.Exchange))
		if ch.content.publish.Mandatory {
			n.returned++
			code, text := ch.noRoute()
			ch.tx.returns = append(ch.tx.returns, ch.appendReturn(nil, p, body, code, text)...)
		} else {
			n.dropped++
		}
		return ch.tx.check()
	}
	if ch.content.publish.Mandatory {
		c.link.CountUnroutable(true)
		code, text := ch.noRoute()
		if err := ch.returned(p, body, code, text); err != nil {
			return err
		}
	} else {
		c.link.CountUnroutable(false)
		ch.publishing(p.Exchange).dropped.Add(1)
	}
	ch.nothingToRun()
	return nil
}

// returned returns a message after everything before it is done.
func (ch *channel) returned(p *broker.Publication, body []byte, code uint16, text string) error {
	c := ch.c
	c.flushOps()
	if err := c.link.Await(partition.Receipt{}); err != nil {
		return err
	}
	ch.publishing(p.Exchange).returned.Add(1)
	if len(body) < serving.WriteSize {
		c.out.Put(func(b []byte) []byte { return ch.appendReturn(b, p, body, code, text) })
	} else {
		c.putOwn(ch.appendReturn(nil, p, body, code, text))
	}
	return nil
}

func (ch *channel) appendReturn(b []byte, p *broker.Publication, body []byte, code uint16, text string) []byte {
	b = amqp091.AppendReturn(b, ch.number, code, text, p.Exchange, p.Key)
	props := p.Canonical()
	if most := amqp091.MaxProps(ch.c.frameMax); len(props) > most { // their form may have grown: a number has become wider, say
		props = broker.FitProps(nil, props, most)
	}
	b = amqp091.AppendContentHeader(b, ch.number, amqp091.ClassBasic, uint64(len(body)), props)
	return amqp091.AppendBody(b, ch.number, body, ch.c.frameMax)
}

// refusal selects the first fault of a message in RabbitMQ's order: the exchange, a missing
// requester, the message, topics, the user_id. checked is the result of Check.
func (ch *channel) refusal(p *broker.Publication, noRequester bool, checked error) error {
	if err := ch.c.link.MayPublish(p); err != nil {
		return err
	}
	if noRequester {
		return fail(amqp091.CodePreconditionFailed, "fast reply consumer does not exist")
	}
	if p.FromAnother {
		if err := ch.c.link.MayUseTopics(p); err != nil {
			return err
		}
	}
	return checked
}
