package session091_test

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What was asked before a channel closes is answered before: also a get, whose message
// is back in its queue then, be it the client that closes or a mistake of its.
func TestAGetIsAnsweredBeforeItsChannelCloses(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for name, last := range map[string]amqp091.Method{"closed": amqp091.ChannelClose{}, "failed": amqp091.QueueDeclare{Queue: "nosuch", Passive: true}} {
			t.Run(kind+", "+name, func(t *testing.T) {
				end := "1 channel.close-ok"
				if name == "failed" {
					end = "1 channel.close"
				}
				s := serve(t, broker.Options{})
				nc := opened(t, s, 2)
				get := amqp091.BasicGet{Queue: "q"}
				var b []byte
				b = amqp091.AppendMethod(b, 1, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
				b = amqp091.AppendMethod(b, 1, amqp091.BasicPublish{RoutingKey: "q"})
				b = amqp091.AppendContentHeader(b, 1, amqp091.ClassBasic, 1, []byte{0, 0})
				b = amqp091.AppendBody(b, 1, []byte("m"), 131072)
				b = amqp091.AppendMethod(b, 1, get)
				b = amqp091.AppendMethod(b, 1, amqp091.QueueDeclare{Queue: "q", Passive: true})
				b = amqp091.AppendMethod(b, 1, last)
				if _, err := nc.Write(b); err != nil {
					t.Fatal(err)
				}
				var list []string
				answers(t, nc, func(channel uint16, m amqp091.Method) bool {
					said := m.Name()
					if ok, is := m.(*amqp091.BasicGetOk); is && ok.Redelivered {
						said += " redelivered"
					}
					list = append(list, string('0'+byte(channel))+" "+said)
					if list[len(list)-1] == end { // the message is back
						if _, err := nc.Write(amqp091.AppendMethod(nil, 2, get)); err != nil {
							t.Fatal(err)
						}
					}
					return strings.HasPrefix(list[len(list)-1], "2 basic.")
				})
				want := []string{"1 queue.declare-ok", "1 basic.get-ok", "1 queue.declare-ok", end, "2 basic.get-ok redelivered"}
				if !slices.Equal(list[max(0, len(list)-len(want)):], want) {
					t.Errorf("told %q, want %q", list, want)
				}
			})
		}
	}
}

// What is got may be settled in the same write, by the tag that it will have or by 0 for all
// there is: the settlement finds it (BR-9.6, BR-9.7).
func TestBR_9_7_AGetIsSettledInTheSameWrite(t *testing.T) {
	settlements := map[string]amqp091.Method{
		"ack":           amqp091.BasicAck{DeliveryTag: 2},
		"ack up to it":  amqp091.BasicAck{DeliveryTag: 2, Multiple: true},
		"ack all":       amqp091.BasicAck{Multiple: true},
		"nack all":      amqp091.BasicNack{Multiple: true},
		"reject":        amqp091.BasicReject{DeliveryTag: 2},
		"in a tx":       amqp091.BasicAck{DeliveryTag: 2, Multiple: true},
		"get of no ack": amqp091.BasicAck{Multiple: true},
	}
	for _, kind := range []string{"classic", "quorum"} {
		for name, settlement := range settlements {
			t.Run(kind+", "+name, func(t *testing.T) {
				s := serve(t, broker.Options{})
				nc := opened(t, s, 1)
				var b []byte
				b = amqp091.AppendMethod(b, 1, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
				for range 2 {
					b = amqp091.AppendMethod(b, 1, amqp091.BasicPublish{RoutingKey: "q"})
					b = amqp091.AppendContentHeader(b, 1, amqp091.ClassBasic, 1, []byte{0, 0})
					b = amqp091.AppendBody(b, 1, []byte("m"), 131072)
				}
				if name == "in a tx" {
					b = amqp091.AppendMethod(b, 1, amqp091.TxSelect{})
				}
				for range 2 {
					b = amqp091.AppendMethod(b, 1, amqp091.BasicGet{Queue: "q", NoAck: name == "get of no ack"})
				}
				b = amqp091.AppendMethod(b, 1, settlement)
				if _, single := settlement.(amqp091.BasicReject); single || name == "ack" {
					b = amqp091.AppendMethod(b, 1, amqp091.BasicNack{DeliveryTag: 1})
				}
				if name == "in a tx" {
					b = amqp091.AppendMethod(b, 1, amqp091.TxCommit{})
				}
				b = amqp091.AppendMethod(b, 1, amqp091.BasicRecover{Requeue: true}) // what is not settled comes again
				b = amqp091.AppendMethod(b, 1, amqp091.BasicGet{Queue: "q"})
				if _, err := nc.Write(b); err != nil {
					t.Fatal(err)
				}
				var list []string
				gets := 0
				answers(t, nc, func(_ uint16, m amqp091.Method) bool {
					list = append(list, m.Name())
					if strings.HasPrefix(m.Name(), "basic.get-") {
						gets++
					}
					return gets == 3 || m.Name() == "channel.close"
				})
				if list[len(list)-1] != "basic.get-empty" {
					t.Errorf("told %q, and at the end the queue should be empty", list)
				}
			})
		}
	}
}
