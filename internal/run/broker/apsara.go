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

// ApsaraMQ are the settings of virtual hosts with that profile (DL-22).
type ApsaraMQ struct {
	MaxRedeliveries   int64         // a message dies when it failed once more (DL-22.1)
	ResetRedeliveries bool          // each queue counts anew
	ConsumerTimeout   time.Duration // DL-22.2
	LimitReason       string        // DL-22.7
	ExpireDead        bool          // dead letters have a TTL (DL-22.8)
	MaxHops           int64         // DL-22.10
	MaxDelay          time.Duration // DL-22.12; 0: no message is delayed
	MaxRetention      time.Duration // DL-22.14; 0: for ever
	MaxMessageSize    int           // bytes (DL-22.14)
	Priorities        bool          // DL-22.14
	ErrorStyle        bool          // DL-22.15
	ErrorHelp         string        // the address that errors in that style name
}

// DefaultApsaraMQ are the settings where nothing is said.
func DefaultApsaraMQ() ApsaraMQ {
	return ApsaraMQ{
		MaxRedeliveries: 16, ResetRedeliveries: true, ConsumerTimeout: 5 * time.Minute, LimitReason: "consumption_limit_exceeded",
		MaxHops: 16, MaxDelay: 7 * 24 * time.Hour, MaxRetention: 3 * 24 * time.Hour, MaxMessageSize: 10 << 20,
		ErrorHelp: "https://www.alibabacloud.com/help/en/apsaramq-for-rabbitmq",
	}
}

// rules are what ApsaraMQ's profile says about what dies in a queue.
func (a *ApsaraMQ) rules() deadletter.Rules {
	return deadletter.Rules{
		Profile: deadletter.ApsaraMQ, ExpireDead: a.ExpireDead, ResetCounts: a.ResetRedeliveries, MaxHops: a.MaxHops,
		Retention: a.MaxRetention.Milliseconds(), LimitReason: a.LimitReason,
	}
}

// govern gives a queue's settings the rules of its profile. A quorum queue that asks for less attempts than there are
// has its way.
func (b *Broker) govern(q *topology.Queue, s *queue.Settings) {
	if q.Profile != deadletter.ApsaraMQ {
		return
	}
	s.Rules = b.ApsaraMQ.rules()
	s.ConsumerTimeout = b.ApsaraMQ.ConsumerTimeout.Milliseconds()
	asked := s.DeliveryLimit
	s.DeliveryLimit = b.ApsaraMQ.MaxRedeliveries
	if _, set := q.Arguments.Get("x-delivery-limit"); set && asked >= 0 {
		s.DeliveryLimit = min(s.DeliveryLimit, asked)
	}
}

// headerDelay is the header by which a publisher delays a message, in milliseconds (DL-22.12).
const headerDelay = "delay"

// delay is for how many milliseconds the message is to be kept back: what its header says, unless that is no number or
// longer than is allowed, and then the message is not delayed at all.
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

// apsaraIn returns the settings of a virtual host of ApsaraMQ's profile, nil for others.
func (b *Broker) apsaraIn(vhost message.VHost) *ApsaraMQ {
	b.topo.RLock()
	defer b.topo.RUnlock()
	if v, ok := b.state.VHost(vhost); ok {
		return b.apsaraOf(v)
	}
	return nil
}

// apsaraOf is apsaraIn of a virtual host that was found. REQUIRES: topo is held.
func (b *Broker) apsaraOf(v *topology.VHost) *ApsaraMQ {
	if v.Profile() == deadletter.ApsaraMQ {
		return &b.ApsaraMQ
	}
	return nil
}

// Apsara returns the settings of the virtual host if its profile is ApsaraMQ's, else nil. It was asked for its profile
// once, when the connection was made.
func (c *Connection) Apsara() *ApsaraMQ { return c.apsara }

// MaxMessageSize is how many bytes a message's body may have in the virtual host (BR-4.9, DL-22.14).
func (c *Connection) MaxMessageSize() int {
	if c.apsara != nil {
		return c.apsara.MaxMessageSize
	}
	return c.b.MaxMessageSize
}

// TooLarge is the refusal of a message whose body is larger than that.
func (c *Connection) TooLarge(size uint64) error {
	return &topology.Error{
		Kind: topology.PreconditionFailed, Fault: topology.TooLarge,
		Text: fmt.Sprintf("message size %d is larger than configured max size %d", size, c.MaxMessageSize()),
	}
}
