package session091_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// BR-9.9: each settlement makes room under a shared limit, also the one that fills a batch of operations.
func TestBR_9_9_TheSettlementThatFillsABatchMakesRoom(t *testing.T) {
	const limit = 512 // the operations of a batch
	s := serve(t, broker.Options{GlobalQos: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ch := s.channel(t)
	must[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, nil))
	for range 2 * limit {
		if err := ch.PublishWithContext(ctx, "", "q", false, false, amqp.Publishing{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Qos(limit, 0, true); err != nil {
		t.Fatal(err)
	}
	deliveries := must[<-chan amqp.Delivery](t)(ch.Consume("q", "c", false, false, false, false, nil))
	var last amqp.Delivery
	for range limit {
		last = <-deliveries
	}
	if err := last.Ack(true); err != nil {
		t.Fatal(err)
	}
	all := make(chan int)
	go func() {
		n := 0
		for range deliveries {
			n++
		}
		all <- n
	}()
	if q := must[amqp.Queue](t)(ch.QueueDeclarePassive("q", true, false, false, false, nil)); q.Messages != 0 {
		t.Errorf("%d messages wait, though there is room for all", q.Messages)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	<-all
}
