package session10

import (
	"encoding/binary"
	"sync/atomic"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp10"
)

// consumer is a link on which we send: a partition.Subscriber.
//
// Credit (2.6.7) is the queue's to keep. The client says up to which delivery-count it takes messages; the difference to what the
// queue was granted before is granted to it. So nobody needs to know what is on its way. What a drain ends is the queue's answer,
// and comes to the client after the deliveries before it.
type consumer struct {
	queue.Consumer
	s          *session
	q          *partition.Queue
	handle     uint32
	name       string
	address    string
	maxMessage uint64 // the largest message that the client takes, in bytes; 0: any

	ended bool // guarded by session.mu

	// Owned by the reader, except while a drain waits for room: then by the writer.
	granted  uint32 // the delivery-count up to which the queue may deliver
	limit    uint32 // the one up to which the client takes messages
	draining bool   // a drain waits for room; guarded by session.mu
	stashed  *wish  // what the client has said meanwhile; guarded by session.mu
	// urgent: a drain is under way. The queue must not take the consumer for one that is full, and so believe that there is
	// nothing for it.
	urgent atomic.Bool

	// Written by the holder of the pen.
	count atomic.Uint32 // delivery-count: what was sent, and credit that has ended
	told  atomic.Uint32 // limit, as the flows so far have it

	timedOut atomic.Bool // it has not settled deliveries in time
}

var _ partition.Subscriber = (*consumer)(nil)

// Deliver implements partition.Subscriber. The partition is locked.
func (k *consumer) Deliver(_ *partition.Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	it := item{kind: itemDelivery, s: k.s, consumer: k, d: *d}
	return k.s.c.deliver(&it)
}

// Flush implements partition.Subscriber.
func (k *consumer) Flush() { k.s.c.flush(true) }

// QueueGone implements partition.Subscriber.
func (k *consumer) QueueGone(q *partition.Queue, _ *queue.Consumer) {
	s := k.s
	if !s.endConsumer(k) {
		return
	}
	s.c.link.NotifyConsumerGone(q, k.Tag, s.number, false)
	s.mu.Lock()
	if !s.closed {
		s.c.out.putFrame(s.number, &amqp10.Detach{Handle: k.handle, Closed: true, Error: &amqp10.Error{Condition: []byte(amqp10.ConditionResourceDeleted)}})
	}
	s.mu.Unlock()
	s.c.flush(false)
}

// TimedOut implements partition.Subscriber (DL-12.7). The queue has taken deliveries back, and gives the consumer nothing more
// before it settles them, which then has no effect.
func (k *consumer) TimedOut(_ *partition.Queue, _ *queue.Consumer, n int) {
	k.timedOut.Store(true)
	k.s.c.log.Warn("a consumer did not settle deliveries in time", "link", k.name, "channel", k.s.number, "queue", k.q.Name, "deliveries", n)
}

// Cause implements partition.Culprit.
func (k *consumer) Cause() deadletter.Cause {
	cause := k.s.c.cause
	cause.ConsumerTag = k.name
	return cause
}

// wish is what a flow says of a link: how far the client is, and how much it takes.
type wish struct {
	count, credit uint32
	drain, echo   bool
}

// flow handles the client's flow for the link. While a drain waits for room the last wish waits for its end.
func (k *consumer) flow(f *amqp10.Flow) error {
	if !f.LinkCredit.Set {
		return failSession(amqp10.ConditionInvalidField, "a flow for a link has no link-credit")
	}
	w := wish{f.DeliveryCount.Value, f.LinkCredit.Value, f.Drain, f.Echo}
	k.s.mu.Lock()
	waits := k.draining
	if waits {
		k.stashed = &w
	}
	k.s.mu.Unlock()
	if !waits {
		k.s.c.flushOps() // what it has settled makes room before it gets more
		k.heed(w)
	}
	return nil
}

// heed gives the queue the client's credit. It returns false if a drain waits for room.
func (k *consumer) heed(w wish) (done bool) {
	c := k.s.c
	if int32(w.count-k.granted) > 0 { // it cannot have got more than the queue could deliver
		w.count = k.granted
	}
	k.limit = w.count + min(w.credit, mostCredit)
	if w.drain {
		return k.drain()
	}
	ready := 0
	if more := int(int32(k.limit - k.granted)); more != 0 || w.echo {
		var err error
		if _, ready, err = c.link.Grant(k.q, &k.Consumer, more, false); err != nil {
			return true // the queue is gone, and its end detaches the link
		}
		k.granted = k.limit
	}
	c.out.putItem(item{kind: itemFlow, s: k.s, consumer: k, flow: &flow{credit: k.limit, available: ready, quiet: !w.echo}})
	return true
}

