package broker

import (
	"bytes"
	"strings"
	"sync"

	"bartleby.mq/internal/core/message"
)

// Direct reply-to (BR-12): a requester consumes from a queue that does not exist, and replies go straight to its
// channel.

// ReplyTo is the name a requester consumes from.
const ReplyTo = "amq.rabbitmq.reply-to"

const replyPrefix = ReplyTo + "."

// Requester is a channel that waits for replies. Reply must not block, and takes over the reference.
type Requester interface {
	Reply(exchange, key []byte, body message.Ref)
}

// replies are the requesters by their opaque names.
type replies struct {
	m sync.Map // string -> Requester
}

// AddRequester gives a requester its name, which cannot be guessed (BR-12.2).
func (b *Broker) AddRequester(r Requester) string {
	name := RandomName(replyPrefix)
	b.replies.m.Store(name, r)
	return name
}

// RemoveRequester ends a requester: its name is unknown from now on (BR-12.3).
func (b *Broker) RemoveRequester(name string) { b.replies.m.Delete(name) }

// IsReplyKey says whether a routing key has the form of a requester's name, past or present.
func IsReplyKey(key []byte) bool {
	return len(key) == len(replyPrefix)+22 && bytes.HasPrefix(key, []byte(replyPrefix))
}

// IsReplyQueue says whether a name is reserved for requesters.
func IsReplyQueue(name message.QueueName) bool { return strings.HasPrefix(string(name), replyPrefix) }

// Requester finds a requester by its name.
func (b *Broker) Requester(name string) (Requester, bool) {
	r, ok := b.replies.m.Load(name)
	if !ok {
		return nil, false
	}
	return r.(Requester), true
}
