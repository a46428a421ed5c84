package topology

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// An exchange that delays messages has a queue of its own, in which they wait (Exchange.Waiting). It is a classic queue
// with an incarnation like any other, so that journal, checkpoints, memory and repair know nothing new. It is in no list of
// queues, and only two things lead to it: the exchange, for a message that asks to wait, and the end of the exchange.

// wait gives the exchange its queue.
func (x *Exchange) wait(incarnation uint64) {
	name := string(x.Name)
	x.Waiting = &Queue{
		VHost: x.VHost, Name: message.QueueName("exchange " + name), Type: Classic, Durable: x.Durable, Incarnation: incarnation,
		Delays: x,
		// What has waited goes back to the exchange, and stays as long as a queue that it is for refuses it.
		Effective: &Settings{DeadLetterExchange: &name, Strategy: AtLeastOnce, ConfiguredStrategy: AtLeastOnce, Overflow: queue.RejectPublish},
		in:        newBindings(atDestination),
	}
}

// EachWaiting calls f for the queue of each exchange that delays messages, by the names of the exchanges.
func (v *VHost) EachWaiting(f func(*Queue)) {
	for _, x := range v.Exchanges() {
		if x.Waiting != nil {
			f(x.Waiting)
		}
	}
}

// TakeEnded returns the queues of exchanges that were deleted since the last call, which the broker then ends.
func (s *State) TakeEnded() []*Queue {
	ended := s.ended
	s.ended = nil
	return ended
}
