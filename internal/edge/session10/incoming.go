package session10

import (
	"errors"
	"fmt"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp10"
)

const (
	// firstCredit is how many messages a publisher may send before it hears of new credit, as in RabbitMQ. busyCredit is the same
	// when it has heard of new credit busyGrants times, but for strict mode: batches are larger then, and each message costs less.
	firstCredit, busyCredit = 170, 1000
	busyGrants              = 10
	// maxUnfinished is how many bytes of incomplete messages the links of a connection may hold, if messages may not be that
	// large; otherwise it is four of the largest messages, with the excess size of their buffers.
	maxUnfinished = 64 << 20
	// keepBuffer is the largest buffer for incomplete messages that a connection keeps.
	keepBuffer = 1 << 20
	// maxTag is how many bytes of a delivery-tag are kept; the standard's have no more (2.8.7).
	maxTag = 32
)

// publisher is a link on which the client sends. Its reader owns it, except confirms.
type publisher struct {
	s             *session
	handle        uint32
	name          string
	address       string // of the target, "" for an anonymous one
	to            target
	made          message.QueueName // the queue that was made for the link, "" for none
	exchange, key []byte            // of to
	mode          amqp10.SenderSettleMode
	confirms      confirms
	unwatch       func() // ends the watch over its queue; nil before the first message to one

	// A message of which not all transfers have come.
	partly  bool
	id      uint32 // its delivery-id
	tag     []byte
	settled bool
	payload []byte
	counted int // bytes of it in conn.unfinished
}

// inbound is a message on its way in; its memory is used again for the next one.
type inbound struct {
	message  amqp10.Message
	incoming convert.Incoming
	sections message.Sections
}

// transfer handles a transfer (2.7.5).
func (s *session) transfer(t *amqp10.Transfer, payload []byte) error {
	if err := s.took(); err != nil {
		return err
	}
	p := s.publishers[t.Handle]
	if m := s.managerOf(t.Handle); m != nil && m.hasIn && m.in == t.Handle {
		return s.request(m, t, payload)
	}
	if p == nil {
		return failSession(amqp10.ConditionUnattachedHandle, "Unknown link handle: %d", t.Handle)
	}
	err := p.transfer(t, payload)
	if err == nil {
		return nil
	}
	f := asFailure(err)
	if f.scope != ofLink {
		return f
	}
	p.fail(f)
	return nil
}

func (p *publisher) transfer(t *amqp10.Transfer, payload []byte) error {
	c := p.s.c
	if !p.partly {
		if !t.DeliveryID.Set {
			return failSession(amqp10.ConditionInvalidField, "the first transfer of a delivery has no delivery-id").violation()
		}
		p.id, p.tag, p.settled = t.DeliveryID.Value, append(p.tag[:0], t.DeliveryTag[:min(len(t.DeliveryTag), maxTag)]...), t.Settled.Value
	} else {
		if t.DeliveryID.Set && t.DeliveryID.Value != p.id {
			return failLink(amqp10.ConditionInvalidField, "delivery-id of continuation transfer ({uint,%d}) differs from delivery-id on first transfer (%d)", t.DeliveryID.Value, p.id)
		}
		if t.Settled.Set && t.Settled.Value != p.settled {
			return failLink(amqp10.ConditionInvalidField, "field 'settled' of continuation transfer (%t) differs from (interpreted) field 'settled' on first transfer (%t)", t.Settled.Value, p.settled)
		}
	}
	if t.Aborted && !c.Strict { // the client has thought better of it (2.7.5); RabbitMQ publishes what has come
		p.layDown()
		_, err := p.spend()
		p.regain()
		return err
	}
	if size, most := len(p.payload)+len(payload), c.link.MaxMessageSize(); size > most {
		return failSession(amqp10.ConditionMessageSizeExceeded, "message size (%d bytes) > maximum message size (%d bytes)", size, most)
	}
	if t.More {
		if !p.partly {
			p.partly = true
			p.payload, c.spare = c.spare, nil
		}
		p.payload = append(p.payload, payload...) // grows with what arrives
		return p.holds()
	}
	low, err := p.spend()
	if err != nil {
		return err
	}
	whole := payload
	if p.partly {
		p.payload = append(p.payload, payload...)
		whole = p.payload
	}
	if err = p.checkModes(t); err == nil {
		err = p.received(whole)
	}
	p.layDown()
	if err == nil && low {
		p.regain()
	}
	return err
}

