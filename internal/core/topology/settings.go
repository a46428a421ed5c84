package topology

import (
	"math"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
)

// Strategy is the strategy of dead-lettering (DL-13.1).
type Strategy uint8

// The strategies.
const (
	AtMostOnce Strategy = iota
	AtLeastOnce
)

// String returns the strategy as x-dead-letter-strategy names it.
func (s Strategy) String() string { return [...]string{"at-most-once", "at-least-once"}[s] }

// DefaultDeliveryLimit is the limit of a quorum queue that sets none (DL-11.1).
const DefaultDeliveryLimit = 20

// Settings are the result of a queue's arguments, its policy and its operator policy (DL-4.6 to DL-4.8). A nil
// pointer means that the setting is not set. Settings never change once they are computed.
type Settings struct {
	Arguments amqp091.Table // Queue.PresentArguments
	Changed   bool          // they are not those of the declaration

	DeadLetterExchange *string
	// DefaultDeadLetter is the queue that the virtual host's default names for dead letters, "" if the queue has an exchange
	// of its own, or the default does not apply. Then the exchange and the key above lead to it.
	DefaultDeadLetter    message.QueueName
	DeadLetterRoutingKey *string // may be set without an exchange, and then has no effect (DL-4.8)
	// Strategy is AtLeastOnce only if it is in force (DL-13.1); ConfiguredStrategy is the configured one.
	Strategy, ConfiguredStrategy Strategy

	MessageTTL                  *int64 // ms
	Expires                     *int64 // ms without use
	MaxLength                   *int64
	MaxLengthBytes              *int64
	Overflow                    queue.Overflow
	DeliveryLimit               *int64      // nil for classic queues; negative: no limit
	ConsumerTimeout             *int64      // ms
	ConsumerDisconnectedTimeout *int64      // ms
	DelayedRetry                queue.Retry // Min is positive and at most Max, or the type is RetryDisabled
	Breaker                     queue.Breaker
	MaxPriority                 *uint8 // of classic queues
	SingleActiveConsumer        bool
}

// effectiveSettings merges the arguments with the policies.
func effectiveSettings(q *Queue) *Settings {
	policy := q.EffectiveDefinition()
	args := q.PresentArguments()
	s := &Settings{
		Arguments:                   args,
		Changed:                     q.changed != nil,
		DeadLetterExchange:          first(textArgument(args, "x-dead-letter-exchange"), policy.text("dead-letter-exchange")),
		DeadLetterRoutingKey:        first(textArgument(args, "x-dead-letter-routing-key"), policy.text("dead-letter-routing-key")),
		MessageTTL:                  smaller(integerArgument(args, "x-message-ttl"), policy.integer("message-ttl")),
		Expires:                     smaller(integerArgument(args, "x-expires"), policy.integer("expires")),
		MaxLength:                   smaller(integerArgument(args, "x-max-length"), policy.integer("max-length")),
		MaxLengthBytes:              smaller(integerArgument(args, "x-max-length-bytes"), policy.integer("max-length-bytes")),
		ConsumerTimeout:             smaller(integerArgument(args, "x-consumer-timeout"), policy.integer("consumer-timeout")),
		ConsumerDisconnectedTimeout: smaller(integerArgument(args, "x-consumer-disconnected-timeout"), policy.integer("consumer-disconnected-timeout")),
		Overflow:                    effectiveOverflow(q.Type, textArgument(args, "x-overflow"), policy.text("overflow")),
	}
	s.Breaker = effectiveBreaker(q)
	if v, ok := args.Get("x-single-active-consumer"); ok {
		s.SingleActiveConsumer, _ = v.(bool)
	}
	if q.Type == Classic {
		if n := integerArgument(args, "x-max-priority"); n != nil && *n >= 0 && *n <= math.MaxUint8 {
			levels := uint8(*n)
			s.MaxPriority = &levels
		}
	} else {
		s.DeliveryLimit = effectiveDeliveryLimit(integerArgument(args, "x-delivery-limit"), policy.integer("delivery-limit"))
	}
	if q.Type == Quorum || !q.Strict {
		s.DelayedRetry = effectiveDelayedRetry(q, policy)
	}
	s.withProfile(q)
	if s.DeadLetterExchange == nil {
		if s.DefaultDeadLetter = q.defaultTarget(); s.DefaultDeadLetter != "" {
			s.DeadLetterExchange, s.DeadLetterRoutingKey = new(string), new(string(s.DefaultDeadLetter))
		}
	}
	s.setStrategy(q, first(textArgument(args, "x-dead-letter-strategy"), policy.text("dead-letter-strategy")))
	return s
}

