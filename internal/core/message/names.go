// Package message is the vocabulary of the broker: types for names, and the record, the
// form of a message inside the broker. All layers above the disk use it. It has no
// behaviour of exchanges or queues, does no I/O and owns no state.
package message

import (
	"fmt"
	"unicode/utf8"
)

// Names are types of their own so that swapped arguments do not compile.
type (
	// VHost is the name of a virtual host.
	VHost string
	// QueueName is the name of a queue within its virtual host.
	QueueName string
	// ExchangeName is the name of an exchange within its virtual host; "" is the default exchange.
	ExchangeName string
	// RoutingKey is a routing or binding key, at most 255 bytes (AMQP 0-9-1, 4.2.5.3).
	RoutingKey string
	// ConsumerTag names a consumer within its channel.
	ConsumerTag string
	// DeliveryTag numbers the deliveries of a channel from 1.
	DeliveryTag uint64
)

// Ref is the handle of bytes in the store of message bytes: a message record or a death
// history. 0 is none. The holder of a Ref holds one reference. If the top bit is set, the
// Ref names a record by its place on disk; see Location.
type Ref uint64

// MaxName is the maximal length of a name or a key, in bytes: on the wire it is a short string (AMQP 0-9-1, 4.2.5.3),
// and records keep its length in a byte.
const MaxName = 255

// CutName cuts a text that is no client's to MaxName bytes, at a rune.
func CutName(s string) string {
	if len(s) <= MaxName {
		return s
	}
	n := MaxName
	for n > MaxName-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// CheckName returns an error unless a name or a key is UTF-8 and has at most MaxName bytes. Code that takes a name from
// outside checks it, so that code that stores and sends it need not. what is the kind of name, for the error.
func CheckName[T ~string](what string, name T) error {
	if len(name) > MaxName {
		return fmt.Errorf("%s should be at most %d bytes, actually was %d", what, MaxName, len(name))
	}
	if !utf8.ValidString(string(name)) {
		return fmt.Errorf("%s should be UTF-8, actually was %q", what, name)
	}
	return nil
}
