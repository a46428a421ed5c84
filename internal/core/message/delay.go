package message

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"bartleby.mq/internal/wire/amqp091"
)

// DelayHeader is the header by which a message asks to wait, in milliseconds, in an exchange that delays messages
// (routing.Delayed). One that has waited is delivered with minus that.
const DelayHeader = "x-delay"

// Delay is how long a message with these headers asks to wait, in milliseconds; 0 if it does not ask. What is longer
// than an int64 holds is the longest that it holds. A header that is neither a number nor a text asks for nothing; a text
// that is no whole number is an error.
func Delay(headers []byte) (ms int64, err error) {
	kind, content, ok := amqp091.HeaderField(headers, DelayHeader)
	if !ok {
		return 0, nil
	}
	value, err := amqp091.DecodeValue(kind, content)
	if err != nil {
		return 0, fmt.Errorf("invalid message: header %s is malformed", DelayHeader)
	}
	if n, ok := amqp091.Int64(value); ok {
		return max(n, 0), nil
	}
	switch v := value.(type) {
	case float32:
		return wholeDelay(float64(v)), nil
	case float64:
		return wholeDelay(v), nil
	case string:
		return parseDelay(v)
	case []byte:
		return parseDelay(string(v))
	}
	return 0, nil
}

func wholeDelay(f float64) int64 {
	switch {
	case !(f > 0): // also what is not a number
		return 0
	case f >= math.MaxInt64: // which is 2^63 as a float64
		return math.MaxInt64
	}
	return int64(f)
}

func parseDelay(text string) (ms int64, err error) {
	ms, err = strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range it is the nearest that there is
		return 0, fmt.Errorf("invalid message: header %s is '%.64s', and not a number of milliseconds", DelayHeader, text)
	}
	return max(ms, 0), nil
}
