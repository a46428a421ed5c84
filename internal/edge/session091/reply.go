package session091

import (
	"bytes"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/held"
)

// replied hands a reply to the channel that waits for it (BR-12.2). A reply that comes too late is dropped, but
// still confirmed (BR-12.4).
func (ch *channel) replied(p *broker.Publication) error {
	c := ch.c
	if err := c.link.MayPublish(p); err != nil {
		return ch.refusedPublish(err)
	}
	c.link.Traffic().Published.Add(1)
	if c.link.Traced() {
		c.link.TracePublish(p, string(p.Key))
	}
	ch.replyTo(p, p.Key)
	if ch.tx != nil {
		ch.tx.messages.Add(1)
		return ch.tx.check()
	}
	ch.nothingToRun()
	return nil
}

// copyReplies hands a message to the requesters that its key and its CC and BCC headers name, as if they
// were queues of the default exchange: once to each requester. It says whether there was one.
func (ch *channel) copyReplies(p *broker.Publication) (any bool) {
	if len(p.Exchange) > 0 || !p.HasMoreKeys() {
		return false
	}
	names := slices.DeleteFunc(p.DistinctKeys(), func(key []byte) bool { return !broker.IsReplyKey(key) })
	return ch.replyTo(p, names...)
}

// heldReply is a reply that waits for its transaction.
type heldReply struct {
	to            string
	exchange, key []byte
	body          message.Ref
}

// replyTo hands a message to requesters, at commit if there is a transaction. It says
// whether any of them exists. They share one record.
func (ch *channel) replyTo(p *broker.Publication, names ...[]byte) bool {
	c, store := ch.c, ch.c.broker.Bodies()
	var body message.Ref
	for _, name := range names {
		to, ok := c.broker.Requester(string(name))
		if !ok {
			continue
		}
		if body == 0 {
			c.flushOps()           // operations before it on the channel come first
			body = c.link.Store(p) // our reference, until all requesters have theirs
			if ch.tx != nil {
				ch.tx.size += store.Size(body)
			}
		}
		store.Retain(body, 1)
		if ch.tx == nil {
			to.Reply(p.Exchange, p.Key, body)
			continue
		}
		ch.tx.replies = append(ch.tx.replies, heldReply{string(name), bytes.Clone(p.Exchange), bytes.Clone(p.Key), body})
		ch.tx.size += replyBytes + len(name) + len(p.Exchange) + len(p.Key)
	}
	store.Release(body)
	return body != 0
}

// maxReplies is how many bytes may wait for a requester before further replies are dropped. A reply has no queue to
// wait in, and is delivered at most once (BR-12.4).
const maxReplies = 64 << 20

// requester is a consumer of direct replies: a channel has one at a time, each with a name of its
// own. Repliers may still hold it when it has ended.
type requester struct {
	ch  *channel
	tag string

	mu   held.Mutex // guards what follows; it comes before the output's lock
	gone bool       // cancelled
}

var _ broker.Requester = (*requester)(nil)

// Reply implements broker.Requester.
func (r *requester) Reply(exchange, key []byte, body message.Ref) {
	c := r.ch.c
	if c.out.Pending() > maxReplies {
		c.broker.Bodies().Release(body)
		return
	}
	it := item{kind: itemReply, ch: r.ch, reply: &reply{exchange: append([]byte{}, exchange...), key: append([]byte{}, key...), to: r}}
	it.d.Body, it.d.NoAck = body, true
	c.count(&it)
	if !r.offer(&it) {
		c.broker.Bodies().Release(body)
		return
	}
	c.out.Flush(true)
}

// offer puts a reply into the output, unless the requester has ended, or the output.
func (r *requester) offer(it *item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.gone && r.ch.c.out.Offer(it, it.bytes)
}

// end refuses further replies, so that later answers come after the last reply.
func (r *requester) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
}
