package message

// VHost is the name of a virtual host.
type VHost string

// QueueName is the name of a queue within its virtual host.
type QueueName string

// ExchangeName is the name of an exchange within its virtual host; "" is the default exchange.
type ExchangeName string

// RoutingKey is what a publisher says about a message for exchanges to match; at most 255 bytes.
type RoutingKey string

// ConsumerTag names a consumer within its channel.
type ConsumerTag string

// DeliveryTag numbers the deliveries of one channel, from 1 (BR-9.6).
type DeliveryTag uint64
