package session091

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/broker"
)

// A client that asks for many messages in one write has so many on their way as it reads: what it gets is in memory
// from then on. Whatever others want of its connection meanwhile does not let it have more.
func TestGetsOfOneReadWaitForTheClient(t *testing.T) {
	const (
		size = 200_000
		gets = 30 // of one read
		most = maxOwed/size + 1
	)
	for name, c := range map[string]struct {
		interrupt func(c *conn)
		got       int // by a client that reads then
	}{
		"nothing":                         {func(*conn) {}, gets},
		"another channel is to be closed": {func(c *conn) { c.abort(c.channels[2], fail(amqp091.CodePreconditionFailed, "late")) }, gets},
		"its own channel is to be closed": {func(c *conn) { c.abort(c.channels[1], fail(amqp091.CodePreconditionFailed, "late")) }, most},
		"the connection is to be closed":  {func(c *conn) { c.Terminate(320, "closed") }, most},
		"the socket is broken":            {func(c *conn) { c.broken(nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
					t.Fatal(err)
				}
				near, far := net.Pipe()
				go Serve(near, []byte(amqp091.ProtocolHeader), Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"})
				heard := map[amqp091.MethodID]int{}
				go func() { // the client
					var in []byte
					buffer := make([]byte, 64<<10)
					for {
						k, err := far.Read(buffer)
						if err != nil {
							return
						}
						in = append(in, buffer[:k]...)
						for {
							f, n, err := amqp091.NextFrame(in, 1<<20)
							if err != nil {
								t.Error(err)
							}
							if n == 0 || err != nil {
								break
							}
							if in = in[n:]; f.Type == amqp091.FrameMethod {
								id, _, _ := amqp091.SplitMethod(f.Payload)
								heard[id]++
							}
						}
					}
				}()
				send := func(b []byte) {
					if _, err := far.Write(b); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				hello := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
				hello = amqp091.AppendMethod(hello, 0, amqp091.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
				hello = amqp091.AppendMethod(hello, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
				for n := range uint16(2) {
					hello = amqp091.AppendMethod(hello, n+1, amqp091.ChannelOpen{})
				}
				send(amqp091.AppendMethod(hello, 1, amqp091.QueueDeclare{Queue: "q", Durable: true}))
				for range gets {
					m := amqp091.AppendMethod(nil, 1, amqp091.BasicPublish{RoutingKey: "q"})
					m = amqp091.AppendContentHeader(m, 1, amqp091.ClassBasic, size, []byte{0, 0})
					send(amqp091.AppendBody(m, 1, make([]byte, size), 131072))
				}
				conn := b.Connections()[0].Client().(*conn)
				waiting, letGo := StopSending(conn)
				var ask []byte
				for range gets {
					ask = amqp091.AppendMethod(ask, 1, amqp091.BasicGet{Queue: "q"})
				}
				bounded := func() {
					t.Helper()
					if n := waiting(); n > most+2 { // and what is said beside
						t.Errorf("%d messages wait for a client that does not read, want %d", n, most)
					}
				}
				send(ask)
				bounded()
				c.interrupt(conn)
				synctest.Wait()
				bounded()
				letGo()
				synctest.Wait()
				if n := heard[amqp091.BasicGetOkID]; n != c.got {
					t.Errorf("%d messages came, want %d", n, c.got)
				}
				_ = far.Close()
				synctest.Wait()
				if n := b.Node().Counts(runtimeQueue(t, b, "q")); n.Ready != gets || n.Out != 0 {
					t.Errorf("%d ready and %d out at the end, want all back", n.Ready, n.Out)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
