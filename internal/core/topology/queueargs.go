package topology

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// maxTTL is the longest x-message-ttl and x-expires, ten years in ms (DL-3.4).
const maxTTL = 315360000000

// argumentCheck checks one argument's value and returns the reason for a refusal, or "".
type argumentCheck func(value any, all amqp091.Table) (reason string)

// argumentChecks are made in this order, whatever the type of the queue (DL-3.4, BR-7.13). x-delivery-limit and
// x-delayed-retry-type, -min and -max are not checked (DL-3.6).
var argumentChecks = []struct {
	arg   string
	check argumentCheck
}{
	{"x-expires", checkExpires},
	{"x-message-ttl", checkMessageTTL},
	{"x-dead-letter-routing-key", checkDeadLetterKey},
	{"x-dead-letter-strategy", oneOf("invalid_dlx_strategy", "at-most-once", "at-least-once")},
	{"x-max-length", checkNonNegative},
	{"x-max-length-bytes", checkNonNegative},
	{"x-max-in-memory-length", checkNonNegative},
	{"x-max-in-memory-bytes", checkNonNegative},
	{"x-max-priority", checkMaxPriority},
	{"x-overflow", oneOf("invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx")},
	{"x-queue-version", checkQueueVersion},
	{"x-single-active-consumer", checkBool},
	{"x-quorum-initial-group-size", checkPositive},
	{"x-consumer-timeout", checkNonNegative},
	{"x-consumer-disconnected-timeout", checkNonNegative},
	{"x-max-age", checkMaxAge},
	{"x-stream-max-segment-size-bytes", checkNonNegative},
	{"x-initial-cluster-size", checkPositive},
	{"x-queue-leader-locator", checkLocator},
	{"x-queue-master-locator", checkLocator},
}

// retryCurveChecks are the checks of Bartleby's own arguments; in strict mode these are unknown and ignored.
var retryCurveChecks = []struct {
	arg   string
	check argumentCheck
}{
	{"x-delayed-retry-multiplier", numberBetween(1, math.MaxFloat64, "a number of at least 1")},
	{"x-delayed-retry-jitter", numberBetween(0, 1, "a number from 0 to 1")},
}

// checkArguments makes the value checks, then looks for arguments of other types, whose values do not matter.
func (d dialect) checkArguments(t QueueType, args amqp091.Table, r Resource) error {
	for _, c := range argumentChecks {
		if v, ok := args.Get(c.arg); ok && !d.foreign(t, c.arg) {
			if reason := c.check(v, args); reason != "" {
				return invalidArg(c.arg, r, reason)
			}
		}
	}
	if v, ok := args.Get("x-stream-filter-size-bytes"); ok {
		if n, isInt := amqp091.Int64(v); !isInt || n < 16 || n > 255 {
			return Refuse(PreconditionFailed, "Invalid value for x-stream-filter-size-bytes")
		}
	}
	if !d.strict {
		for _, c := range retryCurveChecks {
			if v, ok := args.Get(c.arg); ok {
				if reason := c.check(v, args); reason != "" {
					return invalidArg(c.arg, r, reason)
				}
			}
		}
	}
	for _, f := range args {
		if d.foreign(t, f.Key) {
			return Refuse(PreconditionFailed, "invalid arg '%s' for %s of queue type %s", f.Key, r, t.module())
		}
	}
	return nil
}

// unacceptableType is the reason for a value of the wrong type.
func unacceptableType(v any) string { return "{unacceptable_type," + amqp091.TypeName(v) + "}" }

func checkNonNegative(v any, _ amqp091.Table) string {
	n, ok := amqp091.Int64(v)
	switch {
	case !ok:
		return erlterm.String("expected integer, got " + amqp091.TypeName(v))
	case n < 0:
		return fmt.Sprintf("{value_negative,%d}", n)
	}
	return ""
}

func checkPositive(v any, all amqp091.Table) string {
	if reason := checkNonNegative(v, all); reason != "" {
		return reason
	}
	if n, _ := amqp091.Int64(v); n == 0 {
		return "{value_zero,0}"
	}
	return ""
}

func checkMessageTTL(v any, all amqp091.Table) string {
	if reason := checkNonNegative(v, all); reason != "" {
		return reason
	}
	if n, _ := amqp091.Int64(v); n > maxTTL {
		return fmt.Sprintf("{value_too_large,%d}", n)
	}
	return ""
}

func checkExpires(v any, all amqp091.Table) string {
	if reason := checkPositive(v, all); reason != "" {
		return reason
	}
	return checkMessageTTL(v, all)
}

func checkMaxPriority(v any, all amqp091.Table) string {
	if reason := checkNonNegative(v, all); reason != "" {
		return reason
	}
	if n, _ := amqp091.Int64(v); n > math.MaxUint8 {
		return fmt.Sprintf("{max_value_exceeded,%d}", n)
	}
	return ""
}

func checkDeadLetterKey(v any, all amqp091.Table) string {
	key, ok := v.(string)
	if !ok {
		return unacceptableType(v)
	}
	if _, ok := all.Get("x-dead-letter-exchange"); !ok {
		return "routing_key_but_no_dlx_defined"
	}
	return notAName(key)
}

func checkQueueVersion(v any, all amqp091.Table) string {
	if reason := checkNonNegative(v, all); reason != "" {
		return reason
	}
	if n, _ := amqp091.Int64(v); n != 2 {
		return erlterm.String(fmt.Sprintf("unsupported queue version '%d'", n))
	}
	return ""
}

func checkBool(v any, _ amqp091.Table) string {
	if _, ok := v.(bool); !ok {
		return unacceptableType(v)
	}
	return ""
}

// oneOf requires a string out of a list.
func oneOf(reason string, allowed ...string) argumentCheck {
	return func(v any, _ amqp091.Table) string {
		s, ok := v.(string)
		if !ok {
			return unacceptableType(v)
		}
		for _, a := range allowed {
			if s == a {
				return ""
			}
		}
		return reason
	}
}

var checkLocator = oneOf("invalid_queue_locator_arg", locators...)

// locators are accepted and ignored: there is no leader to place (BR-7.14).
var locators = []string{"client-local", "balanced", "random", "least-leaders", "min-masters"}

func checkMaxAge(v any, _ amqp091.Table) string {
	s, ok := v.(string)
	if !ok {
		return unacceptableType(v)
	}
	if !validMaxAge(s) {
		return "invalid_max_age"
	}
	return ""
}

// validMaxAge requires a positive number and a unit, as in "7D".
func validMaxAge(s string) bool {
	if s == "" || !strings.ContainsRune("YMDhms", rune(s[len(s)-1])) {
		return false
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
	return err == nil && n > 0
}

func numberBetween(low, high float64, what string) argumentCheck {
	return func(v any, _ amqp091.Table) string {
		f, ok := number(v)
		if !ok {
			return erlterm.String("expected " + what + ", got " + amqp091.TypeName(v))
		}
		if !(f >= low && f <= high) { // also refuses NaN
			return erlterm.String("expected " + what + ", got " + erlterm.Format(v))
		}
		return ""
	}
}

// number reads any integer or floating point field.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	n, ok := amqp091.Int64(v)
	return float64(n), ok
}
