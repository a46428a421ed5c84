package queue

import (
	"bartleby.mq/internal/core/moment"
)

// The expiry of the queue itself, when nobody uses it (x-expires, DL-8.12).

// strictTick is how often RabbitMQ's quorum queues check whether they are used, in milliseconds.
const strictTick = 5000

// expiry is when the queue is deleted if nobody uses it until then. REQUIRES: x-expires is in force.
func (m *Machine) expiry() int64 {
	at := moment.After(m.lastUse, m.settings.Expires)
	if m.config.Strict && m.config.Type == Quorum {
		looks := (at - m.born - 1) / strictTick // checks before the one that finds it unused
		at = moment.After(m.born, moment.Times(strictTick, looks+1))
	}
	return at
}

// Unused says whether the queue is to be deleted because nobody used it for as long as x-expires allows (DL-8.12).
func (m *Machine) Unused(now int64) bool {
	return m.settings.Expires >= 0 && len(m.cs.list) == 0 && now >= m.expiry()
}

// Touch notes a use of the queue (DL-8.12).
func (m *Machine) Touch(now int64) { m.lastUse = now }
