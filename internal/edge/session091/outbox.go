package session091

import (
	"fmt"
	"sync/atomic"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// The outbox of a connection holds, in order, what is to be sent: bytes that are
// ready, and deliveries that are still to be encoded. Partitions put deliveries
// in while they are locked; the reader puts answers in. Whoever holds the pen,
// one goroutine at a time, takes it all, gives delivery tags, encodes and writes.
//
// The pen is usually the writer goroutine's. If nobody has it and there is little
// to send, whoever put it in takes the pen itself and writes what the socket
// accepts without blocking: an answer to a single request costs no hand-over.
type outbox struct {
	mu      held.Mutex
	items   itemList
	raw     []byte // the bytes of raw items, one after the other
	held    bool   // somebody has the pen
	shut    bool   // nothing is taken any more
	paused  []pausedConsumer
	pending atomic.Int64 // bytes of messages waiting, roughly
	owed    int          // bytes of answers waiting: what the client asked for, deliveries not included
	wakec   chan struct{}
	roomc   chan struct{} // for a reader that waits for owed to fall
	tagc    chan struct{} // for a reader that waits for the tags of what it got

	// Deliveries of a connection whose socket is broken, or which is to be closed because one of
	// its messages can neither be read nor set aside: they go back to their queues when no consumer
	// is left that they could come to again. Owned by whoever has the pen.
	stuck []item

	// Owned by whoever has the pen.
	taken    itemList
	takenRaw []byte
	wire     []byte // encoded, not yet written
}

// item is one thing to send.
type item struct {
	kind     uint8
	bytes    int // of an itemRaw, an itemRecovered or an itemOwn its length, of others what they weigh while they wait
	ch       *channel
	consumer *consumer // of an itemDelivery
	q        *partition.Queue
	d        queue.Delivery
	left     uint32 // of an itemGet, messages that remain
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
	// highWater is how many bytes of messages may wait for a client before its
	// consumers get no more, and lowWater when they do again.
	highWater = 6 << 20
	lowWater  = 2 << 20
	// maxOwed is how many bytes of answers may wait for a client before it is not
	// read any more.
	maxOwed = 1 << 20
	// inlineItems is up to how many things whoever put them in writes itself.
	inlineItems = 8
	// writeSize is how much is encoded before it is written.
	writeSize = 128 << 10
)

// put appends ready bytes by letting f append them.
func (o *outbox) put(f func(b []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	before := len(o.raw)
	o.raw = f(o.raw)
	n := len(o.raw) - before
	o.owed += n
	if it := o.items.newest(); it != nil && it.kind == itemRaw {
		it.bytes += n
		return
	}
	o.items.push(&item{kind: itemRaw, bytes: n})
}

// putOwn is put of bytes that may be many, and are the outbox's from now on: nothing is copied while a partition
// that delivers may wait for o.mu.
func (o *outbox) putOwn(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	o.owed += len(b)
	o.items.push(&item{kind: itemOwn, bytes: len(b), own: &b})
}

// putMethod appends a method frame.
func (o *outbox) putMethod(channel uint16, m amqp091.Method) {
	o.put(func(b []byte) []byte { return amqp091.AppendMethod(b, channel, m) })
}

// recovered puts recover-ok behind what is to be sent. REQUIRES: ch.mu is held, so that what
// comes from now on is behind it.
func (o *outbox) recovered(ch *channel) {
	const size = amqp091.FrameOverhead + 4 // class and method
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	o.items.push(&item{kind: itemRecovered, ch: ch, bytes: size})
	o.owed += size
	ch.recovering++
}

// coldBytes is what a delivery weighs whose record is on disk, beside its body.
const coldBytes = 128

// itemBytes is what a message that waits takes beside its record: the item, in a list that may have grown
// beyond it. Messages may be empty.
const itemBytes = 160

// replyBytes is what a reply takes beside its record and its names, its item included. Nothing but maxReplies
// bounds how many wait.
const replyBytes = 512

// keptItems is for how many items an empty list keeps memory.
const keptItems = 32 << 10

// deliver appends a delivery and says whether there is room for more. If there is none the
// consumer is noted with it, to be resumed: whoever has the pen may send all there is, and lay
// it down, right after the delivery is there.
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
	if it.kind == itemReply && (o.shut || it.reply.to.gone) { // nothing else comes so late: its sender has found the requester before
		o.mu.Unlock()
		c.broker.Bodies().Release(it.d.Body)
		return false
	}
	o.items.push(it)
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

// flush sees to it that what is in the outbox is sent: by the caller if that is
// quickly done, else by the writer. inline allows the first.
func (c *conn) flush(inline bool) {
	o := &c.out
	o.mu.Lock()
	if o.items.len() == 0 || o.held {
		o.mu.Unlock()
		return // whoever has the pen looks again before it lays it down
	}
	if inline && o.items.len() <= inlineItems && o.owed < writeSize && o.pending.Load() < writeSize && c.raw != nil && len(o.wire) == 0 {
		o.held = true
		o.mu.Unlock()
		c.writeSome()
		return
	}
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.wakec <- struct{}{}:
	default:
	}
}

// take takes everything to send. REQUIRES: o.mu and the pen are held.
func (o *outbox) take() {
	o.taken, o.items = o.items, o.taken // which is empty
	o.takenRaw, o.raw = o.raw, o.takenRaw[:0]
	if o.owed > maxOwed {
		select {
		case o.roomc <- struct{}{}:
		default:
		}
	}
	o.owed = 0
}

// waitForRoom keeps a client from asking for more while it does not read the
// answers to what it has asked: they would pile up without end. As many as are
// owed may be on their way beside. Deliveries do not count: they have a limit of
// their own (highWater), and a client that settles them must be read. It returns
// early if others want something of the reader, or the socket is broken; the
// write deadline ends a connection that takes nothing.
func (c *conn) waitForRoom() {
	held.Nothing("a client")
	for !c.dead.Load() && !c.interrupted.Load() && c.out.full() {
		select {
		case <-c.out.roomc:
		case <-c.heedc:
		}
	}
}

// full says whether more is owed than may be.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owed > maxOwed
}

