package session091_test

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/declare"
	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// lingering is a socket whose end takes until the test lets it go.
type lingering struct {
	net.Conn
	end chan struct{}
}

func (l *lingering) CloseWrite() error {
	<-l.end
	return l.Conn.(*net.TCPConn).CloseWrite()
}

func (l *lingering) Close() error {
	<-l.end
	return l.Conn.Close()
}

// A connection that has said the last word is no more for others, however long its socket takes: its exclusive queues are gone (BR-7.5),
// and whoever is told close-ok has a place again (BR-3.7). One that the server has closed counts until its client answers, as in RabbitMQ.
func TestBR_7_5_WhatAConnectionHasIsGoneBeforeItsLastWord(t *testing.T) {
	queue := amqp091.QueueDeclare{Queue: "q", Exclusive: true}
	for _, c := range []struct {
		name string
		ends func(t *testing.T, w *wire)
		open int // connections that count then
	}{
		{"the client closes", func(_ *testing.T, w *wire) {
			w.methods(0, amqp091.ConnectionClose{})
			await[*amqp091.ConnectionCloseOk](w)
		}, 0},
		{"the server closes", func(t *testing.T, w *wire) {
			w.methods(1, amqp091.ChannelOpen{}) // a second time
			if m := w.next(); m.ID() != amqp091.ConnectionCloseID {
				t.Fatalf("got %s, want connection.close", m.Name())
			}
		}, 1},
		{"both close", func(t *testing.T, w *wire) {
			w.methods(1, amqp091.ChannelOpen{})
			w.methods(0, amqp091.ConnectionClose{})
			for w.next().ID() != amqp091.ConnectionCloseOkID {
			}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, broker.Options{})
			if _, err := s.b.By("").Do(declare.SetUserLimits{Name: "guest", Limits: map[auth.Limit]any{auth.MaxConnections: int64(1)}}); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			end := make(chan struct{})
			var serving sync.WaitGroup
			serving.Go(func() {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				var first [8]byte
				if _, err := io.ReadFull(nc, first[:]); err == nil {
					if session091.Serve(&lingering{nc, end}, first[:], session091.Options{Broker: s.b, Logger: slog.New(slog.DiscardHandler)}) {
						_ = (&lingering{nc, end}).Close()
					}
				}
			})
			defer serving.Wait()
			defer l.Close()
			w := (&server{addr: l.Addr().String()}).login(t)
			defer w.nc.Close()
			defer close(end)
			w.methods(1, queue)
			await[*amqp091.QueueDeclareOk](w)
			c.ends(t, w)
			if open := len(s.b.Connections()); open != c.open {
				t.Errorf("%d connections are open, want %d", open, c.open)
			}
			if _, err := s.b.By("").Do(declare.SetUserLimits{Name: "guest", Limits: map[auth.Limit]any{auth.MaxConnections: int64(c.open + 1)}}); err != nil {
				t.Fatal(err)
			}
			other := s.login(t)
			other.methods(1, queue)
			await[*amqp091.QueueDeclareOk](other)
		})
	}
}
