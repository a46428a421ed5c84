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
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// consumer is a link on which we send: a partition.Subscriber.
//
// Credit (2.6.7) is the queue's to keep. The client says up to which delivery-count it takes messages; the difference to what the
// queue was granted before is granted to it, a window at a time: feed. So nobody needs to know what is on its way. What a drain ends
// is the queue's answer, and comes to the client after the deliveries before it.
type consumer struct {
	queue.Consumer
	s          *session
	q          *partition.Queue  // nil of a link of direct replies
	replies    string            // then the requester's name
	made       message.QueueName // the queue, if it was made for the link
	handle     uint32
	name       string
	address    string
	maxMessage uint64        // the largest message that the client takes, in bytes; 0: any
	arguments  amqp091.Table // what the link's properties say, as arguments of AMQP 0-9-1

	ended bool // guarded by session.mu
	back  bool // its link is detached: what was not sent goes back one by one; guarded by session.mu

	// Guarded by session.mu.
	limit   uint32 // the delivery-count up to which the client takes messages
	drain   bool   // the client wants to hear when nothing more is there
	echo    bool   // it wants an answer
	next    *wish  // what it has said during a drain
	hungry  bool   // the output has it paused
	feeding bool   // a goroutine is in feed
	again   bool   // and looks once more

	granted atomic.Uint32 // the delivery-count up to which the queue may deliver; written by who feeds
	gone    atomic.Bool   // as ended
	size    atomic.Int64  // of the delivery before, in bytes; 0: there was none

	// Written by the holder of the pen.
	count atomic.Uint32 // delivery-count: what was sent, and credit that has ended
	told  atomic.Uint32 // limit, as the flows so far have it

	timedOut atomic.Bool // it has not settled deliveries in time

	// On a quorum queue the client hears whether it is the consumer that gets messages.
	activity  atomic.Int32 // what the queue says
	announced atomic.Bool  // a flow that says it is in the output
	// Owned by the holder of the pen.
	shown      int32  // the activity that flows have told the client
	timedOutTo uint64 // deliveries before this number are not looked at when some have timed out: the oldest do first
}

// Activities of a consumer.
const (
	activityUnknown = iota // nothing has been said of it yet
	activityActive
	activityWaiting
)

var _ partition.Watcher = (*consumer)(nil)

// Deliver implements partition.Subscriber. The partition is locked.
func (k *consumer) Deliver(_ *partition.Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	it := item{kind: itemDelivery, s: k.s, consumer: k, d: *d}
	k.s.c.deliver(&it)
	return true // its credit says how many more it may get
}

// Flush implements partition.Subscriber.
func (k *consumer) Flush() { k.s.c.out.Flush(true) }

// QueueGone implements partition.Subscriber.
func (k *consumer) QueueGone(q *partition.Queue, _ *queue.Consumer) {
	s := k.s
	if !s.endConsumer(k, false) {
		return
	}
	s.forget(k, func(*unsettled) {})
	s.letGo(k)
	s.c.link.NotifyConsumerGone(q, k.Tag, s.number, false)
	s.departed(q.Name)
	s.mu.Lock()
	if !s.closed {
		s.c.putFrame(s.number, &amqp10.Detach{Handle: k.handle, Closed: true, Error: &amqp10.Error{Condition: []byte(amqp10.ConditionResourceDeleted)}})
	}
	s.mu.Unlock()
	s.c.out.Flush(false)
}

// TimedOut implements partition.Subscriber (DL-12.7). The queue has taken deliveries back, and gives the consumer nothing more
// before it settles them, which then has no effect.
func (k *consumer) TimedOut(_ *partition.Queue, _ *queue.Consumer, n int) {
	k.timedOut.Store(true)
	k.s.c.log.Warn("a consumer did not settle deliveries in time", "link", k.name, "channel", k.s.number, "queue", k.q.Name, "deliveries", n)
}

// TookBack implements partition.Watcher: see pen.released.
func (k *consumer) TookBack(ids []queue.ID) {
	it := item{kind: itemFlow, s: k.s, consumer: k, flow: &flow{released: ids}, bytes: flowBytes + 8*len(ids)}
	k.s.c.out.PutItem(&it, it.bytes)
}

