package session10

import (
	"fmt"
	"slices"
	"sync/atomic"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp10"
)

// output holds what is to be sent to a client, in order: ready bytes, and deliveries and flows that are not encoded yet.
// Partitions put deliveries in while they are locked; the reader puts answers in. The holder of the pen, one goroutine at a
// time, takes all items, gives delivery-ids, encodes and writes. It is as that of session091, but for one thing: deliveries
// of a session whose window is closed (2.5.6) are parked there until the client opens it.
type output struct {
	mu      held.Mutex
	items   serving.List[item]
	raw     []byte       // the bytes of raw items, one after the other
	held    bool         // a goroutine has the pen
	shut    bool         // it accepts nothing more
	hungry  []*consumer  // whose client takes more than there was room for: see consumer.feed
	pending atomic.Int64 // approximate bytes of waiting messages, without those that are parked
	owed    int          // bytes of waiting answers, without deliveries
	wakec   chan struct{}
	roomc   chan struct{} // wakes a reader that waits for owed to fall

	// stuck are deliveries of a connection whose socket is broken, or which must be closed because a message can neither be
	// read nor set aside. They go back to their queues when the connection has no consumer left that could get them again.
	// Owned by the holder of the pen.
	stuck []item

	// Owned by the holder of the pen.
	taken    serving.List[item]
	takenRaw []byte
	wire     []byte // encoded, not yet written
}

// item is one thing to send.
type item struct {
	kind     uint8
	bytes    int // length of an itemRaw; of others, what they count while they wait
	s        *session
	consumer *consumer // of an itemDelivery, an itemFlow of a receiver
	d        queue.Delivery
	flow     *flow   // of an itemFlow
	answer   *answer // of an itemAnswer
}

const (
	itemRaw = iota
	itemDelivery
	itemFlow   // its fields of the session are those at its turn
	itemAnswer // of the management node
	itemWindow // the window of the session has changed: what is parked there may go on
)

// flow is a flow that is not encoded yet.
type flow struct {
	linked    bool // it tells of a link: this one, whose state it has, or that of the consumer
	handle    uint32
	count     uint32 // its delivery-count
	credit    uint32 // and its credit; of a consumer the delivery-count up to which it has credit
	drained   uint32 // of a consumer: credit that ends with it
	drain     bool
	available int // of a consumer
}

const (
	// highWater is how many bytes of messages may wait for a client before its consumers get no more credit; at lowWater they
	// continue.
	highWater = 6 << 20
	lowWater  = 2 << 20
	// parkedHigh and parkedLow are the same for what is parked in one session: one whose window is closed must not stop the
	// others.
	parkedHigh = 1 << 20
	parkedLow  = 512 << 10
	// maxOwed is how many bytes of answers may wait for a client before reading from it stops.
	maxOwed = 1 << 20
	// inlineItems is the number of items up to which the goroutine that put them in writes them itself.
	inlineItems = 8
	// writeSize is how much is encoded before it is written.
	writeSize = 128 << 10
	// coldBytes is what a waiting delivery counts if its record is on disk, besides the size of its body.
	coldBytes = 128
	// itemBytes is the memory of a waiting message besides its record: the item, and spare room in the list.
	itemBytes = 160
	// flowBytes is the same for a flow.
	flowBytes = 160
)

