package main

import (
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bystander publishes to a queue of its own about every two milliseconds and notes how long each message takes to come back.
type bystander struct {
	conn   *amqp.Connection
	resets chan chan []time.Duration
	stopc  chan chan []time.Duration
}

func watch(addr string) (*bystander, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + addr)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, err
	}
	deliveries, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	if err != nil {
		return nil, err
	}
	b := &bystander{conn, make(chan chan []time.Duration), make(chan chan []time.Duration)}
	go b.run(ch, q.Name, deliveries) // ends with stop
	return b, nil
}

func (b *bystander) run(ch *amqp.Channel, queue string, deliveries <-chan amqp.Delivery) {
	var all []time.Duration
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case to := <-b.resets:
			slices.Sort(all)
			to <- all
			all = nil
		case to := <-b.stopc:
			_ = b.conn.Close()
			slices.Sort(all)
			to <- all
			return
		case <-tick.C:
			began := time.Now()
			if ch.Publish("", queue, false, false, amqp.Publishing{Body: []byte("here")}) == nil {
				<-deliveries
				all = append(all, time.Since(began))
			}
		}
	}
}

// reset returns what was measured, sorted, and begins anew.
func (b *bystander) reset() []time.Duration {
	to := make(chan []time.Duration)
	b.resets <- to
	return <-to
}

// stop is reset, and the end.
func (b *bystander) stop() []time.Duration {
	to := make(chan []time.Duration)
	b.stopc <- to
	return <-to
}
