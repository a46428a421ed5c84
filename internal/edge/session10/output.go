package session10

import (
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp10"
)

// output holds what is to be sent to the client. The holder of its pen gives delivery-ids. Deliveries of a session whose window is
// closed (2.5.6) are parked there until the client opens it: then they no longer count in the output. What it pauses are
// consumers whose client takes more than there was room for: see consumer.feed.
type output = serving.Output[item, *consumer]

// item is one thing to send.
type item struct {
	kind     uint8
	parked   bool // in its session
	bytes    int  // what it counts while it waits
	s        *session
	consumer *consumer // of an itemDelivery, an itemFlow of a receiver
	d        queue.Delivery
	flow     *flow   // of an itemFlow
	answer   *answer // of an itemAnswer
}

const (
	itemDelivery = iota
	itemFlow     // its fields of the session are those at its turn
	itemAnswer   // of the management node
	itemWindow   // the window of the session has changed: what is parked there may go on; or the link of the consumer has ended
	itemGone     // a hole in what is parked
)

// flow is a flow that is not encoded yet.
type flow struct {
	linked    bool // it tells of a link: this one, whose state it has, or that of the consumer
	handle    uint32
	count     uint32 // its delivery-count
	credit    uint32 // and its credit; of a consumer the delivery-count up to which it has credit
	drained   uint32 // of a consumer: credit that ends with it
	drain     bool
	available int        // of a consumer
	activity  bool       // of a consumer: it only says whether the consumer is active, if the client does not know yet
	released  []queue.ID // of a consumer: it is no flow, and says that these deliveries were taken back
}

const (
	// parkedHigh and parkedLow are HighWater and LowWater of what is parked in one session: one whose window is closed must not stop
	// the others.
	parkedHigh = 1 << 20
	parkedLow  = 512 << 10
	// flowBytes is the memory of a waiting flow.
	flowBytes = 160
)

// putFrame puts a frame into the output.
func (c *conn) putFrame(channel uint16, p amqp10.Composite) {
	c.out.Put(func(b []byte) []byte { return amqp10.AppendFrame(b, channel, p) })
}

// putItem puts a flow or a change of a window into the output.
func (c *conn) putItem(it item) {
	it.bytes = flowBytes
	c.out.PutItem(&it, it.bytes)
}

// deliver puts a delivery into the output.
func (c *conn) deliver(it *item) {
	if it.d.Body.OnDisk() {
		it.bytes = serving.ColdBytes + int(it.d.Size) + serving.ItemBytes
	} else {
		it.bytes = c.broker.Bodies().Size(it.d.Body) + serving.ItemBytes
	}
	c.out.Deliver(it, it.bytes, 0)
	it.consumer.size.Store(int64(it.bytes))
}

// roomy says whether there is room for more bytes of the consumer.
func (k *consumer) roomy() bool {
	return k.s.c.out.Pending() < serving.HighWater && k.s.parked.Load() < parkedHigh
}

// starve pauses the consumer until it can be served. REQUIRES: session.mu is held.
func (k *consumer) starve() {
	if !k.hungry {
		k.hungry = true
		k.s.c.out.Pause(k)
	}
}

// served says whether the consumer, which starves, can go on, or has ended: half of what there was room for was sent.
func (k *consumer) served() bool {
	return k.gone.Load() || k.s.c.out.Pending() < serving.LowWater && k.s.parked.Load() < parkedLow && k.ahead() <= maxGranted/2
}

// pen is the session of an output: it encodes items.
type pen struct{ c *conn }

var _ serving.Session[item, *consumer] = pen{}

// Encode implements serving.Session.
func (p pen) Encode(it *item) {
	switch it.kind {
	case itemWindow:
		if it.consumer != nil {
			p.withdraw(it.consumer)
		}
		p.unpark(it.s)
	case itemFlow:
		if it.consumer != nil && it.s.waiting() {
			it.s.park(it)
			break
		}
		p.flow(it)
	case itemAnswer:
		if it.waits() {
			it.s.park(it)
			break
		}
		p.send(it, nil)
	default:
		p.delivery(it)
	}
}

// Resumable implements serving.Session.
func (p pen) Resumable(k *consumer) bool { return k.served() }

// Resume implements serving.Session.
func (p pen) Resume(k *consumer) {
	k.s.mu.Lock()
	k.hungry = false
	k.s.mu.Unlock()
	k.feed()
}

// AppendBeat implements serving.Session (2.4.5).
func (p pen) AppendBeat(b []byte) []byte { return amqp10.AppendEmptyFrame(b) }

// delivery encodes a delivery, or parks it in its session.
func (p pen) delivery(it *item) {
	o := &p.c.out
	if o.Failed() {
		o.Keep(it)
		return
	}
	o.Sent(it.bytes) // what is parked counts in its session
	if it.waits() {
		it.s.park(it)
		return
	}
	if p.send(it, nil) {
		p.done(it)
	} // else it is parked in the middle
}

// done releases a delivery that was sent, or that nobody wants any more.
func (p pen) done(it *item) {
	store := p.c.broker.Bodies()
	store.Release(it.d.Body)
	store.Release(it.d.History)
}

