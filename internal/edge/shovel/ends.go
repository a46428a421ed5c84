package shovel

import (
	"context"

	"bartleby.mq/internal/wire/amqp091"
)

// carried is a message between the two ends.
type carried struct {
	exchange, key string
	properties    amqp091.PropertyList
	body          []byte

	handle any // the source's
	took   int // bytes of what a source elsewhere has sent; what is added here does not count
}

// source is where messages come from. Its methods are the worker's alone.
type source interface {
	// length is how many messages were ready when the source was opened.
	length() int
	// next waits for messages and returns at most limit of them; once ctx has ended none,
	// and the error of ctx.
	next(ctx context.Context, limit int) ([]carried, error)
	ack(list []carried) error
	// giveBack puts messages back that the target refused.
	giveBack(list []carried) error
	close()
}

// target is where messages go. Its methods are the worker's alone.
type target interface {
	// publish publishes the messages; if confirm is set it waits until the target has
	// answered for each, and says which it refused. If it fails it says so of those that the
	// target has had before, as far as it knows.
	publish(ctx context.Context, list []carried, confirm bool) (refused []bool, err error)
	// blocked says whether the target takes nothing for now, for an alarm.
	blocked() bool
	close()
}