// mostCredit is how much credit of a client counts. Delivery-counts are serial numbers, which are compared over half of their
// range (RFC 1982).
const mostCredit = 1 << 30

// drainStep is how many deliveries a drain asks for at a time. It goes on while there is room for more.
const drainStep = 16

// drain has the queue deliver what it has, up to the client's credit, and ends what is left of that. It returns false if it waits
// for room; then the writer goes on with it.
func (k *consumer) drain() (done bool) {
	c := k.s.c
	if !k.urgent.Swap(true) {
		c.link.Resume(k.q, &k.Consumer) // it may have been full
	}
	for {
		more := int(int32(k.limit - k.granted))
		step := min(more, drainStep)
		drained, ready, err := c.link.Grant(k.q, &k.Consumer, step, true)
		if err != nil {
			return true // as in heed
		}
		k.granted += uint32(int32(step))
		if left := more - step; drained > 0 || left <= 0 {
			k.urgent.Store(false)
			k.granted = k.limit
			c.out.putItem(item{kind: itemFlow, s: k.s, consumer: k, flow: &flow{credit: k.limit, drained: uint32(drained + max(left, 0)), drain: true, available: ready}})
			return true
		}
		if o := &c.out; !o.roomy(k) {
			k.s.mu.Lock()
			k.draining = true
			k.s.mu.Unlock()
			o.mu.Lock()
			o.draining = append(o.draining, k)
			o.mu.Unlock()
			o.wake() // there may be room just now
			return false
		}
	}
}

// goOnDraining is called by the writer when there is room again. When the drain is done it does what the client has wished
// meanwhile.
func (k *consumer) goOnDraining() {
	s := k.s
	if s.over(k) {
		return
	}
	for done := k.drain(); done; {
		s.mu.Lock()
		w := k.stashed
		k.stashed, k.draining = nil, w != nil
		s.mu.Unlock()
		if w == nil {
			break
		}
		done = k.heed(*w)
	}
	s.c.flush(false)
}

// part is a delivery of which only a part was sent, since the client's window was used up.
type part struct {
	it   item
	head []byte // what was made for it before the body
	sent int    // bytes
}

// send encodes a delivery, or goes on with a part of one. It returns false if the client's window is used up before all of it
// was sent; then the session keeps the part.
func (p *pen) send(it *item, from *part) (whole bool) {
	c, s, k := p.c, it.s, it.consumer
	var rec message.Record
	var head, body, tail []byte
	if it.answer != nil {
		head = it.answer.payload
	} else {
		var ok bool
		rec, ok = p.record(it)
		switch {
		case !ok:
			return true // the connection ends
		case rec == nil:
			p.skip(it)
			return true
		}
		head, body, tail = c.render(it, rec)
	}
	all := len(head) + len(body) + len(tail)
	var t amqp10.Transfer
	sent := 0
	if from != nil {
		head, sent = from.head, from.sent
	} else if k != nil && k.maxMessage > 0 && uint64(all) > k.maxMessage { // as RabbitMQ; the message goes back with the session
		c.abort(s, failSession(amqp10.ConditionMessageSizeExceeded, "message size (%d bytes) > maximum message size (%d bytes)", all, k.maxMessage))
		return true
	}
	s.mu.Lock()
	if it.ended() {
		s.mu.Unlock()
		return true // it has gone back with its link
	}
	settled := it.answer != nil || it.d.NoAck
	if from == nil {
		t.DeliveryID, t.DeliveryTag = amqp10.Some(s.nextDelivery), binary.BigEndian.AppendUint32(nil, s.nextDelivery)
		t.MessageFormat, t.Settled = amqp10.Some[uint32](0), amqp10.Some(settled)
		s.nextDelivery++
		if !settled {
			s.unsettled[t.DeliveryID.Value] = unsettled{consumer: k, id: it.d.ID}
		}
		if k != nil {
			k.count.Add(1)
		}
	}
	s.mu.Unlock()
	handle := it.handle()
	t.Handle = handle
	o := &c.out
	for first := from == nil; first || sent < all; first = false {
		s.mu.Lock()
		if it.ended() {
			s.mu.Unlock()
			return true
		}
		if int32(s.limit-s.nextOutgoing) <= 0 {
			s.mu.Unlock()
			s.keepPart(it, from, head, sent)
			return false
		}
		s.nextOutgoing++
		s.mu.Unlock()
		o.wire, sent = amqp10.AppendTransfer(o.wire, s.number, &t, c.clientMax, sent, head, body, tail)
		t = amqp10.Transfer{Handle: handle}
	}
	if rec != nil && c.link.Traced() && from == nil {
		c.trace(it, rec)
	}
	return true
}

// handle is that of the item's link.
func (it *item) handle() uint32 {
	if it.answer != nil {
		return it.answer.handle
	}
	return it.consumer.handle
}