// put appends ready bytes by letting f append them.
func (o *output) put(f func(b []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	before := len(o.raw)
	o.raw = f(o.raw)
	n := len(o.raw) - before
	o.owed += n
	if it := o.items.Newest(); it != nil && it.kind == itemRaw {
		it.bytes += n
		return
	}
	o.items.Push(&item{kind: itemRaw, bytes: n})
}

// putFrame appends a frame.
func (o *output) putFrame(channel uint16, p amqp10.Composite) {
	o.put(func(b []byte) []byte { return amqp10.AppendFrame(b, channel, p) })
}

// putItem appends a flow or a change of a window.
func (o *output) putItem(it item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	it.bytes = flowBytes
	o.owed += it.bytes
	o.items.Push(&it)
}

// deliver appends a delivery.
func (c *conn) deliver(it *item) {
	o := &c.out
	if it.d.Body.OnDisk() {
		it.bytes = coldBytes + int(it.d.Size) + itemBytes
	} else {
		it.bytes = c.broker.Bodies().Size(it.d.Body) + itemBytes
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.items.Push(it)
	o.pending.Add(int64(it.bytes))
	it.consumer.size.Store(int64(it.bytes))
}

// roomy says whether there is room for more bytes of a consumer.
func (o *output) roomy(k *consumer) bool {
	return o.pending.Load() < highWater && k.s.parked.Load() < parkedHigh
}

// starve notes that a consumer is to be fed when there is room.
func (o *output) starve(k *consumer) {
	o.mu.Lock()
	if !k.hungry && !o.shut {
		k.hungry = true
		o.hungry = append(o.hungry, k)
	}
	o.mu.Unlock()
	o.wake() // there may be room just now
}

// served says whether a consumer that starves can go on, or has ended: half of what there was room for was sent.
func (o *output) served(k *consumer) bool {
	return k.gone.Load() || o.pending.Load() < lowWater && k.s.parked.Load() < parkedLow && k.ahead() <= maxGranted/2
}

// flush makes the content of the output be sent: by the caller if inline is set and there is little, otherwise by the writer.
func (c *conn) flush(inline bool) {
	o := &c.out
	o.mu.Lock()
	if o.items.Len() == 0 || o.held {
		o.mu.Unlock()
		return // the holder of the pen checks the output again before it releases the pen
	}
	if inline && o.items.Len() <= inlineItems && o.owed < writeSize && o.pending.Load() < writeSize && c.raw != nil && len(o.wire) == 0 {
		o.held = true
		o.mu.Unlock()
		c.writeSome()
		return
	}
	o.mu.Unlock()
	o.wake()
}

func (o *output) wake() {
	select {
	case o.wakec <- struct{}{}:
	default:
	}
}

// take takes everything to send. REQUIRES: o.mu and the pen are held.
func (o *output) take() {
	o.taken, o.items = o.items, o.taken // o.taken is empty
	o.takenRaw, o.raw = o.raw, o.takenRaw[:0]
	if o.owed > maxOwed {
		select {
		case o.roomc <- struct{}{}:
		default:
		}
	}
	o.owed = 0
}

// waitForRoom stops reading from a client that does not read its answers; they would pile up without end. Deliveries do not
// count: they have their own limit (highWater), and a client that settles them must be read. It returns early if other
// goroutines have requests for the reader, or if the socket is broken; the write deadline ends a connection that accepts
// nothing.
func (c *conn) waitForRoom() {
	held.Nothing("a client")
	for !c.dead.Load() && !c.interrupted.Load() && c.out.full() {
		select {
		case <-c.out.roomc:
		case <-c.heedc:
		}
	}
}

// full says whether too many answers wait.
func (o *output) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owed > maxOwed
}

// writeSome encodes all items and writes what the socket accepts at once; it leaves the rest to the writer. REQUIRES: the pen.
func (c *conn) writeSome() {
	// Other goroutines leave their items to the holder of the pen; after a panic nobody would send them.
	defer bug.End(c.log, "the pen of a connection")
	o := &c.out
	o.mu.Lock()
	o.take()
	o.mu.Unlock()
	c.encode(nil) // little enough for one piece
	size := len(o.wire)
	if err := c.raw.Write(&o.wire); err != nil {
		c.broken(err)
	}
	c.stats.sent(size - len(o.wire))
	c.layDown()
}

// layDown releases the pen and leaves new items to the writer. REQUIRES: the pen.
func (c *conn) layDown() {
	o := &c.out
	o.mu.Lock()
	o.held = false // the next holder of the pen waits for o.mu
	again := o.shut || o.items.Len() > 0 || len(o.wire) > 0 || o.resumable()
	if !again {
		c.window.Free()
	}
	o.mu.Unlock()
	if again {
		o.wake()
	}
}

// resumable says whether a consumer that starves can go on. REQUIRES: o.mu is held.
func (o *output) resumable() bool { return slices.ContainsFunc(o.hungry, o.served) }

// keep takes the pen for good, if it is free, and all items. If it is not free, its holder wakes the writer when it releases
// the pen.
func (o *output) keep() (kept bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
	if o.held {
		return false
	}
	o.held = true
	o.take()
	return true
}

// pen is what encodes items. write, if it is not nil, is called whenever there is a large enough piece; if it returns false the
// socket is broken, and later deliveries are stuck.
type pen struct {
	c      *conn
	write  func([]byte) bool
	broken bool
	sent   int64 // bytes of the deliveries that have left the output
}

// encode encodes the taken items into o.wire. REQUIRES: the pen.
func (c *conn) encode(write func([]byte) bool) {
	o := &c.out
	p := pen{c: c, write: write, broken: c.dead.Load()}
	at := 0
	for k := range o.taken.Chunks() {
		chunk := o.taken.Chunk(k)
		for i := range chunk {
			it := &chunk[i]
			switch it.kind {
			case itemRaw:
				o.wire = append(o.wire, o.takenRaw[at:at+it.bytes]...)
				at += it.bytes
			case itemWindow:
				p.unpark(it.s)
			case itemFlow:
				if it.consumer != nil && it.s.waiting() {
					it.s.park(it)
					break
				}
				p.flow(it)
			case itemAnswer:
				if it.s.waiting() || it.s.room() == 0 {
					it.s.park(it)
					break
				}
				p.send(it, nil)
			default:
				p.delivery(it)
			}
			p.piece()
		}
	}
	o.taken.Clear()
	if cap(o.takenRaw) > 1<<20 {
		o.takenRaw = nil
	}
	if p.sent > 0 {
		o.pending.Add(-p.sent)
	}
}

// piece writes what is encoded, if it is enough.
func (p *pen) piece() {
	if o := &p.c.out; p.write != nil && len(o.wire) >= writeSize {
		p.broken = !p.write(o.wire)
		o.wire = o.wire[:0]
	}
}

// stuck keeps a delivery for later, if the socket is broken.
func (p *pen) stuck(it *item) bool {
	if o := &p.c.out; p.broken || len(o.stuck) > 0 {
		o.stuck = append(o.stuck, *it)
		return true
	}
	return false
}

// delivery encodes a delivery, or parks it in its session.
func (p *pen) delivery(it *item) {
	if p.stuck(it) {
		return
	}
	p.sent += int64(it.bytes) // what is parked counts in its session
	if it.s.waiting() || it.s.room() == 0 {
		it.s.park(it)
		return
	}
	if p.send(it, nil) {
		p.done(it)
	} // else it is parked in the middle
}

// done releases a delivery that was sent, or that nobody wants any more.
func (p *pen) done(it *item) {
	store := p.c.broker.Bodies()
	store.Release(it.d.Body)
	store.Release(it.d.History)
}

// unpark goes on with what is parked in a session.
func (p *pen) unpark(s *session) {
	list := &s.parking
	if list.Len() == 0 && s.part == nil {
		return
	}
	if s.part != nil {
		part := s.part
		if !part.it.over() && (p.broken || len(p.c.out.stuck) > 0 || !p.send(&part.it, part)) {
			return
		}
		s.part = nil
		p.leave(&part.it)
		p.piece()
	}
	var rest serving.List[item]
	for k := range list.Chunks() {
		chunk := list.Chunk(k)
		for i := range chunk {
			it := &chunk[i]
			switch {
			case rest.Len() > 0:
				rest.Push(it)
				continue
			case it.kind == itemFlow:
				p.flow(it)
				s.flows--
				continue
			case !it.over() && (s.part != nil || s.room() == 0 || p.broken || len(p.c.out.stuck) > 0):
				rest.Push(it)
				continue
			}
			over := it.over()
			if over {
				p.c.giveUp(it)
			}
			if over || p.send(it, nil) {
				p.leave(it)
			} else {
				s.parked.Add(-int64(it.bytes)) // the part counts now
				if it.kind != itemDelivery {
					s.flows--
				}
			}
			p.piece()
		}
	}
	list.Clear()
	s.parking = rest
}

// leave counts that an item is no longer parked, and releases it.
func (p *pen) leave(it *item) {
	it.s.parked.Add(-int64(it.bytes))
	if it.kind == itemDelivery {
		p.done(it)
	} else {
		it.s.flows--
	}
}

// over says whether the link of an item has ended, or its session.
func (it *item) over() bool {
	s := it.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return it.ended()
}

// ended is over. REQUIRES: session.mu is held.
func (it *item) ended() bool {
	return it.s.closed || it.consumer != nil && it.consumer.ended || it.answer != nil && it.answer.m.gone
}

// record reads the record of a delivery. It sets a lost record aside, and the client gets no delivery for it.
func (p *pen) record(it *item) (rec message.Record, ok bool) {
	c := p.c
	rec, err := c.broker.Bodies().Read(it.d.Body, &c.window)
	if err == nil {
		return rec, true
	}
	k := it.consumer
	if !c.broker.Node().SetAside(k.q, &it.d, &k.Consumer, err) {
		vhost, name := string(k.q.VHost), k.q.Name
		c.log.Error("cannot read a message", "vhost", vhost, "queue", name, "no_ack", it.d.NoAck, "error", err)
		c.out.stuck = append(c.out.stuck, *it)
		c.Terminate(0, fmt.Sprintf("a message of queue '%s' in vhost '%s' cannot be read", name, vhost))
		p.broken = true
		return nil, false
	}
	return nil, true
}

// giveBack returns unsent deliveries to their queues and releases their references. REQUIRES: the connection has no consumer
// left that could get them again.
func (c *conn) giveBack(items []item) {
	store := c.broker.Bodies()
	var ops []partition.Op
	for i := range items {
		it := &items[i]
		if it.kind != itemDelivery {
			continue
		}
		if !it.d.NoAck {
			ops = append(ops, partition.Op{Kind: partition.Return, Queue: it.consumer.q, ID: it.d.ID, Consumer: &it.consumer.Consumer, How: queue.ReturnClosed})
		}
		if len(ops) == maxOps {
			c.broker.Node().Run(ops)
			ops = ops[:0]
		}
		c.out.pending.Add(-int64(it.bytes))
		store.Release(it.d.Body)
		store.Release(it.d.History)
	}
	c.broker.Node().Run(ops)
}

// drainOutbox returns all unsent deliveries. The reader and the writer have ended, and no consumer is attached. REQUIRES: the
// pen.
func (c *conn) drainOutbox() {
	c.out.mu.Lock()
	items := c.out.items
	c.out.items = serving.List[item]{}
	stuck := c.out.stuck
	c.out.stuck = nil
	c.window.Free()
	c.out.mu.Unlock()
	c.giveBack(stuck)
	for k := range items.Chunks() {
		c.giveBack(items.Chunk(k))
	}
}
