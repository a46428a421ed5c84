package session091_test

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/broker"
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
				var read []byte
				buffer := make([]byte, 64<<10)
				var list []string
				for !slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, "2 basic.") }) {
					f, n, err := amqp091.NextFrame(read, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					if n == 0 {
						k, err := nc.Read(buffer)
						if err != nil {
							t.Fatal(err, list)
						}
						read = append(read, buffer[:k]...)
						continue
					}
					if f.Type == amqp091.FrameMethod && f.Channel > 0 {
						m := must[amqp091.Method](t)(amqp091.DecodeMethod(f.Payload))
						said := m.Name()
						if ok, is := m.(*amqp091.BasicGetOk); is && ok.Redelivered {
							said += " redelivered"
						}
						list = append(list, string('0'+byte(f.Channel))+" "+said)
						if list[len(list)-1] == end { // the message is back
							if _, err := nc.Write(amqp091.AppendMethod(nil, 2, get)); err != nil {
								t.Fatal(err)
							}
						}
					}
					read = read[n:]
				}
				want := []string{"1 queue.declare-ok", "1 basic.get-ok", "1 queue.declare-ok", end, "2 basic.get-ok redelivered"}
				if !slices.Equal(list[max(0, len(list)-len(want)):], want) {
					t.Errorf("told %q, want %q", list, want)
				}
			})
		}
	}
}
