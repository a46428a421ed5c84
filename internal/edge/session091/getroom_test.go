package session091

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp091"
)

// piped is a client in a bubble that reads all it is sent.
type piped struct {
	t     *testing.T
	nc    net.Conn
	heard map[amqp091.MethodID]int
	body  int           // bytes of bodies that it has read
	pause time.Duration // before each read
}

// dialled serves a client at the other end of a pipe, which opens channels.
func dialled(t *testing.T, b *broker.Broker, near, far net.Conn, channels uint16) *piped {
	t.Helper()
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	go func() {
		if Serve(near, []byte(amqp091.ProtocolHeader), Options{Broker: b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6"}) {
			_ = near.Close()
		}
	}()
	p := &piped{t: t, nc: far, heard: map[amqp091.MethodID]int{}}
	go p.read()
	hello := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	hello = amqp091.AppendMethod(hello, 0, amqp091.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
	hello = amqp091.AppendMethod(hello, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
	for n := range channels {
		hello = amqp091.AppendMethod(hello, n+1, amqp091.ChannelOpen{})
	}
	p.send(hello)
	return p
}

func (p *piped) read() {
	var in []byte
	buffer := make([]byte, 64<<10)
	for {
		time.Sleep(p.pause)
		k, err := p.nc.Read(buffer)
		if err != nil {
			return
		}
		in = append(in, buffer[:k]...)
		for {
			f, n, err := amqp091.NextFrame(in, 1<<20)
			if err != nil {
				p.t.Error(err)
			}
			if n == 0 || err != nil {
				break
			}
			switch in = in[n:]; f.Type {
			case amqp091.FrameMethod:
				id, _, _ := amqp091.SplitMethod(f.Payload)
				p.heard[id]++
			case amqp091.FrameBody:
				p.body += len(f.Payload)
			}
		}
	}
}

// send returns when all that follows from it has happened.
func (p *piped) send(b []byte) {
	p.t.Helper()
	if _, err := p.nc.Write(b); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

// published is a message of a size in frames.
func published(queue string, size int) []byte {
	b := amqp091.AppendMethod(nil, 1, amqp091.BasicPublish{RoutingKey: queue})
	b = amqp091.AppendContentHeader(b, 1, amqp091.ClassBasic, uint64(size), []byte{0, 0})
	return amqp091.AppendBody(b, 1, make([]byte, size), 131072)
}

// A client that asks for many messages in one write has so many on their way as it reads: what it gets is in memory
// from then on. Whatever others want of its connection meanwhile does not let it have more.
func TestGetsOfOneReadWaitForTheClient(t *testing.T) {
	const (
		size = 200_000
		gets = 30 // of one read
		most = serving.MaxOwed/size + 1
	)
	for name, c := range map[string]struct {
		interrupt func(c *conn)
		got       int // by a client that reads then
	}{
		"nothing":                         {func(*conn) {}, gets},
		"another channel is to be closed": {func(c *conn) { c.abort(c.channels[2], fail(amqp091.CodePreconditionFailed, "late")) }, gets},
		"its own channel is to be closed": {func(c *conn) { c.abort(c.channels[1], fail(amqp091.CodePreconditionFailed, "late")) }, most},
		"the connection is to be closed":  {func(c *conn) { c.Terminate(320, "closed") }, most},
		"the socket is broken":            {func(c *conn) { c.sock.Break() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				p := dialled(t, b, near, far, 2)
				p.send(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "q", Durable: true}))
				for range gets {
					p.send(published("q", size))
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
				p.send(ask)
				bounded()
				c.interrupt(conn)
				synctest.Wait()
				bounded()
				letGo()
				synctest.Wait()
				if n := p.heard[amqp091.BasicGetOkID]; n != c.got {
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
