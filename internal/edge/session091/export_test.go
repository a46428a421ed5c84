package session091

import (
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
	letGo = c.out.Halt()
	waiting = func() int {
		n, _ := c.out.Waiting(nil)
		return n
	}
	return waiting, letGo
}

// ready are the ready bytes in the output of a connection.
func ready(c *conn) string {
	_, b := c.out.Waiting(nil)
	return string(b)
}

// Unfinished is how many bytes count as held of messages that have not come whole. It is the
// reader's: the client has an answer to the last that it has sent.
func Unfinished(client broker.Client) int { return client.(*conn).unfinished }
