package convert

import (
	"errors"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/internal/wire/erlterm"
)

// ErrNoBody is the refusal of a message without a body (3.2), in RabbitMQ's words.
var ErrNoBody = errors.New("missing_amqp_message_body")

// A ReservedKeyError is the refusal of a key of message-annotations or delivery-annotations that does not begin with "x-": all
// others are reserved (3.2.10).
type ReservedKeyError struct{ Key string } // as RabbitMQ prints it

// Error is what RabbitMQ prints behind "failed to parse message: ".
func (e *ReservedKeyError) Error() string { return "{reserved_annotation_key," + e.Key + "}" }

// A CCError is the refusal of an annotation x-cc that is no list of strings.
type CCError struct{ Value string } // as RabbitMQ prints it

// Error is RabbitMQ's description.
func (e *CCError) Error() string { return "bad value for 'x-cc' message-annotation: " + e.Value }

// maxPrinted is how long a value may be that is printed, in bytes as encoded. Of a longer one only its type is.
const maxPrinted = 512

// printed is a value as RabbitMQ prints it in errors.
func printed(v amqp10.Value) string {
	if v.Size() > maxPrinted {
		return erlterm.Format(erlterm.Tuple{erlterm.Atom(typeName(v))})
	}
	return erlterm.Format(term(v))
}

// PrintedPair is an entry of a map as RabbitMQ prints it in errors behind a text of so many characters.
func PrintedPair(column int, key, value amqp10.Value) string {
	if key.Size()+value.Size() > maxPrinted {
		return "{" + printed(key) + "," + erlterm.Format(erlterm.Tuple{erlterm.Atom(typeName(value))}) + "}"
	}
	return erlterm.Tagged(column, erlterm.Format(term(key)), erlterm.Format(term(value)))
}

// typeName is RabbitMQ's name of a type: it has another one for strings.
func typeName(v amqp10.Value) string {
	if v.Type() == amqp10.TypeString {
		return "utf8"
	}
	return v.Type().String()
}

// term is a value as an Erlang term. Types that nobody would use there are their names.
func term(v amqp10.Value) any {
	name := erlterm.Atom(typeName(v))
	switch v.Type() {
	case amqp10.TypeNull:
		return erlterm.Atom("null")
	case amqp10.TypeBoolean:
		b, _ := v.Bool()
		return b
	case amqp10.TypeString:
		s, _ := v.Text()
		return erlterm.Tuple{name, s}
	case amqp10.TypeSymbol:
		s, _ := v.Symbol()
		return erlterm.Tuple{name, s}
	case amqp10.TypeBinary:
		s, _ := v.Binary()
		return erlterm.Tuple{name, s}
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		return erlterm.Tuple{name, ms}
	case amqp10.TypeList, amqp10.TypeArray:
		values, element := []any{}, erlterm.Atom("null")
		items := v.Items()
		for item, ok := items.Next(); ok; item, ok = items.Next() {
			values, element = append(values, term(item)), erlterm.Atom(typeName(item))
		}
		if v.Type() == amqp10.TypeArray {
			return erlterm.Tuple{name, element, values}
		}
		return erlterm.Tuple{name, values}
	case amqp10.TypeMap:
		values := []any{}
		items := v.Items()
		for key, ok := items.Next(); ok; key, ok = items.Next() {
			value, _ := items.Next()
			values = append(values, erlterm.Tuple{term(key), term(value)})
		}
		return erlterm.Tuple{name, values}
	}
	if n, ok := v.Uint64(); ok {
		return erlterm.Tuple{name, n}
	}
	if n, ok := v.Int64(); ok {
		return erlterm.Tuple{name, n}
	}
	return erlterm.Tuple{name}
}
