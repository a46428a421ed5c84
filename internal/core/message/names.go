// Package message is the vocabulary of the broker: the names of things and the
// form a message has once it is inside. It holds no behaviour of exchanges or
// queues, does no I/O and owns no state.
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

// Ref is the handle of bytes kept by the store of message bytes: a message
// record or a death history. 0 is none. Who holds a Ref holds one reference. With
// the top bit set it names a record by its place on disk, see Location.
type Ref uint64

// MaxName is how many bytes a name or a key has at most: on the wire it is a short string (AMQP 0-9-1, 4.2.5.3),
// and records keep its length in a byte.
const MaxName = 255

// CheckName says what is wrong with a name or a key, nil if nothing is: it is UTF-8 and has at most MaxName bytes.
// Whatever takes one from outside checks it, so that all that keep and send it need not. what says what it names.
func CheckName[T ~string](what string, name T) error {
	if len(name) > MaxName {
		return fmt.Errorf("%s should be at most %d bytes, actually was %d", what, MaxName, len(name))
	}
	if !utf8.ValidString(string(name)) {
		return fmt.Errorf("%s should be UTF-8, actually was %q", what, name)
	}
	return nil
}
