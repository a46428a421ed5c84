package session091_test

import (
	"runtime"
	"testing"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/broker"
)

// Whatever a client does with very many unsettled deliveries at once (BR-4.5, BR-9.7), the node needs no room for another list of them.
func TestBR_4_5_WhatIsSettledAtOnceIsNotListed(t *testing.T) {
	const messages, each = 60000, 40
	for name, end := range map[string]func(w *wire){
		"its channel ends": func(w *wire) {
			w.methods(1, amqp091.ChannelClose{})
			await[*amqp091.ChannelCloseOk](w)
		},
		"it acknowledges": func(w *wire) {
			w.methods(1, amqp091.BasicAck{Multiple: true}, amqp091.ChannelFlow{Active: true})
			await[*amqp091.ChannelFlowOk](w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, broker.Options{}).login(t)
			w.methods(1, amqp091.QueueDeclare{Queue: "q"})
			var b []byte
			for range messages {
				b = amqp091.AppendPublish(b, 1, amqp091.Publish{RoutingKey: []byte("q")})
				b = amqp091.AppendContentHeader(b, 1, amqp091.ClassBasic, 0, []byte{0, 0})
			}
			w.send(b)
			w.methods(1, amqp091.BasicConsume{Queue: "q", ConsumerTag: "c"})
			for range messages {
				await[*amqp091.BasicDeliver](w)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			end(w)
			runtime.ReadMemStats(&after)
			if size := after.TotalAlloc - before.TotalAlloc; size > each*messages {
				t.Errorf("the end of %d deliveries took %d bytes for each", messages, size/messages)
			} else {
				t.Logf("%d bytes for each", size/messages)
			}
		})
	}
}
