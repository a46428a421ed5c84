package session091

import (
	"runtime"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// AbortChannel asks the session of a client to close a channel, as the timeout of a consumer does.
func AbortChannel(client broker.Client, number uint16) {
	c := client.(*conn)
	c.chMu.Lock()
	ch := c.channels[number]
	c.chMu.Unlock()
	c.abort(ch, fail(amqp091.CodePreconditionFailed, "timed out"))
}

// StopSending keeps what is for a client from being sent, until the test lets it go.
func StopSending(client broker.Client) (waiting func() int, letGo func()) {
	c := client.(*conn)
	o := &c.out
	o.mu.Lock()
	for o.held { // whoever has sent the last answer
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
	o.held = true
	o.mu.Unlock()
	waiting = func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.items.Len()
	}
	return waiting, c.layDown
}

// Unfinished is how many bytes count as held of messages that have not come whole. It is the
// reader's: the client has an answer to the last that it has sent.
func Unfinished(client broker.Client) int { return client.(*conn).unfinished }
