package topology

import (
	"bytes"
	"fmt"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// checkSame compares one property of a declaration with the existing object (BR-5.7, BR-7.4).
func checkSame[T comparable](property string, r Resource, current, received T) error {
	if current == received {
		return nil
	}
	is, was := fmt.Sprint(received), fmt.Sprint(current)
	return inequivalent(r, Difference{property, was, is}, "'"+is+"'", "'"+was+"'")
}

// inequivalent is the refusal of a declaration that differs from the existing object.
func inequivalent(r Resource, d Difference, received, current string) error {
	return &Error{
		Kind: PreconditionFailed, Fault: Differs, Resource: r, Differences: []Difference{d},
		Text: fmt.Sprintf("inequivalent arg '%s' for %s: received %s but current is %s", d.Property, r, received, current),
	}
}

// firstDifference returns the first refusal, which then lists the differences of all.
func firstDifference(refusals ...error) error {
	var first *Error
	for _, err := range refusals {
		refused, ok := err.(*Error)
		switch {
		case !ok:
		case first == nil:
			first = refused
		default:
			first.Differences = append(first.Differences, refused.Differences...)
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// checkSameArguments compares the listed arguments, in their order, and stops at the first that differs (DL-3.9).
func checkSameArguments(keys []string, r Resource, current, received amqp091.Table) error {
	for _, key := range keys {
		old, hadOld := current.Get(key)
		now, hasNow := received.Get(key)
		if hadOld == hasNow && (!hadOld || sameArgument(old, now)) {
			continue
		}
		was, is := printArgument(old), printArgument(now)
		if !hadOld {
			was, is = "none", printTypedArgument(now)
		} else if !hasNow {
			was, is = printTypedArgument(old), "none"
		}
		return inequivalent(r, Difference{key, was, is}, is, was)
	}
	return nil
}

// sameArgument compares by value: integers across widths, everything else within its type.
func sameArgument(a, b any) bool {
	if i, ok := amqp091.Int64(a); ok {
		j, ok := amqp091.Int64(b)
		return ok && i == j
	}
	if amqp091.TypeName(a) != amqp091.TypeName(b) {
		return false
	}
	return bytes.Equal(amqp091.AppendValue(nil, a), amqp091.AppendValue(nil, b))
}

func printArgument(v any) string {
	if s, ok := v.(string); ok {
		return "'" + s + "'"
	}
	return "'" + erlterm.Format(v) + "'"
}

func printTypedArgument(v any) string {
	return fmt.Sprintf("the value %s of type '%s'", printArgument(v), amqp091.TypeName(v))
}
