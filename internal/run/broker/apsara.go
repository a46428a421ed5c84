package broker

import (
	"fmt"
	"strconv"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// ApsaraMQ are the settings of virtual hosts with the ApsaraMQ profile (DL-22).
type ApsaraMQ struct {
	MaxRedeliveries   int64         // a message dies at the next failure after so many (DL-22.1)
	ResetRedeliveries bool          // each queue counts from 0
	ConsumerTimeout   time.Duration // DL-22.2
	LimitReason       string        // DL-22.7
	ExpireDead        bool          // dead letters have a TTL (DL-22.8)
	MaxHops           int64         // DL-22.10
	MaxDelay          time.Duration // DL-22.12; 0: no message is delayed
	MaxRetention      time.Duration // DL-22.14; 0: for ever
	MaxMessageSize    int           // bytes (DL-22.14)
	Priorities        bool          // DL-22.14
	ErrorStyle        bool          // DL-22.15
	ErrorHelp         string        // the address that errors in this style name
}

// DefaultApsaraMQ returns the defaults.
func DefaultApsaraMQ() ApsaraMQ {
	return ApsaraMQ{
		MaxRedeliveries: 16, ResetRedeliveries: true, ConsumerTimeout: 5 * time.Minute, LimitReason: "consumption_limit_exceeded",
		MaxHops: 16, MaxDelay: 7 * 24 * time.Hour, MaxRetention: 3 * 24 * time.Hour, MaxMessageSize: 10 << 20,
		ErrorHelp: "https://www.alibabacloud.com/help/en/apsaramq-for-rabbitmq",
	}
}

// rules returns the profile's rules about deaths in a queue.
func (a *ApsaraMQ) rules() deadletter.Rules {
	return deadletter.Rules{
		Profile: deadletter.ApsaraMQ, ExpireDead: a.ExpireDead, ResetCounts: a.ResetRedeliveries, MaxHops: a.MaxHops,
		Retention: a.MaxRetention.Milliseconds(), LimitReason: a.LimitReason,
	}
}

// govern puts the rules of its profile into a queue's settings. A quorum queue may ask for fewer attempts than the
// profile allows.
func (b *Broker) govern(q *topology.Queue, s *queue.Settings) {
	if q.Profile != deadletter.ApsaraMQ {
		return
	}
	s.Rules = b.ApsaraMQ.rules()
	s.ConsumerTimeout = b.ApsaraMQ.ConsumerTimeout.Milliseconds()
	asked := s.DeliveryLimit
	s.DeliveryLimit = b.ApsaraMQ.MaxRedeliveries
	if _, set := q.Effective.Arguments.Get("x-delivery-limit"); set && asked >= 0 {
		s.DeliveryLimit = min(s.DeliveryLimit, asked)
	}
}

// headerDelay is the header with which a publisher delays a message, in milliseconds (DL-22.12).
const headerDelay = "delay"

// delay is how many milliseconds the message is delayed: the value of its header. If that is not a number, or exceeds
// the maximum, the message is not delayed.
func (a *ApsaraMQ) delay(headers []byte) int64 {
	kind, value, ok := amqp091.HeaderField(headers, headerDelay)
	if !ok {
		return 0
	}
	decoded, err := amqp091.DecodeValue(kind, value)
	if err != nil {
		return 0
	}
	ms, ok := amqp091.Int64(decoded)
	if text, isText := decoded.(string); isText {
		ms, err = strconv.ParseInt(text, 10, 64)
		ok = err == nil
	}
	if !ok || ms < 0 || ms > a.MaxDelay.Milliseconds() {
		return 0
	}
	return ms
}

// apsaraIn returns the settings of a virtual host with the ApsaraMQ profile, nil for others.
func (b *Broker) apsaraIn(vhost message.VHost) *ApsaraMQ {
	b.topo.RLock()
	defer b.topo.RUnlock()
	if v, ok := b.state.VHost(vhost); ok {
		return b.apsaraOf(v)
	}
	return nil
}

// apsaraOf is apsaraIn of a known virtual host. REQUIRES: topo is held.
func (b *Broker) apsaraOf(v *topology.VHost) *ApsaraMQ {
	if v.Profile() == deadletter.ApsaraMQ {
		return &b.ApsaraMQ
	}
	return nil
}

// Apsara returns the settings of the virtual host if it has the ApsaraMQ profile, else nil. The profile was read
// once, when the connection was made.
func (c *Connection) Apsara() *ApsaraMQ { return c.apsara }

// MaxMessageSize is how many bytes a message's body may have in the virtual host (BR-4.9, DL-22.14).
func (c *Connection) MaxMessageSize() int {
	if c.apsara != nil {
		return c.apsara.MaxMessageSize
	}
	return c.b.MaxMessageSize
}

// TooLarge is the refusal of a message whose body exceeds MaxMessageSize.
func (c *Connection) TooLarge(size uint64) error {
	return &topology.Error{
		Kind: topology.PreconditionFailed, Fault: topology.TooLarge,
		Text: fmt.Sprintf("message size %d is larger than configured max size %d", size, c.MaxMessageSize()),
	}
}
