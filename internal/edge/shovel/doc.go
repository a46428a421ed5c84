// Package shovel runs dynamic shovels: messages are taken from a queue or an
// exchange and published to another, on this node or elsewhere, as parameters of
// the component "shovel" say. It is how RabbitMQ's tools move messages.
//
// Shovels owns the workers, one goroutine for each shovel, which ends with Stop or
// with its parameter. It owns no messages: with the acknowledgement mode on-confirm,
// the default, a message leaves its source after its target has confirmed it, so a
// crash between the two leaves it in both. Only AMQP 0-9-1 is spoken.
package shovel
