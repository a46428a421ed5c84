package session091_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
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

// BR-7.6: the end of a client with many consumers of an auto-delete queue that has another one asks once whether it goes.
func TestBR_7_6_ManyConsumersOfOneQueueEndAtOnce(t *testing.T) {
	const consumers = 100
	for name, last := range map[string]bool{"another stays": false, "they were all": true} {
		t.Run(name, func(t *testing.T) {
			var stored atomic.Int64
			s := serve(t, broker.Options{Failpoint: func(step string) {
				if step == broker.FailDeclareStored {
					stored.Add(1)
				}
			}})
			by, w := s.login(t), s.login(t)
			by.methods(1, amqp091.QueueDeclare{Queue: "q", Durable: true, AutoDelete: true})
			await[*amqp091.QueueDeclareOk](by)
			if !last {
				by.methods(1, amqp091.BasicConsume{Queue: "q"})
				await[*amqp091.BasicConsumeOk](by)
			}
			var all []byte
			for i := range consumers {
				all = amqp091.AppendMethod(all, 1, amqp091.BasicConsume{Queue: "q", ConsumerTag: fmt.Sprint(i), NoWait: true})
			}
			w.send(all)
			w.methods(1, amqp091.ChannelFlow{Active: true})
			await[*amqp091.ChannelFlowOk](w)
			before := stored.Load()
			w.methods(1, amqp091.ChannelClose{})
			await[*amqp091.ChannelCloseOk](w)
			if n := stored.Load() - before; n > 1 {
				t.Errorf("declarations were written %d times", n)
			}
			if _, err := s.b.As("guest", "/").Find("q", topology.Read); (err != nil) != last {
				t.Errorf("the queue at the end: %v", err)
			}
		})
	}
}