// Active implements partition.Watcher.
func (k *consumer) Active(active bool, ready int) {
	activity := int32(activityWaiting)
	if active {
		activity = activityActive
	}
	k.activity.Store(activity)
	k.announce(ready)
}

// announce puts a flow into the output that says whether the consumer is active, unless one is there.
func (k *consumer) announce(ready int) {
	if !k.announced.Swap(true) {
		k.s.c.putItem(item{kind: itemFlow, s: k.s, consumer: k, flow: &flow{credit: k.told.Load(), available: ready, activity: true}})
	}
}

// unheard says whether the client is still to hear whether its consumer is active: a quorum queue says so when it knows of its credit.
func (k *consumer) unheard() bool {
	return k.activity.Load() == activityUnknown && k.quorum()
}

// heard ends that.
func (k *consumer) heard() {
	activity := int32(activityActive)
	if k.q.Config().SingleActive {
		activity = activityWaiting
	}
	k.activity.CompareAndSwap(activityUnknown, activity)
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

// flow handles the client's flow for the link. What it says during a drain holds after it.
func (k *consumer) flow(f *amqp10.Flow) error {
	if !f.LinkCredit.Set {
		return failSession(amqp10.ConditionInvalidField, "a flow for a link has no link-credit").violation()
	}
	w := wish{f.DeliveryCount.Value, f.LinkCredit.Value, f.Drain, f.Echo}
	k.s.c.flushOps() // what it has settled makes room before it gets more
	k.s.mu.Lock()
	if k.drain {
		k.next = &w
	} else {
		k.heed(&w)
	}
	k.s.mu.Unlock()
	k.feed()
	return nil
}

// heed notes what the client takes. REQUIRES: session.mu is held, and no drain is under way.
func (k *consumer) heed(w *wish) {
	count, sent := w.count, k.count.Load()
	if int32(count-sent) > 0 { // it cannot have got more than was sent
		count = sent
	}
	k.limit = count + min(w.credit, mostCredit)
	if int32(k.limit-sent) < 0 { // nor take back what was, as a client without credit that is behind seems to say
		k.limit = sent
	}
	k.told.Store(k.limit)
	k.drain, k.echo = w.drain, w.echo && !w.drain
}

const (
	// mostCredit is how much credit of a client counts. Delivery-counts are serial numbers, which are compared over half of their
	// range (RFC 1982).
	mostCredit = 1 << 30
	// maxGranted is how many deliveries a consumer may have been granted that have not been sent: a queue delivers what it was granted,
	// whether the client reads or not. The rest of the client's credit is granted when half of them are sent.
	maxGranted = 1024
	// grantStep is how many are granted at a time, and firstStep while nobody knows how large they are. It goes on while there is room
	// for more bytes.
	grantStep, firstStep = 256, 16
)

// feed grants the queue what the client takes, as far as there is room for it, and answers the client. Any goroutine may call it that
// holds nothing; one does the work. REQUIRES: session.mu is not held.
func (k *consumer) feed() {
	if k.q == nil {
		k.heedReplies()
		return
	}
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.again = true; k.feeding {
		return
	}
	k.feeding = true
	for k.again && !s.closed && !k.ended {
		k.again = false
		left := int(int32(k.limit - k.granted.Load()))
		step := min(left, k.room())
		drain := k.drain
		if step == 0 && (left > 0 || !drain && !k.echo && !k.unheard()) {
			if left > 0 {
				k.starve()
			}
			continue
		}
		drained, ready, err := k.grant(step, drain)
		if err != nil {
			break // the queue is gone, and its end detaches the link
		}
		k.granted.Add(uint32(int32(step)))
		k.again = true
		if k.unheard() {
			if k.heard(); !drain && !k.echo { // else the answer says it
				k.announce(ready)
			}
		}
		switch left -= step; {
		case drain && (drained > 0 || left <= 0):
			k.granted.Store(k.limit)
			s.c.putItem(item{kind: itemFlow, s: s, consumer: k, flow: &flow{credit: k.limit, drained: uint32(drained + max(left, 0)), drain: true, available: ready}})
			if k.drain = false; k.next != nil {
				k.heed(k.next)
				k.next = nil
			}
		case k.echo && !drain:
			k.echo = false
			s.c.putItem(item{kind: itemFlow, s: s, consumer: k, flow: &flow{credit: k.limit, available: ready}})
		}
	}
	k.feeding = false
}

// grant grants the queue deliveries, with session.mu free meanwhile. A panic there ends the node at once: the caller would unlock what nobody
// holds, and the log would not tell of the panic. REQUIRES: session.mu is held.
func (k *consumer) grant(step int, drain bool) (drained, ready int, err error) {
	k.s.mu.Unlock()
	defer k.s.mu.Lock()
	defer bug.End(k.s.c.log, "a grant of credit")
	return k.s.c.link.Grant(k.q, &k.Consumer, step, drain)
}

// room is how many deliveries may be granted now.
func (k *consumer) room() int {
	if !k.roomy() {
		return 0
	}
	step := int64(firstStep)
	if size := k.size.Load(); size > 0 {
		step = min(max(1, (serving.HighWater-k.s.c.out.Pending())/size), grantStep)
	}
	return min(int(step), max(0, maxGranted-k.ahead()))
}

// ahead is how many deliveries were granted that have not been sent.
func (k *consumer) ahead() int { return int(int32(k.granted.Load() - k.count.Load())) }

// part is a delivery of which only a part was sent, since the client's window was used up.
type part struct {
	it   item
	head []byte // what was made for it before the body
	sent int    // bytes
}

// send encodes a delivery, or goes on with a part of one. It returns false if the client's window is used up before all of it
// was sent; then the session keeps the part.
func (p pen) send(it *item, from *part) (whole bool) {
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
	sent := 0
	if from != nil {
		head, sent = from.head, from.sent
	}
	all := len(head) + len(body) + len(tail)
	var t amqp10.Transfer
	if from == nil && k != nil && k.maxMessage > 0 && uint64(all) > k.maxMessage { // as RabbitMQ; the message goes back with the session
		c.abort(s, failSession(amqp10.ConditionMessageSizeExceeded, "message size (%d bytes) > maximum message size (%d bytes)", all, k.maxMessage))
		return true
	}
	s.mu.Lock()
	if it.ended() {
		s.mu.Unlock()
		if from == nil {
			c.giveUp(it)
		}
		return true
	}
	begins := from == nil // the window was open when the pen looked: one transfer fits, even if the client has closed it since
	if begins {
		settled := it.answer != nil || it.d.NoAck
		id := uint32(s.delivered)
		t.DeliveryID, t.DeliveryTag = amqp10.Some(id), binary.BigEndian.AppendUint32(c.tag[:0], id)
		t.MessageFormat, t.Settled = amqp10.Some[uint32](0), amqp10.Some(settled)
		if !settled {
			s.unsettled.push(unsettled{number: s.delivered, consumer: k, id: it.d.ID})
		}
		s.delivered++
		if k != nil {
			k.count.Add(1)
		}
	}
	t.Handle = it.handle()
	for o := &c.out; ; begins = false {
		if !begins && int32(s.limit-s.nextOutgoing) <= 0 {
			s.mu.Unlock()
			s.keepPart(it, from, head, sent)
			return false
		}
		s.nextOutgoing++
		s.mu.Unlock()
		o.Wire, sent = amqp10.AppendTransfer(o.Wire, s.number, &t, c.clientMax, sent, head, body, tail)
		if sent == all {
			break
		}
		t = amqp10.Transfer{Handle: t.Handle}
		s.mu.Lock()
		if it.ended() {
			s.mu.Unlock()
			return true
		}
	}
	if rec != nil && c.link.Traced() && from == nil {
		c.trace(it, rec)
	}
	return true
}

// detached gives a delivery back because its link is detached. On a quorum queue that is no failure, as in RabbitMQ.
func (k *consumer) detached(id queue.ID) partition.Op {
	op := partition.Op{Kind: partition.Return, Queue: k.q, ID: id, Consumer: &k.Consumer, How: queue.ReturnClosed}
	if k.quorum() {
		op.How = queue.ReturnReleased
	}
	return op
}

// giveUp drops a delivery whose link has ended before it was sent. It has gone back with its session, or goes back now.
func (c *conn) giveUp(it *item) {
	k := it.consumer
	if k == nil || it.d.NoAck {
		return
	}
	it.s.mu.Lock()
	back := k.back
	it.s.mu.Unlock()
	if back {
		c.broker.Node().Run([]partition.Op{k.detached(it.d.ID)})
	}
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
	s.part.it.parked = true
	s.parked.Add(int64(it.bytes))
	if it.kind != itemDelivery {
		s.flows++
		s.c.parkedAnswers.Add(int64(it.bytes))
	}
}

// skip tells the client that a message that it does not get has used up credit.
func (p pen) skip(it *item) {
	it.consumer.count.Add(1)
	p.flow(&item{kind: itemFlow, s: it.s, consumer: it.consumer, flow: &flow{credit: it.consumer.told.Load()}})
}

// flow encodes a flow with the present state of the session.
func (p pen) flow(it *item) {
	s, f, k := it.s, it.flow, it.consumer
	if f.released != nil {
		p.released(it)
		return
	}
	w := amqp10.Flow{OutgoingWindow: outgoingWindow}
	if k != nil {
		if f.activity {
			k.announced.Store(false) // before the activity is read: a change after that is announced again
		}
		activity := k.activity.Load()
		switch {
		case activity != k.shown:
			k.shown, w.Properties = activity, activityProperties[activity]
		case f.activity:
			return // another flow has said it
		}
		count := k.count.Add(f.drained)
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
		p.c.out.Wire = amqp10.AppendFrame(p.c.out.Wire, s.number, &w)
	}
}

// released tells the client that deliveries went back to their queue because it did not settle them in time (DL-12.7). It settles them
// itself (2.6.12).
func (p pen) released(it *item) {
	s, k := it.s, it.consumer
	taken := make(map[queue.ID]bool, len(it.flow.released))
	for _, id := range it.flow.released {
		taken[id] = true
	}
	var list []uint64
	for more := true; more; {
		s.mu.Lock()
		if more = !s.closed && !k.ended; more {
			list, k.timedOutTo, more = s.unsettled.find(k, k.timedOutTo, taken, list)
		}
		s.mu.Unlock()
	}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0]+uint64(n) {
			n++
		}
		d := amqp10.Disposition{Role: amqp10.RoleSender, First: uint32(list[0]), State: releasedState}
		if n > 1 {
			d.Last = amqp10.Some(uint32(list[n-1]))
		}
		p.c.out.Wire = amqp10.AppendFrame(p.c.out.Wire, s.number, &d)
		list = list[n:]
	}
}

