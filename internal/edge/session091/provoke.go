//go:build failpoints

package session091

import "bartleby.mq/internal/core/message"

// Names of queues that make a session of a crash-test build panic.
const (
	provokesSession = "bartleby.provoke.session"
	provokesLocked  = "bartleby.provoke.locked"
	provokesEnd     = "bartleby.provoke.end"
)

// provoke panics for a crash test, as a bug of the session would.
func (ch *channel) provoke(name message.QueueName) {
	switch name {
	case provokesLocked:
		ch.mu.Lock()
		fallthrough
	case provokesSession:
		panic("provoked in a session")
	case provokesEnd:
		ch.c.channels[0] = nil // makes the end of the connection panic
		panic("provoked in a session and its end")
	}
}
