package session091

import (
	"iter"
	"sync/atomic"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// channel is one channel of a connection.
type channel struct {
	c      *conn
	number uint16

	// Owned by the reader.
	closing   bool // close was sent, close-ok is due
	content   content
	lastQueue message.QueueName
	prefetch  int // for later consumers
	confirms  *confirms
	notes     *notes // nil: the client never said anything of a delivery
	tx        *transaction
	requester string     // name for direct replies, "" if there is none
	replies   *requester // with that name; nil if there is none
	sharing   bool       // gate is in force: basic.qos with global was called and is enabled
	ungated   bool       // it is in conn.ungated

	shown struct { // for the management API
		prefetch    atomic.Int64
		confirm, tx atomic.Bool
	}
	stats    counters
	gate     gate         // shared prefetch limit
	untagged atomic.Int32 // gets in the output: they have no delivery tag yet

	mu     held.Mutex // guards what follows; the writer and goroutines that delete queues take it
	closed bool
	// recovering is the number of recover-oks in the output. Deliveries before the last of them
	// go back to their queues, because the client considers them requeued.
	recovering int
	nextTag    uint64
	unacked    unackedList
	consumers  map[string]*consumer
	queues     map[*partition.Queue]int // the number of limited consumers by queue
	deleting   bool                     // the reader deletes a queue: cancellations are sent after the answer
	gone       []string                 // tags of consumers whose cancellation is sent then
}

// content is a message whose frames have not all arrived.
type content struct {
	expect   uint8 // the next frame: none, a header or a body
	publish  amqp091.Publish
	exchange []byte // publish's strings, kept beyond the read buffer
	key      []byte
	props    []byte
	body     []byte
	size     uint64
	counted  int // bytes of it in conn.unfinished
}

const (
	expectMethod = iota
	expectHeader
	expectBody
)

// consumer is a session's side of a consumer: a partition.Subscriber.
type consumer struct {
	queue.Consumer
	ch      *channel
	q       *partition.Queue
	tag     string
	queued  message.QueueName
	args    []byte // encoded, because they are only shown
	limited bool   // the shared limit counts its deliveries, even if it is not in force
	quits   bool   // its channel ends and requeues its deliveries; guarded by ch.mu
}

var _ partition.Subscriber = (*consumer)(nil)

// Deliver implements partition.Subscriber. The partition is locked.
func (k *consumer) Deliver(q *partition.Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	c := k.ch.c
	if k.limited && k.Gate == nil {
		k.ch.gate.used.Add(1) // before the client can settle it
	}
	it := item{kind: itemDelivery, ch: k.ch, consumer: k, q: q, d: *d}
	return c.deliver(&it)
}

// Flush implements partition.Subscriber.
func (k *consumer) Flush() { k.ch.c.out.Flush(true) }

// QueueGone implements partition.Subscriber (BR-9.14).
func (k *consumer) QueueGone(q *partition.Queue, _ *queue.Consumer) {
	ch := k.ch
	ch.mu.Lock()
	known := ch.consumers[k.tag] == k
	if known {
		ch.leave(k)
	}
	tell := known && ch.c.capabilities.cancelNotify
	if tell && ch.deleting {
		ch.gone = append(ch.gone, k.tag)
		tell = false
	}
	if tell {
		ch.tellCancelled(k.tag)
	}
	ch.mu.Unlock()
	if known {
		ch.c.link.NotifyConsumerGone(q, k.tag, ch.number, false)
	}
	if tell {
		ch.c.out.Flush(false)
	}
}

// tellCancelled sends basic.cancel, unless the channel is closed: after the close the client might take the method
// for one of a new channel with the same number, or for an error. REQUIRES: mu is held.
func (ch *channel) tellCancelled(tag string) {
	if !ch.closed {
		ch.c.putMethod(ch.number, amqp091.BasicCancel{ConsumerTag: tag, NoWait: true})
	}
}

// deleteQueue deletes a queue. It calls answered before it sends basic.cancel for the
// channel's own consumers, as RabbitMQ does.
func (ch *channel) deleteQueue(name message.QueueName, ifUnused, ifEmpty bool, answered func(messages int)) error {
	ch.mu.Lock()
	ch.deleting = true
	ch.mu.Unlock()
	n, err := ch.c.link.DeleteQueue(name, ifUnused, ifEmpty)
	if err == nil {
		answered(n)
	}
	ch.mu.Lock()
	gone := ch.gone
	ch.deleting, ch.gone = false, nil
	ch.mu.Unlock()
	for _, tag := range gone {
		ch.c.putMethod(ch.number, amqp091.BasicCancel{ConsumerTag: tag, NoWait: true})
	}
	return err
}

// TimedOut implements partition.Subscriber (DL-12.7).
func (k *consumer) TimedOut(*partition.Queue, *queue.Consumer, int) {
	ch := k.ch
	if ch.c.capabilities.cancelNotify {
		ch.mu.Lock()
		known := ch.consumers[k.tag] == k // otherwise the client has cancelled it, and may have reused the tag
		if known {
			ch.tellCancelled(k.tag)
		}
		ch.mu.Unlock()
		if known {
			ch.c.out.Flush(false)
		}
		return
	}
	ch.c.abort(ch, fail(amqp091.CodePreconditionFailed, "delivery acknowledgement on channel %d timed out. Timeout value used: -1 ms. "+
		"This timeout value can be configured, see consumers doc guide to learn more", ch.number))
}

// Cause implements partition.Culprit.
func (k *consumer) Cause() deadletter.Cause {
	cause := k.ch.c.cause
	cause.ConsumerTag = k.tag
	return cause
}

// enter adds a consumer. REQUIRES: mu is held.
func (ch *channel) enter(k *consumer) {
	ch.consumers[k.tag] = k
	if !k.limited {
		return
	}
	if ch.queues == nil {
		ch.queues = map[*partition.Queue]int{}
	}
	ch.queues[k.q]++
}

// leave removes a consumer. REQUIRES: mu is held.
func (ch *channel) leave(k *consumer) {
	delete(ch.consumers, k.tag)
	if !k.limited {
		return
	}
	if ch.queues[k.q]--; ch.queues[k.q] == 0 {
		delete(ch.queues, k.q)
	}
}

// gate is a prefetch limit that a channel's consumers share (BR-9.9). Every channel has one, and it counts deliveries even
// before there is a limit: TryTake counts for consumers under the gate, Deliver for the others. After a settlement,
// pumpGated makes all queues of the channel deliver again.
type gate struct {
	limit atomic.Int64 // 0 = none
	used  atomic.Int64
}

// TryTake implements queue.Gate. A refused attempt never counts, not even for a moment: otherwise queues of two partitions
// could make each other refuse, and nothing would make them deliver again.
func (g *gate) TryTake() bool {
	for {
		used, limit := g.used.Load(), g.limit.Load()
		if limit != 0 && used >= limit {
			return false
		}
		if g.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// full says whether the limit is reached.
func (g *gate) full() bool {
	limit := g.limit.Load()
	return limit != 0 && g.used.Load() >= limit
}

// givesBack is called when a delivery to k that the client never got goes back. Any goroutine may call it while it
// holds no lock.
func (k *consumer) givesBack() {
	if !k.limited {
		return
	}
	g := &k.ch.gate
	g.used.Add(-1)
	if g.limit.Load() != 0 {
		k.ch.pumpGated()
	}
}

// channelFrame handles a frame of a channel.
func (c *conn) channelFrame(f amqp091.Frame) error {
	if c.state != stateRunning {
		return fail(amqp091.CodeChannelError, "unexpected frame in connection state starting")
	}
	ch := c.recent
	if ch == nil || ch.number != f.Channel {
		if ch = c.channels[f.Channel]; ch == nil {
			return c.openChannel(f)
		}
		c.recent = ch
	}
	if ch.closing {
		return c.closingChannelFrame(ch, f)
	}
	if ch.stats.active.Load() != c.heard { // a store costs more
		ch.stats.active.Store(c.heard)
	}
	switch f.Type {
	case amqp091.FrameMethod:
		if ch.content.expect != expectMethod {
			return ch.interrupted(f)
		}
		return ch.method(f)
	case amqp091.FrameHeader:
		if ch.content.expect == expectHeader {
			return ch.contentHeader(f.Payload)
		}
	case amqp091.FrameBody:
		if ch.content.expect == expectBody {
			return ch.contentBody(f.Payload)
		}
	}
	if ch.content.expect == expectMethod {
		return fail(amqp091.CodeUnexpectedFrame, "expected method frame, got non method frame instead")
	}
	return ch.interrupted(f)
}

// interrupted is the failure for a frame between the frames of a content (BR-4.8).
func (ch *channel) interrupted(amqp091.Frame) error {
	what := "header"
	if ch.content.expect == expectBody {
		return &failure{code: amqp091.CodeUnexpectedFrame, text: "expected content body, got non content body frame instead", method: amqp091.BasicPublishID}
	}
	return &failure{code: amqp091.CodeUnexpectedFrame, text: "expected content " + what + " for class 60, got non content " + what + " frame instead", method: amqp091.BasicPublishID}
}

// openChannel handles a frame on a channel number that is not open.
func (c *conn) openChannel(f amqp091.Frame) error {
	if f.Type != amqp091.FrameMethod {
		return fail(amqp091.CodeUnexpectedFrame, "expected method frame, got non method frame instead")
	}
	m, err := c.decode(f)
	if err != nil {
		return err
	}
	switch m.(type) {
	case *amqp091.ChannelOpen:
	case *amqp091.ChannelCloseOk:
		return nil // late
	default:
		return &failure{code: amqp091.CodeChannelError, text: "expected 'channel.open'", method: m.ID()}
	}
	if len(c.channels) >= c.channelMax {
		return fail(amqp091.CodeNotAllowed, "number of channels opened (%d) has reached the negotiated channel_max (%d)", len(c.channels), c.channelMax)
	}
	if err := c.link.OpenChannel(); err != nil {
		return err
	}
	c.flushOps()
	ch := &channel{c: c, number: f.Channel, consumers: map[string]*consumer{}}
	c.chMu.Lock()
	c.channels[f.Channel] = ch
	c.chMu.Unlock()
	c.link.NotifyChannel(f.Channel)
	c.putMethod(f.Channel, amqp091.ChannelOpenOk{})
	return nil
}

// closingChannelFrame handles frames on a channel after its close was sent (BR-4.4).
func (c *conn) closingChannelFrame(ch *channel, f amqp091.Frame) error {
	if f.Type != amqp091.FrameMethod {
		return nil
	}
	switch m, _ := amqp091.DecodeMethod(f.Payload); m.(type) {
	case *amqp091.ChannelCloseOk:
		c.forgetChannel(ch)
	case *amqp091.ChannelClose:
		c.putMethod(ch.number, amqp091.ChannelCloseOk{})
		c.forgetChannel(ch)
	}
	return nil
}

func (c *conn) forgetChannel(ch *channel) {
	c.chMu.Lock()
	delete(c.channels, ch.number)
	c.chMu.Unlock()
	c.recent = nil
}

// closeChannel closes the channel with a channel.close.
func (c *conn) closeChannel(ch *channel, f *failure) {
	c.log.Error("closing channel", "channel", ch.number, "code", f.code, "reason", f.text, "user", c.login.User)
	ch.release()
	ch.closing = true
	c.putMethod(ch.number, amqp091.ChannelClose{
		ReplyCode: f.code, ReplyText: f.replyText(),
		ClassID: uint16(f.method >> 16), MethodID: uint16(f.method),
	})
}

// closeChannels ends all channels with the connection. None of them gets a delivery afterwards.
func (c *conn) closeChannels() {
	channels := c.sortedChannels()
	applied := c.releaseAll(channels)
	for _, ch := range channels {
		c.forgetChannel(ch)
	}
	applied()
}

// abort makes the reader close a channel. Any goroutine may call it.
func (c *conn) abort(ch *channel, f *failure) {
	c.chMu.Lock()
	c.aborts = append(c.aborts, abortion{ch, f})
	c.chMu.Unlock()
	c.sock.Interrupt()
}

type abortion struct {
	ch *channel
	f  *failure
}

// release ends the channel's consumers, requeues its unsettled deliveries in order (BR-4.5), and drops its
// transaction. The channel gets no delivery afterwards.
func (ch *channel) release() { ch.c.releaseAll([]*channel{ch})() }

// releaseAll is release for several channels at once: no channel gets a delivery that another
// gives back. Their deliveries in the output go back with it too.
func (c *conn) releaseAll(channels []*channel) (applied func()) {
	var seats []partition.Seat
	var held []unackedList
	open := channels[:0:0]
	var consumed []int // by the channels in open: how many consumers they had
	for _, ch := range channels {
		ch.mu.Lock()
		if ch.closed {
			ch.mu.Unlock()
			continue
		}
		open = append(open, ch)
		ch.closed = true
		consumers := make([]*consumer, 0, len(ch.consumers))
		for _, k := range ch.consumers {
			k.quits = true
			consumers = append(consumers, k)
		}
		consumed = append(consumed, len(consumers))
		clear(ch.consumers)
		clear(ch.queues)
		if ch.unacked.n > 0 {
			held = append(held, ch.unacked)
		}
		ch.unacked = unackedList{}
		ch.mu.Unlock()
		if in := &ch.content; in.expect == expectBody {
			in.expect = expectMethod
			in.laidDown(c)
		}
		sortConsumers(consumers)
		for _, k := range consumers {
			seats = append(seats, partition.Seat{Queue: k.q, Consumer: &k.Consumer})
		}
	}
	applied = func() {}
	if len(seats)+len(held) > 0 {
		applied = c.link.Quit(seats, deliveries(held))
	}
	for i, ch := range open {
		ch.notes.drop(c)
		if ch.requester != "" {
			c.broker.RemoveRequester(ch.requester)
		}
		if ch.tx != nil {
			ch.tx.drop(c)
		}
		ch.mu.Lock()
		ch.endCounters()
		ch.mu.Unlock()
		c.link.EndPairs(ch.number)
		c.link.CloseChannel()
		c.link.NotifyChannelClosed(ch.number, consumed[i])
	}
	return applied
}

// deliveries walks the unsettled deliveries of lists that no longer change.
func deliveries(held []unackedList) iter.Seq[partition.Delivered] {
	return func(yield func(partition.Delivered) bool) {
		for i := range held {
			for u := range held[i].all() {
				if !yield(partition.Delivered{Queue: u.q, ID: u.id, Consumer: u.consumer}) {
					return
				}
			}
		}
	}
}
