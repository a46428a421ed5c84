package session091_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What a message took on its way in is not kept for each channel that ever had one: a client may
// have two thousand of them, and an alarm for memory would last as long as it stays.
func TestIdleChannelsKeepNoBuffers(t *testing.T) {
	s := serve(t, broker.Options{})
	c := must[*amqp.Connection](t)(amqp.Dial("amqp://guest:guest@" + s.addr))
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const channels = 100
	var list []*amqp.Channel
	for range channels {
		list = append(list, must[*amqp.Channel](t)(c.Channel()))
	}
	before := heap()
	message := amqp.Publishing{Body: make([]byte, 700_000), Headers: amqp.Table{"h": string(make([]byte, 100_000))}}
	for _, ch := range list {
		if err := ch.PublishWithContext(ctx, "", "nowhere", false, false, message); err != nil {
			t.Fatal(err)
		}
		must[amqp.Queue](t)(ch.QueueDeclare("", false, false, true, false, nil)) // it has come
	}
	if after := heap(); after > before+channels*100_000 {
		t.Errorf("%d idle channels keep %d bytes", channels, after-before)
	}
}

// Nor does a connection keep the last body that it has handed on, which may be as large as a message.
func TestIdleConnectionsKeepNoLargeBody(t *testing.T) {
	const size = 12 << 20
	s := serve(t, broker.Options{})
	nc := opened(t, s, 1)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	declare := amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Exclusive: true})
	if _, err := nc.Write(declare); err != nil {
		t.Fatal(err)
	}
	until(t, nc)
	before := heap()
	go func() { _, _ = nc.Write(append(half(1, size, make([]byte, size)), declare...)) }()
	until(t, nc)
	if after := heap(); after > before+size/2 {
		t.Errorf("an idle connection keeps %d bytes", after-before)
	}
}
