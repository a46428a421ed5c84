package queue

import "bartleby.mq/internal/core/deadletter"

// Type is a queue's type.
type Type uint8

// The types that are implemented (BR-10.4 about streams).
const (
	Classic Type = iota
	Quorum
)

func (t Type) String() string {
	if t == Quorum {
		return "quorum"
	}
	return "classic"
}

// Overflow is what a queue does when it is over its length limit (DL-10).
type Overflow uint8

// The modes. The numbers are part of the log of quorum queues.
const (
	DropHead Overflow = iota
	RejectPublish
	RejectPublishDLX
)

// String returns the mode as x-overflow names it.
func (o Overflow) String() string {
	return [...]string{"drop-head", "reject-publish", "reject-publish-dlx"}[o]
}

// RetryType says which returned messages wait before they are delivered again (DL-12.2).
type RetryType uint8

// The types of delayed retry. The numbers are part of the log of quorum queues.
const (
	RetryDisabled RetryType = iota
	RetryAll
	RetryFailed
	RetryReturned
)

// String returns the type as x-delayed-retry-type names it.
func (r RetryType) String() string {
	return [...]string{"disabled", "all", "failed", "returned"}[r]
}

// Retry says how long a returned message waits.
type Retry struct {
	Type       RetryType
	Min, Max   int64   // milliseconds; off unless Min > 0; Max 0 means Min
	Multiplier float64 // 0: RabbitMQ's linear growth; else Min grows by this factor with each failure
	Jitter     float64 // 0 to 1: the share of the wait by which chance lengthens or shortens it
}

// Config is the part of a queue's properties that never changes.
type Config struct {
	Type         Type
	Strict       bool // exactly as RabbitMQ: messages expire only at the head (DL-8.4), and so on
	Durable      bool // entries are logged: of persistent messages on classic queues, of all on quorum queues
	MaxPriority  int  // classic: levels above 0; -1 without x-max-priority (BR-11.1)
	SingleActive bool // BR-9.5
	Delays       bool // the queue of an exchange that delays messages: what expires here has waited long enough and goes on
}

// Settings are the properties that policies may change. A limit of -1 means none.
type Settings struct {
	DeadLetter      bool  // a dead-letter exchange is in force
	LostAndFound    bool  // messages over the delivery limit wait to be routed even without a dead-letter exchange
	AtLeastOnce     bool  // dead letters stay until every target has taken them (DL-13.1)
	TTL             int64 // milliseconds (DL-8.1)
	Expires         int64 // milliseconds without use after which the queue is deleted (DL-8.12)
	MaxLength       int64
	MaxBytes        int64
	Overflow        Overflow
	DeliveryLimit   int64 // quorum queues (DL-11.1)
	CountNack       bool  // basic.nack with requeue counts as a failed delivery (DL-11.5)
	ConsumerTimeout int64 // milliseconds, quorum queues (DL-12.7)
	Retry           Retry
	Breaker         Breaker
	Rules           deadletter.Rules // of the virtual host's profile
}

// Unlimited returns the settings of a queue without arguments and policies.
func Unlimited() Settings {
	return Settings{TTL: -1, Expires: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1, ConsumerTimeout: -1}
}

// Quorum queues have 32 priority levels. Messages without the property have level 4 (BR-11.3).
const (
	quorumLevels  = 32
	quorumDefault = 4
)

// Configure puts other settings in force. Messages beyond a new length limit die by Trim.
func (m *Machine) Configure(now int64, s Settings) {
	if s.Expires >= 0 && m.settings.Expires < 0 {
		m.lastUse = now
	}
	if s.ConsumerTimeout != m.settings.ConsumerTimeout {
		m.watch = 0 // the next Tick computes it anew
	}
	m.set(s)
	m.refusing = false
}
