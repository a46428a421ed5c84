package session091_test

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// lateConn holds the first deadline back that is over when it is set, once the client is let in, until the reader has set some.
type lateConn struct {
	net.Conn
	opened atomic.Bool
	reader int // how many
	once   sync.Once
	held   chan struct{} // closed when it is held back
	others chan struct{} // one for each that is set meanwhile
	set    chan struct{} // closed when it is set
}

func (c *lateConn) SetReadDeadline(at time.Time) error {
	if !c.opened.Load() || at.IsZero() || at.After(time.Now()) {
		err := c.Conn.SetReadDeadline(at)
		select {
		case <-c.held:
			c.others <- struct{}{}
		default:
		}
		return err
	}
	c.once.Do(func() {
		close(c.held)
		for range c.reader {
			<-c.others
		}
		_ = c.Conn.SetReadDeadline(at)
		close(c.set)
	})
	return nil
}

// Whoever wants something of a connection's reader ends its read. If the reader has heeded that already, as its client
// has sent something meanwhile, it goes on: the connection stays, or waits for close-ok (BR-1.13).
func TestBR_1_13_AReaderThatHasHeededGoesOn(t *testing.T) {
	for _, c := range []struct {
		name      string
		deadlines int // that the reader sets
		interrupt func(s *server, w *wire)
		stays     func(t *testing.T, w *wire)
	}{
		{"a channel is closed", 1, func(_ *server, w *wire) {
			w.methods(2, amqp091.ChannelOpen{}, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}},
				amqp091.BasicConsume{Queue: "q", Arguments: amqp091.Table{{Key: "x-consumer-timeout", Value: int32(1)}}})
			w.send(messageFrames("", "q", false, nil))
		}, func(t *testing.T, w *wire) {
			w.methods(1, amqp091.ChannelFlow{Active: true})
			for {
				switch w.next().(type) {
				case *amqp091.ChannelFlowOk:
					return
				case *amqp091.ConnectionClose:
					t.Fatal("the connection is closed")
				}
			}
		}},
		{"the connection is closed", 2, func(s *server, _ *wire) {
			s.b.CloseConnections(320, "closed")
		}, func(t *testing.T, w *wire) {
			w.methods(0, amqp091.ConnectionClose{}) // ours, at the same time
			for {
				if _, ok := w.next().(*amqp091.ConnectionCloseOk); ok {
					w.methods(0, amqp091.ConnectionCloseOk{})
					return
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, broker.Options{})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			late := &lateConn{reader: c.deadlines, held: make(chan struct{}), others: make(chan struct{}, 100), set: make(chan struct{})}
			var serving sync.WaitGroup
			serving.Go(func() {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				var first [8]byte
				if _, err := io.ReadFull(nc, first[:]); err == nil {
					late.Conn = nc
					if session091.Serve(late, first[:], session091.Options{Broker: s.b, Logger: slog.New(slog.DiscardHandler), Opened: func() { late.opened.Store(true) }}) {
						_ = late.Close()
					}
				}
			})
			defer serving.Wait()
			defer l.Close()
			w := (&server{addr: l.Addr().String()}).login(t)
			defer w.nc.Close()
			serving.Go(func() { c.interrupt(s, w) })
			<-late.held
			w.send(amqp091.AppendHeartbeat(nil)) // the reader looks up
			<-late.set
			c.stays(t, w)
		})
	}
}
