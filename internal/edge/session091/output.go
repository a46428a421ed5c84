package session091

import (
	"fmt"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// output holds what is to be sent to the client. The holder of its pen assigns delivery tags.
type output = serving.Output[item, pausedConsumer]

// item is one thing to send.
type item struct {
	kind     uint8
	bytes    int // what it counts while it waits
	ch       *channel
	consumer *consumer // of an itemDelivery
	q        *partition.Queue
	d        queue.Delivery
	left     uint32 // of an itemGet: number of ready messages left
	reply    *reply
	own      *[]byte // of an itemOwn
}

const (
	itemDelivery = iota
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

// putOwn puts many ready bytes into the output, which then belong to it. It copies nothing, because a partition that delivers may
// wait for the output.
func (c *conn) putOwn(b []byte) {
	c.out.PutItem(&item{kind: itemOwn, own: &b}, len(b))
}

// putMethod puts a method frame into the output.
func (c *conn) putMethod(channel uint16, m amqp091.Method) {
	c.out.Put(func(b []byte) []byte { return amqp091.AppendMethod(b, channel, m) })
}

// putRecovered puts recover-ok into the output. REQUIRES: ch.mu is held, so that later deliveries come after it.
func (c *conn) putRecovered(ch *channel) {
	const size = amqp091.FrameOverhead + 4 // class and method
	if c.out.PutItem(&item{kind: itemRecovered, ch: ch}, size) {
		ch.recovering++
	}
}

// replyBytes is the memory of a reply besides its record and its names, including its item. Only maxReplies limits how many
// wait.
const replyBytes = 512

// count sets what an item takes while it waits.
func (c *conn) count(it *item) {
	if it.d.Body.OnDisk() {
		it.bytes = serving.ColdBytes + int(it.d.Size)
	} else {
		it.bytes = c.broker.Bodies().Size(it.d.Body)
	}
	if it.kind == itemReply {
		it.bytes += replyBytes + len(it.reply.exchange) + len(it.reply.key)
	} else {
		it.bytes += serving.ItemBytes
	}
}

// deliver puts a delivery into the output and says whether there is room for more. If there is none, the consumer is paused.
func (c *conn) deliver(it *item) (more bool) {
	c.count(it)
	owed := 0
	if it.kind == itemGet {
		owed = it.bytes
	}
	if c.out.Deliver(it, it.bytes, owed) {
		return true
	}
	if it.consumer != nil {
		c.out.Pause(pausedConsumer{it.q, it.consumer})
	}
	return false
}

// makeRoom is WaitForRoom between the frames of one read: a few bytes may request a large
// message, which is then in memory. It handles requests of other goroutines meanwhile.
func (c *conn) makeRoom() error {
	for c.state == stateRunning && !c.sock.Dead() && c.out.Full() {
		c.out.Flush(true)
		c.out.WaitForRoom()
		if c.sock.Interrupted() {
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
	c.out.Flush(true)
	for ch.untagged.Load() > 0 {
		if over, err := c.over(); over {
			return err
		}
		select {
		case <-c.tagc:
		case <-c.sock.Heeds(): // another channel must be closed: fill does that
		}
	}
	return nil
}

// tagged notes that a get was encoded. REQUIRES: the pen.
func (c *conn) tagged(ch *channel) {
	if ch.untagged.Add(-1) == 0 {
		select {
		case c.tagc <- struct{}{}:
		default:
		}
	}
}

// pen is the session of an output.
type pen struct{ c *conn }

var _ serving.Session[item, pausedConsumer] = pen{}

// Encode implements serving.Session.
func (p pen) Encode(it *item) {
	c := p.c
	o := &c.out
	switch {
	case it.kind == itemOwn:
		o.Append(*it.own)
	case it.kind == itemRecovered:
		it.ch.mu.Lock()
		it.ch.recovering--
		it.ch.mu.Unlock()
		o.Wire = amqp091.AppendMethod(o.Wire, it.ch.number, amqp091.BasicRecoverOk{})
	case o.Failed():
		o.Keep(it)
	default:
		if rec, ok := c.record(it); ok {
			o.Sent(it.bytes)
			c.encodeDelivery(it, rec)
			store := c.broker.Bodies()
			store.Release(it.d.Body)
			store.Release(it.d.History)
		}
		if it.kind == itemGet {
			c.tagged(it.ch)
		}
	}
}

// Resumable implements serving.Session.
func (p pen) Resumable(pausedConsumer) bool { return p.c.out.Pending() < serving.LowWater }

// Resume implements serving.Session.
func (p pen) Resume(paused pausedConsumer) { p.c.link.Resume(paused.q, &paused.c.Consumer) }

// AppendBeat implements serving.Session (BR-1.9).
func (p pen) AppendBeat(b []byte) []byte { return amqp091.AppendHeartbeat(b) }

// record reads the record of a delivery. It sets a lost record aside, and the client gets no
// delivery for it. A get has usually found the loss before, see channel.get; otherwise it
// continues with the next message of a classic queue, or with get-empty for a quorum queue.
// REQUIRES: the pen.
func (c *conn) record(it *item) (rec message.Record, ok bool) {
	store := c.broker.Bodies()
	for {
		rec, err := store.Read(it.d.Body, &c.out.Window)
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
			c.out.Sent(it.bytes)
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
			c.out.Sent(it.bytes)
			it.ch.gotNothing(it.q)
			c.out.Wire = amqp091.AppendMethod(c.out.Wire, it.ch.number, amqp091.BasicGetEmpty{})
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
	c.out.Keep(it)
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
	ch.sentFrom(it.q).count(it)
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
		o.Wire = amqp091.AppendGetOk(o.Wire, ch.number, tag, it.d.Redelivered, exchange, key, it.left)
	case itemReply:
		o.Wire = amqp091.AppendDeliver(o.Wire, ch.number, it.reply.to.tag, tag, false, exchange, key)
	default:
		o.Wire = amqp091.AppendDeliver(o.Wire, ch.number, it.consumer.Tag, tag, it.d.Redelivered, exchange, key)
	}
	if c.link.Traced() {
		c.trace(it, rec, exchange, key, props)
	}
	body := convert.Body(rec)
	before := len(o.Wire)
	o.Wire = amqp091.AppendContentHeader(o.Wire, ch.number, amqp091.ClassBasic, uint64(len(body)), props)
	if n := len(o.Wire) - before; n > c.frameMax {
		c.tellTooLarge(it, n)
	}
	o.Wire = amqp091.AppendBody(o.Wire, ch.number, body, c.frameMax)
	if late {
		c.returnLate(it, how)
	}
}

// drain returns all unsent deliveries to their queues and releases their references. REQUIRES: the output has ended, and the
// connection has no consumer left that could get them again.
func (c *conn) drain() {
	store := c.broker.Bodies()
	back := serving.Returns{Node: c.broker.Node()}
	c.out.Drain(func(it *item) {
		if it.kind == itemRecovered || it.kind == itemOwn {
			return
		}
		if it.kind != itemReply && !it.d.NoAck {
			back.Add(returnOp(it, queue.ReturnClosed))
		}
		c.out.Sent(it.bytes)
		store.Release(it.d.Body)
		store.Release(it.d.History)
	})
	back.Run()
}

func returnOp(it *item, how queue.ReturnKind) partition.Op {
	op := partition.Op{Kind: partition.Return, Queue: it.q, ID: it.d.ID, Consumer: it.d.By, How: how}
	if it.consumer != nil {
		op.Consumer = &it.consumer.Consumer
	}
	return op
}

// returnLate returns one delivery whose channel was closed, or recovered, before it was sent.
func (c *conn) returnLate(it *item, how queue.ReturnKind) {
	op := returnOp(it, how)
	c.broker.Node().Run([]partition.Op{op})
	if how == queue.ReturnRecover && it.consumer != nil {
		it.consumer.givesBack()
	}
}