// makeRoom is waitForRoom between the frames of one read: a few bytes of it ask for a large
// message, which is in memory from then on. What others want of the reader meanwhile is done.
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

// awaitTags waits until what the channel got has its delivery tags, which it is given when it
// is encoded: a client may settle it in the same write (BR-9.7). It has none where the connection is
// to be closed, which is done, or its socket is broken: nothing behind the settlement is handled then.
func (c *conn) awaitTags(ch *channel) error {
	held.Nothing("a client")
	c.flush(true)
	for ch.untagged.Load() > 0 {
		if over, err := c.over(); over {
			return err
		}
		select {
		case <-c.out.tagc:
		case <-c.heedc: // another channel is to be closed: fill sees to it
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

// writeSome encodes what there is and writes what the socket takes at once; the
// rest is left to the writer. REQUIRES: the pen.
func (c *conn) writeSome() {
	// Others leave what they have to whoever has the pen, and it would be nobody's.
	defer bug.End(c.log, "the pen of a connection")
	o := &c.out
	o.mu.Lock()
	o.take()
	o.mu.Unlock()
	c.encode(nil) // little enough for one piece
	size := len(o.wire)
	if err := c.raw.write(&o.wire); err != nil {
		c.broken(err)
	}
	c.stats.sent(size - len(o.wire))
	c.layDown()
}

// layDown lays the pen down where others leave to the writer what has come meanwhile.
// REQUIRES: the pen.
func (c *conn) layDown() {
	o := &c.out
	o.mu.Lock()
	o.held = false // whoever takes the pen next waits for o.mu
	again := o.shut || o.items.len() > 0 || len(o.wire) > 0 || len(o.paused) > 0
	if !again {
		c.window.Free()
	}
	o.mu.Unlock()
	if again {
		o.wake()
	}
}

// keep takes the pen for good, if nobody has it, and everything to send. If somebody has, the writer
// is woken when it is laid down.
func (o *outbox) keep() (kept bool) {
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

// encode turns what was taken into bytes in o.wire, calling write when there is
// a good piece of them, if it is not nil. If write returns false the deliveries behind it are
// stuck. REQUIRES: the pen.
func (c *conn) encode(write func([]byte) bool) {
	o := &c.out
	at, size := 0, 0
	broken := c.dead.Load()
	store := c.broker.Bodies()
	for k := range len(o.taken.full) + 1 {
		chunk := o.taken.chunk(k)
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
	o.taken.clear()
	if cap(o.takenRaw) > 1<<20 {
		o.takenRaw = nil
	}
	if size > 0 {
		o.pending.Add(-int64(size))
	}
}

// record reads the record of a delivery. One that is lost on disk is set aside, and the
// client never hears of it. A get has met it before, see channel.get; where the disk did not
// say so then, it goes on to the next message of a classic queue, and to get-empty of a quorum
// queue. REQUIRES: the pen.
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
		} // else the get would wait for its group, and whoever has the pen may be who applies it
		if err != nil || !found {
			c.out.pending.Add(-int64(it.bytes))
			it.ch.stats.gotNothing.Add(1)
			c.out.wire = amqp091.AppendMethod(c.out.wire, it.ch.number, amqp091.BasicGetEmpty{})
			return nil, false
		}
		it.d, it.left = d, uint32(left)
	}
}

// unreadable ends a connection one of whose messages can neither be read nor set aside.
// The message goes back to its queue with the others that were not sent (one that was to
// be sent without acknowledgement has left it). REQUIRES: the pen.
func (c *conn) unreadable(it *item, err error) {
	vhost, name := "", ""
	if it.q != nil {
		vhost, name = string(it.q.VHost), it.q.Name
	}
	c.log.Error("cannot read a message", "vhost", vhost, "queue", name, "no_ack", it.d.NoAck, "error", err)
	c.out.stuck = append(c.out.stuck, *it)
	c.Terminate(amqp091.CodeInternalError, fmt.Sprintf("a message of queue '%s' in vhost '%s' cannot be read", name, vhost))
}

// tellTooLarge logs that the headers of a message take a frame larger than was agreed. It is sent, as RabbitMQ
// does: many clients look at no bound. One that does ends its connection, which counts as a failed delivery. A
// connection tells of the first. REQUIRES: the pen.
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
	// What a consumer that quits holds comes back with it: returned by itself it could come
	// back before, to another consumer of the same connection.
	late := over && owned && !(ch.closed && it.consumer != nil && it.consumer.quits)
	how := queue.ReturnClosed
	if !ch.closed {
		how = queue.ReturnRecover
	}
	// The answer to a get precedes whatever has closed the channel, and what was answered
	// meanwhile: it is sent, or the client would take the next answer for it. What has left its
	// queue precedes it too, and is nowhere else.
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
