package session091_test

import (
	"testing"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// A message whose key is a requester's and whose CC names a queue goes to both, as it does where key and CC are the other way round.
func TestAReplyGoesToTheQueuesOfItsCCToo(t *testing.T) {
	s := serve(t, broker.Options{})
	first := s.requester(t)
	w := s.login(t)
	w.methods(1, amqp091.QueueDeclare{Queue: "q"}, amqp091.ConfirmSelect{})
	await[*amqp091.QueueDeclareOk](w)
	await[*amqp091.ConfirmSelectOk](w)
	headers := amqp091.Table{{Key: "CC", Value: amqp091.Array{"q"}}}
	w.send(messageFrames("", first, true, headers))
	await[*amqp091.BasicAck](w)
	w.methods(1, amqp091.QueueDeclare{Queue: "q", Passive: true})
	if n := await[*amqp091.QueueDeclareOk](w).MessageCount; n != 1 {
		t.Errorf("key a requester's, CC a queue: confirmed, and %d messages are in the queue, want 1", n)
	}
	w.methods(1, amqp091.QueuePurge{Queue: "q"})
	await[*amqp091.QueuePurgeOk](w)
	headers = amqp091.Table{{Key: "CC", Value: amqp091.Array{first}}}
	w.send(messageFrames("", "q", true, headers))
	await[*amqp091.BasicAck](w)
	w.methods(1, amqp091.QueueDeclare{Queue: "q", Passive: true})
	if n := await[*amqp091.QueueDeclareOk](w).MessageCount; n != 1 {
		t.Errorf("the other way round: %d", n)
	}
}

// The same of two requesters, one by the key and one by CC, and in a transaction.
func TestAReplyGoesToTheRequestersOfItsCCToo(t *testing.T) {
	s := serve(t, broker.Options{})
	first, second := s.requester(t), s.requester(t)
	var waiting []func() int
	for _, c := range s.b.Connections() {
		n, release := session091.StopSending(c.Client())
		defer release()
		waiting = append(waiting, n)
	}
	w := s.login(t)
	w.methods(1, amqp091.TxSelect{})
	await[*amqp091.TxSelectOk](w)
	w.send(messageFrames("", first, true, amqp091.Table{{Key: "CC", Value: amqp091.Array{second}}}))
	w.methods(1, amqp091.TxCommit{})
	await[*amqp091.TxCommitOk](w)
	if a, b := waiting[0](), waiting[1](); a+b != 2 {
		t.Errorf("committed, and the two requesters have %d and %d replies", a, b)
	}
}
