package session091

import (
	"fmt"
	"sync/atomic"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// output holds what is to be sent to a client, in order: ready bytes, and deliveries that are
// not encoded yet. Partitions put deliveries in while they are locked; the reader puts
// answers in. The holder of the pen, one goroutine at a time, takes all items, assigns
// delivery tags, encodes and writes.
//
// Usually the writer goroutine holds the pen. If the pen is free and there is little to
// send, the goroutine that put it in takes the pen itself and writes what the socket accepts
// without blocking. So an answer to a single request needs no switch of goroutines.
type output struct {
	mu      held.Mutex
	items   serving.List[item]
	raw     []byte // the bytes of raw items, one after the other
	held    bool   // a goroutine has the pen
	shut    bool   // it accepts nothing more
	paused  []pausedConsumer
	pending atomic.Int64 // approximate bytes of waiting messages
	owed    int          // bytes of waiting answers, without deliveries
	wakec   chan struct{}
	roomc   chan struct{} // wakes a reader that waits for owed to fall
	tagc    chan struct{} // wakes a reader that waits for the tags of its gets

	// stuck are deliveries of a connection whose socket is broken, or which must be closed because
	// a message can neither be read nor set aside. They go back to their queues when the connection
	// has no consumer left that could get them again. Owned by the holder of the pen.
	stuck []item

	// Owned by the holder of the pen.
	taken    serving.List[item]
	takenRaw []byte
	wire     []byte // encoded, not yet written
}

// item is one thing to send.
type item struct {
	kind     uint8
	bytes    int // length of an itemRaw, an itemRecovered or an itemOwn; of others, what they count while they wait
	ch       *channel
	consumer *consumer // of an itemDelivery
	q        *partition.Queue
	d        queue.Delivery
	left     uint32 // of an itemGet: number of ready messages left
	reply    *reply
	own      *[]byte // of an itemOwn
}

const (
	itemRaw = iota
	itemDelivery
	itemGet
	itemReply     // a message for a direct reply-to consumer
	itemRecovered // recover-ok: what precedes it has been requeued
	itemOwn       // ready bytes in a slice of their own
)

// reply is a message that comes without a queue (BR-12.2).
type reply struct {
	exchange, key []byte
	to            *requester
}

type pausedConsumer struct {
	q *partition.Queue
	c *consumer
}

const (
	// highWater is how many bytes of messages may wait for a client before its consumers
	// are paused; at lowWater they continue.
	highWater = 6 << 20
	lowWater  = 2 << 20
	// maxOwed is how many bytes of answers may wait for a client before reading from it
	// stops.
	maxOwed = 1 << 20
	// inlineItems is the number of items up to which the goroutine that put them in writes them itself.
	inlineItems = 8
	// writeSize is how much is encoded before it is written.
	writeSize = 128 << 10
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

// putOwn is put for many bytes, which then belong to the output. It copies nothing, because a partition that delivers may
// wait for o.mu.
func (o *output) putOwn(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	o.owed += len(b)
	o.items.Push(&item{kind: itemOwn, bytes: len(b), own: &b})
}

// putMethod appends a method frame.
func (o *output) putMethod(channel uint16, m amqp091.Method) {
	o.put(func(b []byte) []byte { return amqp091.AppendMethod(b, channel, m) })
}

// recovered puts recover-ok into the output. REQUIRES: ch.mu is held, so that later deliveries come
// after it.
func (o *output) recovered(ch *channel) {
	const size = amqp091.FrameOverhead + 4 // class and method
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	o.items.Push(&item{kind: itemRecovered, ch: ch, bytes: size})
	o.owed += size
	ch.recovering++
}

// coldBytes is what a waiting delivery counts if its record is on disk, besides the size of its body.
const coldBytes = 128

// itemBytes is the memory of a waiting message besides its record: the item, and spare room in the list. Messages may
// be empty.
const itemBytes = 160

// replyBytes is the memory of a reply besides its record and its names, including its item. Only maxReplies limits how many
// wait.
const replyBytes = 512

// deliver appends a delivery and says whether there is room for more. If there is none, it also
// notes the consumer, which must be resumed later: the holder of the pen may send everything and
// release the pen right after this delivery.
func (c *conn) deliver(it *item) (more bool) {
	o := &c.out
	if it.d.Body.OnDisk() {
		it.bytes = coldBytes + int(it.d.Size)
	} else {
		it.bytes = c.broker.Bodies().Size(it.d.Body)
	}
	if it.kind == itemReply {
		it.bytes += replyBytes + len(it.reply.exchange) + len(it.reply.key)
	} else {
		it.bytes += itemBytes
	}
	o.mu.Lock()
	if it.kind == itemReply && (o.shut || it.reply.to.gone) { // only a reply comes so late: its sender has found the requester before
		o.mu.Unlock()
		c.broker.Bodies().Release(it.d.Body)
		return false
	}
	o.items.Push(it)
	if it.kind == itemGet {
		o.owed += it.bytes
	}
	more = o.pending.Add(int64(it.bytes)) < highWater
	if !more && it.consumer != nil {
		o.paused = append(o.paused, pausedConsumer{it.q, it.consumer})
	}
	o.mu.Unlock()
	return more
}

// flush makes the content of the output be sent: by the caller if inline is set and there is
// little, otherwise by the writer.
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

// waitForRoom stops reading from a client that does not read its answers; they would pile up
// without end. Deliveries do not count: they have their own limit (highWater), and a client
// that settles them must be read. It returns early if other goroutines have requests for the
// reader, or if the socket is broken; the write deadline ends a connection that accepts
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

// makeRoom is waitForRoom between the frames of one read: a few bytes may request a large
// message, which is then in memory. It handles requests of other goroutines meanwhile.
func (c *conn) makeRoom() error {
	for c.state == stateRunning && !c.dead.Load() && c.out.full() {
		c.flush(true)
		c.waitForRoom()
		if c.interrupted.Load() {
			if err := c.heed(); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitTags waits until the channel's gets have delivery tags, which they get when they are
// encoded: a client may settle them in the same write (BR-9.7). If the connection must be closed, or
// its socket is broken, there are no tags, and the settlement and all later frames are ignored.
func (c *conn) awaitTags(ch *channel) error {
	held.Nothing("a client")
	c.flush(true)
	for ch.untagged.Load() > 0 {
		if over, err := c.over(); over {
			return err
		}
		select {
		case <-c.out.tagc:
		case <-c.heedc: // another channel must be closed: fill does that
		}
	}
	return nil
}

// tagged notes that a get was encoded. REQUIRES: the pen.
func (c *conn) tagged(ch *channel) {
	if ch.untagged.Add(-1) == 0 {
		select {
		case c.out.tagc <- struct{}{}:
		default:
		}
	}
}

// writeSome encodes all items and writes what the socket accepts at once; it leaves the rest
// to the writer. REQUIRES: the pen.
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
	again := o.shut || o.items.Len() > 0 || len(o.wire) > 0 || len(o.paused) > 0
	if !again {
		c.window.Free()
	}
	o.mu.Unlock()
	if again {
		o.wake()
	}
}

// keep takes the pen for good, if it is free, and all items. If it is not free, its holder wakes the writer
// when it releases the pen.
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

// encode encodes the taken items into o.wire. It calls write, if it is not nil, whenever there is
// a large enough piece. If write returns false, later deliveries are stuck. REQUIRES: the pen.
func (c *conn) encode(write func([]byte) bool) {
	o := &c.out
	at, size := 0, 0
	broken := c.dead.Load()
	store := c.broker.Bodies()
	for k := range o.taken.Chunks() {
		chunk := o.taken.Chunk(k)
		for i := range chunk {
			it := &chunk[i]
			switch {
			case it.kind == itemRaw:
				o.wire = append(o.wire, o.takenRaw[at:at+it.bytes]...)
				at += it.bytes
			case it.kind == itemOwn && write != nil:
				broken = !write(o.wire) || !write(*it.own)
				o.wire = o.wire[:0]
			case it.kind == itemOwn:
				o.wire = append(o.wire, *it.own...)
			case it.kind == itemRecovered:
				it.ch.mu.Lock()
				it.ch.recovering--
				it.ch.mu.Unlock()
				o.wire = amqp091.AppendMethod(o.wire, it.ch.number, amqp091.BasicRecoverOk{})
			case broken || len(o.stuck) > 0:
				o.stuck = append(o.stuck, *it)
			default:
				if rec, ok := c.record(it); ok {
					size += it.bytes
					c.encodeDelivery(it, rec)
					store.Release(it.d.Body)
					store.Release(it.d.History)
				}
				if it.kind == itemGet {
					c.tagged(it.ch)
				}
			}
			if write != nil && len(o.wire) >= writeSize {
				broken = !write(o.wire)
				o.wire = o.wire[:0]
			}
		}
	}
	o.taken.Clear()
	if cap(o.takenRaw) > 1<<20 {
		o.takenRaw = nil
	}
	if size > 0 {
		o.pending.Add(-int64(size))
	}
}

// record reads the record of a delivery. It sets a lost record aside, and the client gets no
// delivery for it. A get has usually found the loss before, see channel.get; otherwise it
// continues with the next message of a classic queue, or with get-empty for a quorum queue.
// REQUIRES: the pen.
func (c *conn) record(it *item) (rec message.Record, ok bool) {
	store := c.broker.Bodies()
	for {
		rec, err := store.Read(it.d.Body, &c.window)
		if err == nil {
			return rec, true
		}
		by := it.d.By
		if it.consumer != nil {
			by = &it.consumer.Consumer
		}
		if it.q == nil || !c.broker.Node().SetAside(it.q, &it.d, by, err) {
			c.unreadable(it, err)
			return nil, false
		}
		noAck := it.d.NoAck
		store.Release(it.d.Body)
		store.Release(it.d.History)
		if it.kind != itemGet {
			c.out.pending.Add(-int64(it.bytes))
			if it.consumer != nil {
				it.consumer.givesBack()
			}
			return nil, false
		}
		var d queue.Delivery
		var left int
		found, err := false, error(nil)
		if !it.q.Replicated() {
			d, left, found, err = c.broker.Node().Get(it.q, noAck)
		} // otherwise the get would wait for its group, and this goroutine may be the one that applies it
		if err != nil || !found {
			c.out.pending.Add(-int64(it.bytes))
			it.ch.stats.gotNothing.Add(1)
			c.out.wire = amqp091.AppendMethod(c.out.wire, it.ch.number, amqp091.BasicGetEmpty{})
			return nil, false
		}
		it.d, it.left = d, uint32(left)
	}
}

// unreadable ends a connection because a message can neither be read nor set aside. The
// message goes back to its queue with all unsent ones (except a message without
// acknowledgement, which has already left its queue). REQUIRES: the pen.
func (c *conn) unreadable(it *item, err error) {
	vhost, name := "", ""
	if it.q != nil {
		vhost, name = string(it.q.VHost), it.q.Name
	}
	c.log.Error("cannot read a message", "vhost", vhost, "queue", name, "no_ack", it.d.NoAck, "error", err)
	c.out.stuck = append(c.out.stuck, *it)
	c.Terminate(amqp091.CodeInternalError, fmt.Sprintf("a message of queue '%s' in vhost '%s' cannot be read", name, vhost))
}

// tellTooLarge logs that the headers of a message exceed the negotiated frame_max. The message is sent anyway, as in
// RabbitMQ: many clients do not check the limit. A client that checks it closes its connection, which counts as a failed
// delivery. It logs only the first such message of a connection. REQUIRES: the pen.
func (c *conn) tellTooLarge(it *item, size int) {
	if c.toldTooLarge {
		return
	}
	c.toldTooLarge = true
	vhost, name := "", ""
	if it.q != nil {
		vhost, name = string(it.q.VHost), it.q.Name
	}
	c.log.Warn("the headers of a message are larger than the client's frame_max; the client may close its connection and get the message again",
		"vhost", vhost, "queue", name, "bytes", size, "frame_max", c.frameMax, "user", c.login.User)
}

// encodeDelivery gives the delivery its tag and encodes it. REQUIRES: the pen.
func (c *conn) encodeDelivery(it *item, rec message.Record) {
	o := &c.out
	ch := it.ch
	ch.mu.Lock()
	owned := it.kind != itemReply && !it.d.NoAck // it is in its queue until it is settled
	over := ch.closed || ch.recovering > 0
	// Deliveries of a quitting consumer go back with the consumer: on their own they could go
	// back earlier, to another consumer of the same connection.
	late := over && owned && !(ch.closed && it.consumer != nil && it.consumer.quits)
	how := queue.ReturnClosed
	if !ch.closed {
		how = queue.ReturnRecover
	}
	// The answer to a get precedes the channel's close and later answers, so it is sent:
	// otherwise the client would take the next answer for it. A message that has left its queue
	// is sent too, because it is nowhere else.
	if over && owned && it.kind != itemGet || ch.closed && it.kind == itemReply {
		ch.mu.Unlock()
		if late {
			c.returnLate(it, how)
		}
		return
	}
	ch.nextTag++
	tag := ch.nextTag
	ch.sent.count(it)
	if !late && !it.d.NoAck && it.kind != itemReply {
		consumer := it.d.By
		if it.consumer != nil {
			consumer = &it.consumer.Consumer
		}
		ch.unacked.push(unacked{tag: tag, q: it.q, id: it.d.ID, consumer: consumer})
	}
	ch.mu.Unlock()

	exchange, key, props := rec.Exchange(), rec.Key(), rec.Properties()
	if it.kind == itemReply {
		exchange, key = it.reply.exchange, it.reply.key
	}
	rendered := c.render(it, rec, &exchange, &key)
	if rendered != nil {
		props = rendered
	}
	switch it.kind {
	case itemGet:
		o.wire = amqp091.AppendGetOk(o.wire, ch.number, tag, it.d.Redelivered, exchange, key, it.left)
	case itemReply:
		o.wire = amqp091.AppendDeliver(o.wire, ch.number, it.reply.to.tag, tag, false, exchange, key)
	default:
		o.wire = amqp091.AppendDeliver(o.wire, ch.number, it.consumer.Tag, tag, it.d.Redelivered, exchange, key)
	}
	if c.link.Traced() {
		c.trace(it, rec, exchange, key, props)
	}
	body := rec.Body()
	before := len(o.wire)
	o.wire = amqp091.AppendContentHeader(o.wire, ch.number, amqp091.ClassBasic, uint64(len(body)), props)
	if n := len(o.wire) - before; n > c.frameMax {
		c.tellTooLarge(it, n)
	}
	o.wire = amqp091.AppendBody(o.wire, ch.number, body, c.frameMax)
	if late {
		c.returnLate(it, how)
	}
}