// unpark goes on with what is parked in a session.
func (p pen) unpark(s *session) {
	if part := s.part; part != nil {
		if !part.it.over() && (p.c.out.Failed() || !p.send(&part.it, part)) {
			return
		}
		s.part = nil
		p.leave(&part.it)
		p.c.out.Piece()
	}
	for it := s.parking.Oldest(); it != nil; it = s.parking.Oldest() {
		over := it.kind != itemFlow && it.kind != itemGone && it.over()
		switch {
		case it.kind == itemGone:
			s.holes--
		case over:
			p.c.giveUp(it)
			p.leave(it)
		case it.kind == itemFlow:
			p.flow(it)
			s.flows--
		case s.room() == 0 || p.c.out.Failed():
			return
		case p.c.out.Enough():
			p.c.putItem(item{kind: itemWindow, s: s}) // the writer goes on: it writes each piece before it encodes the next
			return
		case p.send(it, nil):
			p.leave(it)
		default:
			s.parked.Add(-int64(it.bytes)) // the part counts now
			if it.kind != itemDelivery {
				s.flows--
				s.c.parkedAnswers.Add(-int64(it.bytes))
			}
			s.parking.Shift()
			return // what comes behind the message waits for all of it
		}
		s.parking.Shift()
		p.c.out.Piece()
	}
}

// withdraw takes what is parked of a link that has ended out of its session: other links wait for the client's window, which may stay
// closed, and other clients for the messages. Holes stay behind, until they are more than what is parked.
func (p pen) withdraw(k *consumer) {
	s := k.s
	s.mu.Lock()
	oneByOne := k.back
	s.mu.Unlock()
	back := serving.Returns{Node: p.c.broker.Node()}
	for n := range s.parking.Chunks() {
		chunk := s.parking.Chunk(n)
		for i := range chunk {
			it := &chunk[i]
			if it.kind != itemDelivery || it.consumer != k {
				continue
			}
			if oneByOne && !it.d.NoAck {
				back.Add(k.detached(it.d.ID))
			}
			p.leave(it)
			*it = item{kind: itemGone}
			s.holes++
		}
	}
	back.Run()
	if s.holes <= s.parking.Len()/2 {
		return
	}
	var rest serving.List[item]
	for n := range s.parking.Chunks() {
		chunk := s.parking.Chunk(n)
		for i := range chunk {
			if chunk[i].kind != itemGone {
				rest.Push(&chunk[i])
			}
		}
	}
	s.parking, s.holes = rest, 0
}

// leave counts that an item is no longer parked, and releases it.
func (p pen) leave(it *item) {
	it.s.parked.Add(-int64(it.bytes))
	if it.kind == itemDelivery {
		p.done(it)
	} else {
		it.s.flows--
		it.s.c.parkedAnswers.Add(-int64(it.bytes))
	}
}

// waits says whether an item has to wait for the client's window. What nobody wants any more does not: nothing would wake it. REQUIRES:
// the pen.
func (it *item) waits() bool {
	return (it.s.waiting() || it.s.room() == 0) && !it.over()
}

// over says whether nobody wants an item any more, since its link has ended, or its session. An answer of the management node was there
// before the end, and leaves before it, unless it has to wait for the client's window: a client may end all behind its request.
func (it *item) over() bool {
	s := it.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return it.ended()
}

// ended is over. REQUIRES: session.mu is held.
func (it *item) ended() bool {
	if it.answer != nil {
		return it.parked && (it.s.closed || it.answer.m.gone)
	}
	return it.s.closed || it.consumer != nil && it.consumer.ended
}

// record reads the record of a delivery. It sets a lost record aside, and the client gets no delivery for it.
func (p pen) record(it *item) (rec message.Record, ok bool) {
	c := p.c
	rec, err := c.broker.Bodies().Read(it.d.Body, &c.out.Window)
	if err == nil {
		return rec, true
	}
	k := it.consumer
	if k.q == nil {
		return nil, true // a reply is in memory, and nowhere else
	}
	if !c.broker.Node().SetAside(k.q, &it.d, &k.Consumer, err) {
		vhost, name := string(k.q.VHost), k.q.Name
		c.log.Error("cannot read a message", "vhost", vhost, "queue", name, "no_ack", it.d.NoAck, "error", err)
		c.out.Keep(it)
		c.Terminate(0, fmt.Sprintf("a message of queue '%s' in vhost '%s' cannot be read", name, vhost))
		return nil, false
	}
	return nil, true
}

// drain returns all unsent deliveries to their queues and releases their references. REQUIRES: the output has ended, and the
// connection has no consumer left that could get them again.
func (c *conn) drain() {
	store := c.broker.Bodies()
	back := serving.Returns{Node: c.broker.Node()}
	c.out.Drain(func(it *item) {
		if it.kind != itemDelivery {
			return
		}
		if !it.d.NoAck {
			back.Add(partition.Op{Kind: partition.Return, Queue: it.consumer.q, ID: it.d.ID, Consumer: &it.consumer.Consumer, How: queue.ReturnClosed})
		}
		c.out.Sent(it.bytes)
		store.Release(it.d.Body)
		store.Release(it.d.History)
	})
	back.Run()
}
