// Package bystander is a client that has nothing to do with what is measured beside it, and must not notice it: it publishes to a
// queue of its own about every millisecond, and says how long each message took to come back.
package bystander

import (
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Bystander is such a client. One goroutine at a time may use its methods.
type Bystander struct {
	conn   *amqp.Connection
	resetc chan chan seen
	stopc  chan struct{}
	done   chan seen
}

type seen struct {
	latencies []time.Duration
	err       error
}

// Latencies are what it saw, sorted; none if it had no time.
type Latencies []time.Duration

// Watch starts one at the address of a node, HOST:PORT, as guest. The caller calls Stop.
func Watch(addr string) (*Bystander, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + addr)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	deliveries, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	b := &Bystander{conn, make(chan chan seen), make(chan struct{}), make(chan seen, 1)}
	go b.run(ch, q.Name, deliveries) // ends with Stop, or with the connection
	return b, nil
}

func (b *Bystander) run(ch *amqp.Channel, queue string, deliveries <-chan amqp.Delivery) {
	var s seen
	defer func() { b.done <- s }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case to := <-b.resetc:
			to <- s
			s = seen{}
			continue
		case <-b.stopc:
			return
		case <-tick.C:
		}
		began := time.Now()
		if s.err = ch.Publish("", queue, false, false, amqp.Publishing{Body: []byte("here")}); s.err != nil {
			return
		}
		if _, ok := <-deliveries; !ok {
			s.err = amqp.ErrClosed
			return
		}
		s.latencies = append(s.latencies, time.Since(began))
	}
}

// Reset returns what it saw, and begins anew.
func (b *Bystander) Reset() (Latencies, error) {
	to := make(chan seen)
	select {
	case b.resetc <- to:
		return (<-to).sorted()
	case s := <-b.done:
		b.done <- s
		return s.sorted()
	}
}

// Stop ends it and returns what it saw since it began, or since the last Reset. An error means that its connection has ended.
func (b *Bystander) Stop() (Latencies, error) {
	close(b.stopc)
	s := <-b.done
	_ = b.conn.Close()
	return s.sorted()
}

func (s seen) sorted() (Latencies, error) {
	if s.err != nil {
		return nil, fmt.Errorf("the bystander: %w", s.err)
	}
	slices.Sort(s.latencies)
	return s.latencies, nil
}

// At is the latency that this share of the messages, from 0 to 1, did not exceed. 0 if there are none.
func (l Latencies) At(share float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(len(l)-1, int(share*float64(len(l))))]
}

func (l Latencies) String() string {
	round := func(share float64) string { return l.At(share).Round(10 * time.Microsecond).String() }
	return fmt.Sprintf("%7d messages  p50 %9s  p99 %9s  p99.9 %9s  max %9s", len(l), round(0.5), round(0.99), round(0.999), round(1))
}
