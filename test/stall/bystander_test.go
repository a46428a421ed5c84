package stall

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bystander publishes to a queue of its own every millisecond and notes how long
// each message takes to come back.
type bystander struct {
	conn  *amqp.Connection
	stopc chan struct{}
	done  chan struct{}

	latencies []time.Duration // once done is closed
	err       error
}

// watch starts a bystander.
func watch(t *testing.T) *bystander {
	t.Helper()
	b := &bystander{conn: dial(t), stopc: make(chan struct{}), done: make(chan struct{})}
	ch, err := b.conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends when stopc is closed or the server is gone
		defer close(b.done)
		for {
			select {
			case <-b.stopc:
				return
			case <-time.After(time.Millisecond):
			}
			began := time.Now()
			if b.err = ch.Publish("", q.Name, false, false, amqp.Publishing{Body: binary.BigEndian.AppendUint64(nil, uint64(began.UnixNano()))}); b.err != nil {
				return
			}
			if _, ok := <-deliveries; !ok {
				b.err = amqp.ErrClosed
				return
			}
			b.latencies = append(b.latencies, time.Since(began))
		}
	}()
	return b
}

// stop ends the bystander and returns what it saw.
func (b *bystander) stop(t *testing.T) seen {
	t.Helper()
	close(b.stopc)
	<-b.done
	_ = b.conn.Close()
	if b.err != nil {
		t.Fatalf("the bystander: %v", b.err)
	}
	slices.Sort(b.latencies)
	n := len(b.latencies)
	if n == 0 {
		return seen{}
	}
	at := func(share float64) time.Duration { return b.latencies[min(n-1, int(share*float64(n)))] }
	return seen{n, at(0.5), at(0.99), at(0.999), b.latencies[n-1]}
}

// seen is the latency from a publish to its delivery.
type seen struct {
	messages             int
	half, p99, p999, max time.Duration
}

func (s seen) String() string {
	round := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	return fmt.Sprintf("%7d messages  p50 %9s  p99 %9s  p99.9 %9s  max %9s", s.messages, round(s.half), round(s.p99), round(s.p999), round(s.max))
}