// checkModes holds the transfer against what the link's ends have agreed on.
func (p *publisher) checkModes(t *amqp10.Transfer) error {
	if p.mode == amqp10.SenderSettleModeUnsettled && p.settled || p.mode == amqp10.SenderSettleModeSettled && !p.settled {
		return failLink(amqp10.ConditionInvalidField, "sender settle mode is '%s' but transfer settled flag is interpreted as being '%t'", p.mode, p.settled)
	}
	if t.RcvSettleMode.Set && t.RcvSettleMode.Value == amqp10.ReceiverSettleModeSecond && !p.settled {
		return failLink(amqp10.ConditionNotImplemented, "rcv-settle-mode second not supported")
	}
	return nil
}

// holds counts the buffer of an incomplete message, and is called again when more of it arrives.
func (p *publisher) holds() error {
	c := p.s.c
	counted := cap(p.payload)
	c.unfinished += counted - p.counted
	p.counted = counted
	if most := max(maxUnfinished, 5*c.link.MaxMessageSize()); c.unfinished > most {
		return fail(amqp10.ConditionResourceLimitExceeded, "messages that have not come whole take more than %d bytes", most)
	}
	return nil
}

// layDown releases the buffer of the present message. The connection keeps one for all its links, because few have an
// incomplete message at a time.
func (p *publisher) layDown() {
	c := p.s.c
	c.unfinished -= p.counted
	p.counted, p.partly = 0, false
	if p.payload != nil && cap(p.payload) <= keepBuffer {
		c.spare = p.payload[:0]
	}
	p.payload = nil
	clear(c.pub.Body)
	c.inbound.message, c.inbound.sections = amqp10.Message{}, message.Sections{}
	c.inbound.incoming.Forget()
}

// route finds the queues of a message. From the first message on that has one, the broker tells when the queue is deleted that the link
// sends to; RabbitMQ tells nobody who has not sent anything. It is told to before it routes: so no deletion goes by between the two.
func (p *publisher) route(pub *broker.Publication) ([]*partition.Queue, error) {
	c := p.s.c
	first := p.unwatch == nil && p.to.queue
	if first {
		p.unwatch = c.broker.OnDeleted(c.link.VHost, message.QueueName(p.to.key), func() { p.s.departed(p.to.key) })
	}
	targets, err := c.link.Route(pub)
	if first && len(targets) == 0 {
		p.unwatch()
		p.unwatch = nil
	}
	return targets, err
}

// end releases what an ended link holds.
func (p *publisher) end() {
	if p.unwatch != nil {
		p.unwatch()
	}
	p.confirms.shut()
	if p.partly {
		p.layDown()
	}
}

// spend takes a message off the client's credit, and says whether it is low: then regain gives more.
func (p *publisher) spend() (low bool, err error) {
	w := &p.confirms
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.credit == 0 {
		return false, failLink(amqp10.ConditionTransferLimitExceeded, "")
	}
	w.credit--
	w.count++
	return w.credit <= p.fullCredit()/2, nil
}

// fullCredit is how much credit the client gets at a time. REQUIRES: confirms.mu is held.
func (p *publisher) fullCredit() uint32 {
	if p.confirms.grants < busyGrants || p.s.c.Strict {
		return firstCredit
	}
	return busyCredit
}

// regain gives the client new credit, if it is time.
func (p *publisher) regain() {
	p.confirms.mu.Lock()
	p.replenish()
	p.confirms.mu.Unlock()
}

// received handles a whole message.
func (p *publisher) received(payload []byte) error {
	s := p.s
	c := s.c
	in := &c.inbound
	err := in.message.Parse(payload)
	if err == nil {
		err = in.message.Check()
	}
	if errors.Is(err, amqp10.ErrType) { // RabbitMQ takes most of these
		if mended, ok := amqp10.Mend(payload); ok && in.message.Parse(mended) == nil {
			err = in.message.Check()
		}
	}
	if err == nil {
		err = convert.FromAMQP10(&in.incoming, &in.message)
	}
	if err != nil {
		return p.unreadable(err)
	}
	exchange, key := p.exchange, p.key
	if p.to.anonymous {
		address := in.incoming.To
		if address == nil {
			return p.misdirected(amqp10.ConditionPreconditionFailed, "anonymous terminus requires 'to' address to be set")
		}
		to, ok := parseTarget(string(address))
		if !ok {
			return p.misdirected(amqp10.ConditionPreconditionFailed, "bad 'to' address string: "+string(address))
		}
		exchange, key = []byte(to.exchange), []byte(to.key)
	}
	pub := &c.pub
	in.sections = in.incoming.Sections
	pub.Exchange, pub.Key, pub.Raw, pub.Props, pub.Sections = exchange, key, in.incoming.Raw, in.incoming.Props, &in.sections
	pub.Body, pub.Size, pub.Channel = append(pub.Body[:0], in.incoming.Body), len(in.incoming.Body), s.number
	pub.Whole = len(payload)
	return p.publish(pub)
}

