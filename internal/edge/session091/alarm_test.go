package session091_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// Under both alarms publishers are blocked, and everything else goes on: messages go
// round a cycle of dead-letter exchanges whose queues are bounded, one of them
// at-least-once into a full one, and can be drained. When the alarms clear the
// publisher goes on where it was (BR-13.1, BR-13.2, BR-13.3).
func TestDeathsGoOnUnderAlarms(t *testing.T) {
	s := serve(t, broker.Options{RetryHeld: 10 * time.Millisecond})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ch := s.channel(t)
	must[amqp.Queue](t)(ch.QueueDeclare("work", true, false, false, false, amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait", "x-max-length": 10, "x-overflow": "reject-publish",
	}))
	must[amqp.Queue](t)(ch.QueueDeclare("wait", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 5,
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-max-length": 1000,
	}))
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	const messages = 60
	for range messages {
		c := must[*amqp.DeferredConfirmation](t)(ch.PublishWithDeferredConfirmWithContext(ctx, "", "wait", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent}))
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			t.Fatal("not confirmed", err)
		}
	}

	pc := must[*amqp.Connection](t)(amqp.Dial("amqp://guest:guest@" + s.addr))
	defer func() { _ = pc.Close() }()
	blocked := pc.NotifyBlocked(make(chan amqp.Blocking, 4))
	publisher := must[*amqp.Channel](t)(pc.Channel())
	if err := publisher.Confirm(false); err != nil {
		t.Fatal(err)
	}
	s.b.SetAlarm(broker.Memory, true)
	s.b.SetAlarm(broker.Disk, true)
	late := must[*amqp.DeferredConfirmation](t)(publisher.PublishWithDeferredConfirmWithContext(ctx, "", "wait", false, false, amqp.Publishing{MessageId: "late", DeliveryMode: amqp.Persistent}))
	if b := <-blocked; !b.Active || b.Reason != "low on memory & disk" {
		t.Errorf("blocked: %+v", b)
	}

	consumer := s.channel(t)
	if err := consumer.Qos(5, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries := must[<-chan amqp.Delivery](t)(consumer.Consume("work", "", false, false, false, false, nil))
	next := func() *amqp.Delivery {
		select {
		case d := <-deliveries:
			return &d
		case <-ctx.Done():
			t.Fatal("the cycle stands still")
			return nil
		}
	}
	for range 5 * messages {
		if err := next().Reject(false); err != nil {
			t.Fatal(err)
		}
	}
	for range messages {
		d := next()
		if d.MessageId == "late" {
			t.Error("a message published under the alarms was taken")
		}
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-late.Done():
		t.Error("a publish under the alarms was confirmed")
	default:
	}

	s.b.SetAlarm(broker.Memory, false)
	if late.Acked() {
		t.Error("one alarm of two has cleared, and the publish is confirmed")
	}
	s.b.SetAlarm(broker.Disk, false)
	if b := <-blocked; b.Active {
		t.Errorf("unblocked: %+v", b)
	}
	if ok, err := late.WaitContext(ctx); err != nil || !ok {
		t.Errorf("the blocked publish: %v, %v", ok, err)
	}
	if d := next(); d.MessageId != "late" {
		t.Errorf("got message %q, want the blocked one", d.MessageId)
	}
}
