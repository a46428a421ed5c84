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
	took   int // bytes that a remote source has sent, without additions here
}

// source is the source of messages. Only the worker calls its methods.
type source interface {
	// length is how many messages were ready when the source was opened.
	length() int
	// next waits for messages and returns at most limit of them; after the end of ctx it
	// returns the error of ctx.
	next(ctx context.Context, limit int) ([]carried, error)
	ack(list []carried) error
	// giveBack is called with messages that the target refused. next returns them again.
	giveBack(list []carried) error
	close()
}

// target is the destination of messages. Only the worker calls its methods.
type target interface {
	// publish publishes the messages. If confirm is set, it waits for an answer for each and
	// returns those that the target refused. If it fails, it does so for the messages that
	// the target has already answered.
	publish(ctx context.Context, list []carried, confirm bool) (refused []bool, err error)
	// blocked says whether the target accepts nothing at the moment because of an alarm.
	blocked() bool
	close()
}