// releasedState is the encoded outcome released.
var releasedState = amqp10.MustValue((&amqp10.Released{}).Append(nil))

// activityProperties are the properties of a flow that says whether its consumer is active.
var activityProperties = [...]amqp10.Value{
	activityActive:  amqp10.MustValue(appendActivity(true)),
	activityWaiting: amqp10.MustValue(appendActivity(false)),
}

func appendActivity(active bool) []byte {
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendBool(amqp10.AppendSymbol(b, "rabbitmq:active"), active)
	return amqp10.EndCompound(b, start, 2)
}

// renderer keeps the history that it parsed last: messages that died together share it. Owned by the holder of the pen.
type renderer struct {
	ref     message.Ref // retained, so that its number is not reused for another history
	shared  message.Ref // the part of it that similar histories share, 0 if none
	history deadletter.History
	// Scratch space.
	head     []byte
	delivery convert.Delivery
}

// render makes what goes out of a delivery. It is valid until the next call. REQUIRES: the pen.
func (c *conn) render(it *item, rec message.Record) (head, body, tail []byte) {
	r := &c.renderer
	r.delivery = convert.Delivery{
		History: c.historyOf(it), Counts: it.d.Counts, Redelivered: it.d.Redelivered, Quorum: it.consumer.quorum(), Strict: c.broker.Strict,
	}
	head, body, tail = convert.AppendAMQP10(r.head[:0], rec, &r.delivery)
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
		if h.Placed() {
			exchange, key = []byte(h.Exchange), []byte(h.Keys[0])
		}
		props = broker.RenderProps(nil, rec, h, convert.Headers(h), it.d.Counts, it.consumer.quorum())
	}
	c.link.TraceDelivery(&broker.TracedDelivery{
		Exchange: exchange, Key: key, Properties: props, Record: rec, History: h, Redelivered: it.d.Redelivered, Channel: it.s.number, Queue: it.consumer.queueName(),
	})
}