// unreadable refuses a message that is not well-formed, or whose annotation x-cc is not.
func (p *publisher) unreadable(err error) error {
	var cc *convert.CCError
	if errors.As(err, &cc) {
		return p.misdirected(amqp10.ConditionInvalidField, err.Error())
	}
	return failLink(amqp10.ConditionDecodeError, "failed to parse message: %s", err)
}

// publish checks a message, routes it, and adds it to the batch.
func (p *publisher) publish(pub *broker.Publication) error {
	c := p.s.c
	if user := c.inbound.incoming.UserID; user != nil && string(user) != c.login.User && !c.link.Impersonates() {
		return failLink(amqp10.ConditionUnauthorizedAccess, "user_id property set to '%s' but authenticated user was '%s'", user, c.login.User)
	}
	if err := c.link.Check(pub); err != nil {
		return err
	}
	if len(pub.Exchange) == 0 && broker.IsReplyKey(pub.Key) && !pub.HasMoreKeys() {
		return p.reply(pub)
	}
	targets, err := p.route(pub)
	if err != nil {
		return p.unrouted(err)
	}
	if len(targets) == 0 {
		c.link.CountUnroutable(!p.settled)
		p.unroutable()
		return nil
	}
	op := c.link.Op(pub, targets)
	owner := opOwner{}
	if !p.settled {
		owner = opOwner{p: p, token: p.confirms.add(p.id, targets)}
		op.Owner, op.Token = p, owner.token
	}
	c.addPublish(op, owner, c.broker.Bodies().Size(op.Body))
	return nil
}

// unrouted refuses a message whose exchange does not exist, or may not be written to.
func (p *publisher) unrouted(err error) error {
	var refused *topology.Error
	if errors.As(err, &refused) && refused.Kind == topology.NotFound {
		return p.misdirected(amqp10.ConditionNotFound, refused.Text)
	}
	return forbidden(err)
}

// reply hands a message to a client of AMQP 0-9-1 that waits for a direct reply (BR-12.2). A reply that comes too late is
// dropped.
func (p *publisher) reply(pub *broker.Publication) error {
	c := p.s.c
	if err := c.link.MayPublish(pub); err != nil {
		return err
	}
	c.link.Traffic().Published.Add(1)
	if to, ok := c.broker.Requester(string(pub.Key)); ok {
		c.flushOps() // operations before it come first
		to.Reply(pub.Exchange, pub.Key, c.link.Store(pub))
	}
	if !p.settled {
		p.confirms.ran(p.confirms.add(p.id, nil), &partition.Op{})
		c.owesConfirms(p)
	}
	return nil
}

// unroutable answers a message without a route, in its turn.
func (p *publisher) unroutable() {
	if p.settled {
		return
	}
	p.confirms.release(p.id)
	p.s.c.owesConfirms(p)
}

// misdirected refuses a message because of where it goes. One of a link that says so itself is given back, and the link ends;
// of a link whose messages say so only the message is refused, if it can be (anonterm 2.2).
func (p *publisher) misdirected(condition, text string) error {
	f := failLink(condition, "%s", text)
	c := p.s.c
	switch {
	case p.to.anonymous && p.settled:
		b, start := amqp10.BeginMap(nil)
		b = amqp10.AppendBinary(amqp10.AppendSymbol(b, "delivery-tag"), p.tag)
		f.info = amqp10.EndCompound(b, start, 2)
	case p.to.anonymous:
		p.confirms.reject(p.id, f)
		c.owesConfirms(p)
		return nil
	case !p.settled:
		p.confirms.release(p.id)
		c.owesConfirms(p)
	}
	return f
}

// refusal is the error of a message that a queue has refused.
func refusal(q *partition.Queue) *amqp10.Error {
	e := &amqp10.Error{Condition: []byte(amqp10.ConditionResourceLimitExceeded), Description: []byte("a queue exceeded its maximum length")}
	if q == nil {
		return e
	}
	e.Description = fmt.Appendf(nil, "queue '%s' exceeded maximum length", q.Name)
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendString(amqp10.AppendSymbol(b, "queue"), q.Name)
	b = amqp10.AppendSymbol(amqp10.AppendSymbol(b, "reason"), "maxlen")
	e.Info, _, _ = amqp10.ReadValue(amqp10.EndCompound(b, start, 4))
	return e
}
