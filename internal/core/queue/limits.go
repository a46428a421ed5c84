package queue

import (
	"bartleby.mq/internal/core/deadletter"
)

// The limits of length and bytes (DL-10): what counts, when a message is refused, when the head dies.

// full says whether the message must be refused.
func (m *Machine) full(size uint32) bool {
	refuses, soft := m.refuses(0, 0, size)
	if soft {
		m.refusing = refuses
	}
	return refuses
}

// refuses says whether a message of the given size must be refused if others are in the queue besides the present
// ones. soft says that the answer also depends on whether the queue has been refusing: it stops only below 80 %
// (DL-10.8).
func (m *Machine) refuses(others, otherBytes int64, size uint32) (refuses, soft bool) {
	if m.drops() {
		return false, false
	}
	ready, bytes := m.counted()
	ready, bytes = ready+others, bytes+otherBytes
	if m.config.Type == Quorum && m.settings.AtLeastOnce {
		// Whether a death has been tried yet is nothing that a publisher sees: it waits to be forwarded (DL-10.1).
		ready, bytes = ready+int64(m.Count.Dying), bytes+m.Count.DyingBytes
	}
	if m.config.Type == Quorum && m.config.Strict {
		// Soft, as in DL-10.8: refusal begins once the queue is over its limit.
		over := m.settings.MaxLength >= 0 && ready > m.settings.MaxLength || m.settings.MaxBytes >= 0 && bytes > m.settings.MaxBytes
		under := (m.settings.MaxLength < 0 || ready <= most80(m.settings.MaxLength)) && (m.settings.MaxBytes < 0 || bytes <= most80(m.settings.MaxBytes))
		return over || m.refusing && !under, true
	}
	return m.settings.MaxLength >= 0 && ready+1 > m.settings.MaxLength ||
		m.settings.MaxBytes >= 0 && bytes+int64(size) > m.settings.MaxBytes, false
}

// most80 is 80 % of a limit, rounded down. Ten times a large limit would not fit into an int64.
func most80(limit int64) int64 { return limit/10*8 + limit%10*8/10 }

// Accepts says whether the queue has room for the message.
func (m *Machine) Accepts(size uint32) bool { return !m.full(size) }

// counted returns the messages and bytes that length limits count (DL-10.1).
func (m *Machine) counted() (messages, bytes int64) {
	messages, bytes = int64(m.Count.Ready+m.Count.Offered), m.Count.ReadyBytes+m.Count.OfferedBytes
	if m.config.Type == Quorum {
		messages += int64(m.Count.Delayed + m.Count.Held)
		bytes += m.Count.DelayedBytes + m.Count.HeldBytes
	}
	return messages, bytes
}

func (m *Machine) over() bool {
	messages, bytes := m.counted()
	return m.settings.MaxLength >= 0 && messages > m.settings.MaxLength ||
		m.settings.MaxBytes >= 0 && bytes > m.settings.MaxBytes
}

// overLength is by how many messages the queue exceeds max-length.
func (m *Machine) overLength() int {
	if m.settings.MaxLength < 0 {
		return 0
	}
	messages, _ := m.counted()
	return int(max(0, messages-m.settings.MaxLength))
}

// Trim lets ready messages die until the queue is within its limits (DL-10.3), at most limit of them. It says whether
// there is more to do.
func (m *Machine) Trim(now int64, limit int) (more bool) {
	for n := 0; m.overflowing(); n++ {
		if n == limit {
			return true
		}
		id, p, ok := m.First()
		if !ok {
			return false
		}
		m.die(now, id, p, deadletter.MaxLen, nil)
	}
	return false
}

// overflowing says whether Trim has something to do.
func (m *Machine) overflowing() bool { return m.Count.Ready > 0 && m.drops() && m.over() }

// drops says whether the queue drops its head when it is full (DL-3.7).
func (m *Machine) drops() bool {
	return m.settings.Overflow == DropHead || m.config.Type == Quorum && m.settings.Overflow == RejectPublishDLX
}
