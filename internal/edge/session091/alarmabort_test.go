package session091_test

import (
	"runtime"
	"testing"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-13.1: an alarm keeps a publisher from being read, not from being told that a channel is
// closed, and not what that holds from going back. If the channel is that of the message at hand,
// the message is not taken.
func TestBR_13_1_ChannelsAreClosedUnderAnAlarm(t *testing.T) {
	for _, c := range []struct {
		name   string
		closed uint16
		other  uint16
		taken  uint32
		half   bool // of the message at hand some is there already
	}{{"the publisher's", 1, 2, 0, false}, {"the publisher's, between its frames", 1, 2, 0, true}, {"another", 2, 1, 1, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, broker.Options{})
			w := s.login(t)
			w.methods(2, amqp091.ChannelOpen{})
			await[*amqp091.ChannelOpenOk](w)
			w.methods(c.other, amqp091.QueueDeclare{Queue: "q", Durable: true})
			await[*amqp091.QueueDeclareOk](w)
			client := s.b.Connections()[0].Client()
			message := messageFrames("", "q", false, nil)
			if c.half {
				message = amqp091.AppendPublish(nil, 1, amqp091.Publish{RoutingKey: []byte("q")})
				message = amqp091.AppendContentHeader(message, 1, amqp091.ClassBasic, 4, []byte{0, 0})
				message = amqp091.AppendBody(message, 1, []byte("bo"), 4096)
				w.send(message)
				w.methods(2, amqp091.ChannelFlow{Active: true}) // answered when that is read
				await[*amqp091.ChannelFlowOk](w)
				message = amqp091.AppendBody(nil, 1, []byte("dy"), 4096)
			}
			s.b.SetAlarm(broker.Memory, true)
			w.send(message)
			for !client.Status().Blocked {
				runtime.Gosched()
			}
			session091.AbortChannel(client, c.closed)
			await[*amqp091.ChannelClose](w)
			s.b.SetAlarm(broker.Memory, false)
			w.methods(c.closed, amqp091.ChannelCloseOk{})
			w.methods(c.other, amqp091.QueueDeclare{Queue: "q", Passive: true})
			if ok := await[*amqp091.QueueDeclareOk](w); ok.MessageCount != c.taken {
				t.Errorf("%d messages are in the queue, want %d", ok.MessageCount, c.taken)
			}
		})
	}
}