// keepPart keeps what is left of a delivery.
func (s *session) keepPart(it *item, from *part, head []byte, sent int) {
	if from != nil {
		from.sent = sent
		return
	}
	s.part = &part{it: *it, head: append([]byte{}, head...), sent: sent}
	s.parked.Add(int64(it.bytes))
	if it.kind != itemDelivery {
		s.flows++
	}
}

// skip tells the client that a message that it does not get has used up credit.
func (p *pen) skip(it *item) {
	it.consumer.count.Add(1)
	p.flow(&item{kind: itemFlow, s: it.s, consumer: it.consumer, flow: &flow{credit: it.consumer.told.Load()}})
}

// flow encodes a flow with the present state of the session.
func (p *pen) flow(it *item) {
	s, f, k := it.s, it.flow, it.consumer
	w := amqp10.Flow{OutgoingWindow: outgoingWindow}
	if k != nil {
		k.told.Store(f.credit)
		count := k.count.Add(f.drained)
		if f.quiet {
			return
		}
		w.Handle, w.DeliveryCount = amqp10.Some(k.handle), amqp10.Some(count)
		w.LinkCredit = amqp10.Some(uint32(max(0, int32(f.credit-count))))
		w.Available, w.Drain = amqp10.Some(uint32(f.available)), f.drain
	}
	if f.linked {
		w.Handle, w.DeliveryCount, w.LinkCredit, w.Drain = amqp10.Some(f.handle), amqp10.Some(f.count), amqp10.Some(f.credit), f.drain
	}
	s.mu.Lock()
	over := s.closed || k != nil && k.ended
	w.NextIncomingID, w.IncomingWindow, w.NextOutgoingID = amqp10.Some(s.nextIncoming), uint32(max(0, s.window)), s.nextOutgoing
	s.mu.Unlock()
	if !over {
		p.c.out.wire = amqp10.AppendFrame(p.c.out.wire, s.number, &w)
	}
}

// renderer keeps the history that it parsed last: messages that died together share it. Owned by the holder of the pen.
type renderer struct {
	ref     message.Ref // retained, so that its number is not reused for another history
	shared  message.Ref // the part of it that similar histories share, 0 if none
	history deadletter.History
	head    []byte // scratch space
}

// render makes what goes out of a delivery. It is valid until the next call. REQUIRES: the pen.
func (c *conn) render(it *item, rec message.Record) (head, body, tail []byte) {
	r := &c.renderer
	d := convert.Delivery{
		History: c.historyOf(it), Counts: it.d.Counts, Redelivered: it.d.Redelivered, Quorum: it.consumer.q.Type() == queue.Quorum, Strict: c.broker.Strict,
	}
	head, body, tail = convert.AppendAMQP10(r.head[:0], rec, &d)
	r.head = head
	return head, body, tail
}

// historyOf is the history of a delivery, nil if it has none. REQUIRES: the pen.
func (c *conn) historyOf(it *item) *deadletter.History {
	if it.d.History == 0 {
		return nil
	}
	r, store := &c.renderer, c.broker.Bodies()
	if r.ref != it.d.History {
		shared, own := deathstore.Parts(store, it.d.History)
		if shared == 0 || shared != r.shared || !r.history.Renumber(own) {
			h, err := deadletter.Parse(deathstore.Bytes(store, it.d.History))
			if err != nil {
				r.shared = 0 // Renumber may have changed the history
				return nil   // the bytes are our own; the message matters more than its history
			}
			r.history = h
		}
		store.Retain(it.d.History, 1)
		store.Release(r.ref)
		r.ref, r.shared = it.d.History, shared
	}
	return &r.history
}

// forgetRendered releases the kept history. REQUIRES: the pen.
func (c *conn) forgetRendered() {
	c.broker.Bodies().Release(c.renderer.ref)
	c.renderer.ref, c.renderer.shared = 0, 0
}

// trace copies a delivery to the exchange for traced messages. REQUIRES: the pen.
func (c *conn) trace(it *item, rec message.Record) {
	h := c.historyOf(it)
	exchange, key := rec.Exchange(), rec.Key()
	props := rec.Properties()
	if h != nil {
		exchange = []byte(h.Exchange)
		if len(h.Keys) > 0 {
			key = []byte(h.Keys[0])
		}
		props = broker.RenderProps(nil, rec, h, h.Headers(), it.d.Counts, it.consumer.q.Type() == queue.Quorum)
	}
	c.link.TraceDelivery(&broker.TracedDelivery{
		Exchange: exchange, Key: key, Properties: props, Record: rec, History: h, Redelivered: it.d.Redelivered, Channel: it.s.number, Queue: it.consumer.q.Name,
	})
}
