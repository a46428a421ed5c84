package hostile

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp091"
)

func asError(err error, e **amqp.Error) bool { return errors.As(err, e) }

// Whoever does not read what it asked for is not read either: what waits for it
// is bounded.
func TestAnswersNobodyReads(t *testing.T) {
	start(t)
	body := make([]byte, 100_000)
	big := append(publish(1, "", "nowhere", uint64(len(body)), noProps, true), frame(3, 1, uint32(len(body)), body, 0xCE)...)
	small := append(publish(1, "", "nowhere", 1, noProps, false), frame(3, 1, 1, []byte{0}, 0xCE)...)
	tests := map[string][]byte{
		"returns":  big,
		"confirms": small,
		"declares": amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "hostile-unread", Passive: true}),
		"gets":     amqp091.AppendMethod(nil, 1, amqp091.BasicGet{Queue: "hostile-unread"}),
		"qos":      amqp091.AppendMethod(nil, 1, amqp091.BasicQos{PrefetchCount: 1}),
	}
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("hostile-unread", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := ch.Publish("", "hostile-unread", false, false, amqp.Publishing{Body: make([]byte, mib)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, request := range tests {
		t.Run(name, func(t *testing.T) {
			many := request
			for len(many) < 100_000 {
				many = append(many, request...)
			}
			attack(t, 96*mib, func() func() {
				var all []*raw
				for range 4 {
					c := loginChannel(t)
					c.method(1, amqp091.ConfirmSelect{})
					all = append(all, c)
				}
				var sent atomic.Int64
				var flooding sync.WaitGroup
				for _, c := range all {
					flooding.Go(func() { sent.Add(int64(c.flood(many, time.Second))) })
				}
				flooding.Wait()
				t.Logf("%d MiB sent", sent.Load()/mib)
				return func() {
					for _, c := range all {
						_ = c.Close()
					}
				}
			})
		})
	}
	if _, err := ch.QueueDelete("hostile-unread", false, false, false); err != nil {
		t.Error(err)
	}
}

// Consumers that do not read get a bounded part of a huge backlog.
func TestSlowReaders(t *testing.T) {
	start(t)
	const count, size = 10_000, 10_000
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("hostile-backlog", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, size)
	for range count {
		if err := ch.Publish("", "hostile-backlog", false, false, amqp.Publishing{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	// Passive, so that all is in the queue before the memory is looked at.
	if _, err := ch.QueueDeclarePassive("hostile-backlog", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	// Each of the twenty may have 4 MiB waiting and as much being sent.
	attack(t, 20*8*mib+64*mib, func() func() {
		var all []*raw
		for range 20 {
			c := loginChannel(t)
			c.method(1, amqp091.BasicConsume{Queue: "hostile-backlog"})
			all = append(all, c)
		}
		return func() {
			for _, c := range all {
				_ = c.Close()
			}
		}
	})
	q, err := ch.QueueDeclarePassive("hostile-backlog", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); q.Messages != count; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages are back in the queue", q.Messages, count)
		}
		if q, err = ch.QueueDeclarePassive("hostile-backlog", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ch.QueueDelete("hostile-backlog", false, false, false); err != nil {
		t.Error(err)
	}
}
