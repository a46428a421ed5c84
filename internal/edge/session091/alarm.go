package session091

import (
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// passAlarm waits for an alarm to end, if there is one, and says whether the present message must be
// handled. If the connection or the channel ends meanwhile, the message and all frames after it are ignored. A consumer's
// note of size bytes passes: settlements, which help to end the alarm, must not wait behind it.
func (ch *channel) passAlarm(exchange []byte, size uint64) (on bool, err error) {
	c := ch.c
	if !c.broker.Alarmed() || size <= letter.MaxDetail && c.link.Settles(exchange) {
		return true, nil
	}
	c.waitForAlarm()
	if over, err := c.over(); over {
		return false, err
	}
	return !ch.closing, nil
}

// waitForAlarm stops reading from a publisher while the broker is low on memory or
// disk (BR-13). Everything before the present message is done and answered; the message
// is handled after the alarm. The client gets connection.blocked if it supports it.
// Channels that others abort are closed meanwhile, maybe the one of the message. The wait
// ends early if the connection must be closed.
func (c *conn) waitForAlarm() {
	held.Nothing("the end of an alarm")
	c.flushOps()
	c.confirm()
	changed := make(chan struct{}, 1)
	cancel := c.broker.OnAlarm(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer cancel()
	reason, active := c.broker.Alarms()
	if !active {
		return
	}
	if c.capabilities.blocked {
		c.putMethod(0, amqp091.ConnectionBlocked{Reason: reason})
	}
	c.out.Flush(true)
	c.blocked.Store(true)
	for active && c.shutdown.Load() == nil && !c.sock.Dead() {
		if c.sock.Interrupted() { // fill looks at it again
			c.closeAborted()
			c.out.Flush(true)
		}
		select {
		case <-changed:
		case <-c.sock.Heeds():
		}
		_, active = c.broker.Alarms()
	}
	c.blocked.Store(false)
	if c.capabilities.blocked && !active {
		c.putMethod(0, amqp091.ConnectionUnblocked{})
	}
}
