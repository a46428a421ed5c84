package session091_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// come counts the messages that have come when all that was asked is done.
func (w *wire) come() int {
	w.t.Helper()
	w.methods(1, amqp091.QueueDeclare{Queue: "q", Passive: true})
	return w.before("queue.declare-ok")
}

func (w *wire) publish(n int) {
	w.t.Helper()
	for range n {
		w.send(messageFrames("", "q", false, nil))
	}
}

// BR-9.9: a shared limit is the channel's: it is that of consumers that were started before it, too, and what is
// out then counts. It is not that of consumers that do not acknowledge.
func TestBR_9_9_ASharedLimitIsThatOfConsumersThereAre(t *testing.T) {
	for name, c := range map[string]struct {
		kind   string
		noAck  bool
		limits bool
	}{"classic": {"classic", false, true}, "unacknowledged": {"classic", true, false}, "quorum": {"quorum", false, false}} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, broker.Options{GlobalQos: true}).login(t)
			w.methods(1, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: c.kind}}},
				amqp091.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: c.noAck})
			await[*amqp091.BasicConsumeOk](w)
			w.publish(2)
			for range 2 {
				await[*amqp091.BasicDeliver](w)
			}
			w.methods(1, amqp091.BasicQos{PrefetchCount: 3, Global: true})
			await[*amqp091.BasicQosOk](w)
			w.publish(5)
			if !c.limits {
				for range 5 {
					await[*amqp091.BasicDeliver](w)
				}
				return
			}
			if n := w.come(); n != 1 {
				t.Errorf("%d messages came, want one: two are out, of three", n)
			}
			w.methods(1, amqp091.BasicAck{DeliveryTag: 2, Multiple: true})
			if n := w.come(); n != 2 {
				t.Errorf("%d messages came when two were acknowledged", n)
			}
			w.methods(1, amqp091.BasicQos{Global: true})
			if n := w.come(); n != 2 {
				t.Errorf("%d messages came when there was no limit any more, want the other two", n)
			}
		})
	}
}

// BR-9.9, BR-9.12: what a consumer has left unsettled that was cancelled before there was a limit counts all the same.
func TestBR_9_9_WhatACancelledConsumerHasLeftCounts(t *testing.T) {
	w := serve(t, broker.Options{GlobalQos: true}).login(t)
	w.methods(1, amqp091.QueueDeclare{Queue: "q"}, amqp091.BasicConsume{Queue: "q", ConsumerTag: "c"})
	w.publish(1)
	await[*amqp091.BasicDeliver](w)
	w.methods(1, amqp091.BasicCancel{ConsumerTag: "c"}, amqp091.BasicConsume{Queue: "q", ConsumerTag: "d"}, amqp091.BasicQos{PrefetchCount: 1, Global: true})
	await[*amqp091.BasicQosOk](w)
	w.publish(1)
	if n := w.come(); n != 0 {
		t.Errorf("%d messages came, want none: one is out", n)
	}
	w.methods(1, amqp091.BasicAck{DeliveryTag: 1})
	if n := w.come(); n != 1 {
		t.Errorf("%d messages came when that was acknowledged, want one", n)
	}
}

// BR-9.9: what is settled in the same write before the limit is not counted, and makes room once.
func TestBR_9_9_WhatIsSettledBeforeTheLimitDoesNotCount(t *testing.T) {
	w := serve(t, broker.Options{GlobalQos: true}).login(t)
	w.methods(1, amqp091.QueueDeclare{Queue: "q"}, amqp091.BasicConsume{Queue: "q", ConsumerTag: "c"})
	w.publish(2)
	for range 2 {
		await[*amqp091.BasicDeliver](w)
	}
	b := amqp091.AppendMethod(nil, 1, amqp091.BasicAck{DeliveryTag: 1})
	b = amqp091.AppendMethod(b, 1, amqp091.BasicQos{PrefetchCount: 2, Global: true})
	for range 3 {
		b = append(b, messageFrames("", "q", false, nil)...)
	}
	w.send(b)
	if n := w.come(); n != 1 {
		t.Errorf("%d messages came, want one: one is out, of two", n)
	}
}

// BR-9.9: the room that an acknowledgement makes is that of all queues of the channel. The one that it came from
// does not keep it for itself.
func TestBR_9_9_NoQueueKeepsTheRoomForItself(t *testing.T) {
	const messages = 200
	s := serve(t, broker.Options{GlobalQos: true})
	ch := s.channel(t)
	for _, name := range []string{"a", "b"} {
		must[amqp.Queue](t)(ch.QueueDeclare(name, true, false, false, false, nil))
		for range messages {
			if err := ch.PublishWithContext(context.Background(), "", name, false, false, amqp.Publishing{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := ch.Qos(1, 0, true); err != nil {
		t.Fatal(err)
	}
	a := must[<-chan amqp.Delivery](t)(ch.Consume("a", "a", false, false, false, false, nil))
	b := must[<-chan amqp.Delivery](t)(ch.Consume("b", "b", false, false, false, false, nil))
	came := map[string]int{}
	for range messages {
		var d amqp.Delivery
		select {
		case d = <-a:
		case d = <-b:
		case <-time.After(20 * time.Second):
			t.Fatal("nothing comes")
		}
		came[d.ConsumerTag]++
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	if came["a"] == 0 || came["b"] == 0 {
		t.Errorf("%d messages of a came and %d of b", came["a"], came["b"])
	}
}

// BR-9.9, BR-9.11: what a recover takes back before it was sent makes room for all queues of the channel.
func TestBR_9_9_WhatARecoverTakesBackMakesRoomForOtherQueues(t *testing.T) {
	s := serve(t, broker.Options{GlobalQos: true})
	w := s.login(t)
	w.methods(1, amqp091.QueueDeclare{Queue: "a", Durable: true}, amqp091.QueueDeclare{Queue: "b", Durable: true}, amqp091.BasicQos{PrefetchCount: 1, Global: true},
		amqp091.BasicConsume{Queue: "a", ConsumerTag: "a"}, amqp091.BasicConsume{Queue: "b", ConsumerTag: "b"})
	await[*amqp091.BasicConsumeOk](w)
	await[*amqp091.BasicConsumeOk](w)
	_, letGo := session091.StopSending(s.b.Connections()[0].Client())
	ch := s.channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	must[amqp.Queue](t)(ch.QueueDeclare("done", true, false, false, false, nil))
	done := must[<-chan amqp.Delivery](t)(ch.Consume("done", "", true, false, false, false, nil))
	for _, name := range []string{"a", "b"} {
		c := must[*amqp.DeferredConfirmation](t)(ch.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{}))
		if !c.Wait() {
			t.Fatal("not confirmed")
		}
	}
	w.methods(1, amqp091.BasicCancel{ConsumerTag: "a"}, amqp091.BasicRecover{Requeue: true})
	w.send(messageFrames("", "done", false, nil))
	<-done // the recover was heard
	letGo()
	if d := await[*amqp091.BasicDeliver](w); d.ConsumerTag != "b" {
		t.Errorf("%+v came, want what waits in the other queue", d)
	}
}
