package routing

import (
	"errors"

	"bartleby.mq/internal/wire/amqp091"
)

// Delayed is the type of an exchange that keeps a message for as long as the message asks, and then routes it by
// another type. How the message is kept is not this package's: see topology's Exchange.Waiting.
const Delayed Kind = "x-delayed-message"

// delayedType is the argument that names the other type.
const delayedType = "x-delayed-type"

// Acts is the type by which an exchange of a type and arguments routes: for Delayed the type that x-delayed-type names,
// for all others the type itself. An error is the plugin's text.
func Acts(kind Kind, args amqp091.Table) (Kind, error) {
	if kind != Delayed {
		return kind, nil
	}
	value, _ := args.Get(delayedType)
	var inner Kind
	switch v := value.(type) {
	case string:
		inner = Kind(v)
	case []byte:
		inner = Kind(v)
	default:
		return "", errors.New("Invalid argument, 'x-delayed-type' must be an existing exchange type") //nolint:staticcheck // the plugin's text
	}
	if inner == Delayed {
		return "", errors.New("Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'") //nolint:staticcheck // the plugin's text
	}
	return inner, nil
}
