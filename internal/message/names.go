// Package message is the vocabulary of the broker: the names of things and the
// form a message has once it is inside. It holds no behaviour of exchanges or
// queues, does no I/O and owns no state.
package message

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
