package session091

import (
	"net"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-13.1: a connection that ends while an alarm holds it ends there. Nothing more of what it has read is taken into a node that is
// low on memory.
func TestBR_13_1_AConnectionThatEndsUnderAnAlarmPublishesNoMore(t *testing.T) {
	const messages = 50
	for _, c := range []struct {
		name string
		end  func(b *broker.Broker, socket *severed)
		told int // how often its client is told
	}{
		{"it is closed", func(b *broker.Broker, _ *severed) { b.CloseConnections(320, "closed") }, 1},
		{"its socket breaks", func(b *broker.Broker, socket *severed) {
			socket.cut.Store(true)
			AbortChannel(b.Connections()[0].Client(), 2) // which is to be told
		}, 0},
	} {
		for _, half := range []bool{false, true} {
			name := c.name
			if half {
				name += ", within a message"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := brokerOn(t, vfs.NewMem())
					near, far := net.Pipe()
					socket := &severed{Conn: near}
					p := dialled(t, b, socket, far, 2)
					hello := amqp091.AppendMethod(amqp091.AppendMethod(nil, 1, amqp091.ConfirmSelect{}), 1, amqp091.QueueDeclare{Queue: "q", Durable: true})
					for range 2048 / len(amqp091.AppendHeartbeat(nil)) { // they fill the buffer, which grows
						hello = amqp091.AppendHeartbeat(hello)
					}
					p.send(hello)
					var begun, rest []byte
					for range messages {
						rest = append(rest, published("q", 10)...)
					}
					if half {
						begun = amqp091.AppendPublish(nil, 1, amqp091.Publish{RoutingKey: []byte("q")})
						begun = amqp091.AppendContentHeader(begun, 1, amqp091.ClassBasic, 20, []byte{0, 0})
						begun = amqp091.AppendBody(begun, 1, make([]byte, 10), 4096)
						rest = append(amqp091.AppendBody(nil, 1, make([]byte, 10), 4096), rest...)
					}
					if half {
						p.send(begun)
					}
					b.SetAlarm(broker.Memory, true)
					go func() { _, _ = far.Write(rest) }()
					synctest.Wait()
					c.end(b, socket)
					synctest.Wait()
					q := runtimeQueue(t, b, "q")
					if n := b.Node().Counts(q).Ready; n != 0 || p.heard[amqp091.BasicAckID] != 0 {
						t.Errorf("%d messages of %d are in the queue, %d answers", n, messages, p.heard[amqp091.BasicAckID])
					}
					if n := p.heard[amqp091.ConnectionCloseID]; n != c.told {
						t.Errorf("the client was told %d times that it is closed, want %d", n, c.told)
					}
					_ = far.Close()
					synctest.Wait()
					if open := b.Connections(); len(open) != 0 {
						t.Errorf("%d connections are open at the end", len(open))
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