// setStrategy sets both strategies. At-least-once needs a quorum queue, a dead-letter exchange and reject-publish
// (DL-13.1).
func (s *Settings) setStrategy(q *Queue, configured *string) {
	if configured == nil || *configured != AtLeastOnce.String() || q.Type == Classic && !q.AtLeastOnce {
		return
	}
	s.ConfiguredStrategy = AtLeastOnce
	if s.DeadLetterExchange != nil && s.Overflow == queue.RejectPublish {
		s.Strategy = AtLeastOnce
	}
}

// effectiveOverflow returns the overflow mode in force. On a classic queue the argument wins, on a quorum queue the
// policy. A quorum queue treats reject-publish-dlx as drop-head (DL-4.6, DL-3.7).
func effectiveOverflow(t QueueType, argument, policy *string) queue.Overflow {
	chosen := first(argument, policy)
	if t == Quorum {
		chosen = first(policy, argument)
	}
	if chosen == nil {
		return queue.DropHead
	}
	switch *chosen {
	case "reject-publish":
		return queue.RejectPublish
	case "reject-publish-dlx":
		if t == Classic {
			return queue.RejectPublishDLX
		}
	}
	return queue.DropHead
}

func effectiveDeliveryLimit(argument, policy *int64) *int64 {
	limit := int64(DefaultDeliveryLimit)
	switch {
	case argument != nil && policy != nil:
		limit = mergeDeliveryLimits(*argument, *policy)
	case argument != nil:
		limit = *argument
	case policy != nil:
		limit = *policy
	}
	return &limit
}

// mergeDeliveryLimits returns the smaller limit. A negative limit means none, so the other one wins (DL-4.6).
func mergeDeliveryLimits(a, b int64) int64 {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// effectiveDelayedRetry returns the delayed retry in force. The policy's type wins, and the smaller minimum and
// maximum. Without a positive minimum, or with an unknown type, there is no delay. Without a maximum, the maximum is
// the minimum (DL-12.2, DL-4.6).
func effectiveDelayedRetry(q *Queue, policy Definition) queue.Retry {
	var r queue.Retry
	if t := first(policy.text("delayed-retry-type"), textArgument(q.PresentArguments(), "x-delayed-retry-type")); t != nil {
		switch *t {
		case "all":
			r.Type = queue.RetryAll
		case "failed":
			r.Type = queue.RetryFailed
		case "returned":
			r.Type = queue.RetryReturned
		}
	}
	least := smaller(integerArgument(q.PresentArguments(), "x-delayed-retry-min"), policy.integer("delayed-retry-min"))
	most := smaller(integerArgument(q.PresentArguments(), "x-delayed-retry-max"), policy.integer("delayed-retry-max"))
	if r.Type == queue.RetryDisabled || least == nil || *least <= 0 {
		return queue.Retry{}
	}
	r.Min, r.Max = *least, *least
	if most != nil {
		r.Max = max(*most, 1)
	}
	if !q.Strict {
		r.Multiplier = numberSetting(q.PresentArguments(), policy, "delayed-retry-multiplier")
		r.Jitter = numberSetting(q.PresentArguments(), policy, "delayed-retry-jitter")
	}
	return r
}

// IneffectiveArguments lists arguments that were accepted without a check and have no effect. The broker warns about
// them (DL-3.6).
func (q *Queue) IneffectiveArguments() []string {
	var names []string
	for _, key := range []string{"x-delivery-limit", "x-delayed-retry-min", "x-delayed-retry-max"} {
		if _, ok := q.Arguments.Get(key); ok && integerArgument(q.Arguments, key) == nil {
			names = append(names, key)
		}
	}
	if v, ok := q.Arguments.Get("x-delayed-retry-type"); ok {
		if t, _ := v.(string); !slices.Contains(retryTypes, t) {
			names = append(names, "x-delayed-retry-type")
		}
	}
	return names
}

// numberSetting reads one of Bartleby's own settings. The argument wins over the policy.
func numberSetting(args amqp091.Table, policy Definition, key string) float64 {
	if v, ok := args.Get("x-" + key); ok {
		f, _ := number(v)
		return f
	}
	f, _ := number(policy[key])
	return f
}

func integerArgument(args amqp091.Table, key string) *int64 {
	if v, ok := args.Get(key); ok {
		if n, ok := amqp091.Int64(v); ok {
			return &n
		}
	}
	return nil
}

func textArgument(args amqp091.Table, key string) *string {
	if v, ok := args.Get(key); ok {
		if s, ok := v.(string); ok {
			return &s
		}
	}
	return nil
}

// first returns the first setting that is set.
func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// smaller returns the smaller of the settings that are set.
func smaller(a, b *int64) *int64 {
	if a == nil || b == nil {
		return first(a, b)
	}
	return new(min(*a, *b))
}
