package session091_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// mute is a backend that answers nobody.
type mute struct{ asked, given chan struct{} }

func (*mute) Name() string { return "mute" }

func (m *mute) Login(ctx context.Context, _ auth.Credentials) ([]auth.Tag, error) {
	m.asked <- struct{}{}
	<-ctx.Done()
	m.given <- struct{}{}
	return nil, ctx.Err()
}

func (*mute) Allow(context.Context, admission.Question) error { return nil }

func within(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("waits for ten seconds")
	}
}

// Who closes its socket while a backend is asked who it is, or while it is told late that its password was wrong, gives its
// place back at once, whatever it had sent behind.
func TestWhoIsGoneIsNotWaitedFor(t *testing.T) {
	wrong := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong", Locale: "en_US"})
	m := &mute{make(chan struct{}, 1), make(chan struct{}, 1)}
	for name, tt := range map[string]struct {
		o broker.Options
	}{
		"a backend that is silent": {broker.Options{AuthBackends: []broker.AuthBackend{{Authn: m, Authz: m}}}},
		"an answer that is late":   {broker.Options{AccountRules: broker.AccountRules{Throttle: admission.ThrottleLimits{Free: 1, Most: time.Hour}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tt.o)
			asks := len(tt.o.AuthBackends) > 0
			for range 15 { // the last waits for an hour
				nc := must[net.Conn](t)(net.Dial("tcp", s.addr))
				if _, err := nc.Write(append(append([]byte(amqp091.ProtocolHeader), wrong...), beat...)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(nc, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if asks {
					within(t, m.asked)
				}
				if err := nc.Close(); err != nil {
					t.Fatal(err)
				}
				if asks {
					within(t, m.given)
				}
			}
			ended := make(chan struct{})
			go func() { s.stop(); close(ended) }() // which waits for all of them
			within(t, ended)
		})
	}
}

// What a client sends before it is answered is not lost.
func TestWhoSendsAhead(t *testing.T) {
	s := serve(t, broker.Options{})
	for range 50 {
		nc := must[net.Conn](t)(net.Dial("tcp", s.addr))
		ahead := append([]byte(amqp091.ProtocolHeader), startOk...)
		ahead = append(ahead, tuneOk...)
		for range 2000 {
			ahead = append(ahead, beat...)
		}
		ahead = amqp091.AppendMethod(ahead, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
		ahead = amqp091.AppendMethod(ahead, 0, amqp091.ConnectionClose{ReplyCode: 200})
		if _, err := nc.Write(ahead); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		sent := must[[]byte](t)(io.ReadAll(nc))
		_ = nc.Close()
		var last amqp091.Method
		for len(sent) > 0 {
			f, n, err := amqp091.NextFrame(sent, 1<<20)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			if last, err = amqp091.DecodeMethod(f.Payload); err != nil {
				t.Fatal(err)
			}
			sent = sent[n:]
		}
		if _, ok := last.(*amqp091.ConnectionCloseOk); !ok {
			t.Fatalf("the last the client was told is %T", last)
		}
	}
}

// Who sends so much while it logs in that nobody would see any more whether its socket is closed is let go: else whoever
// ends its connection, to give its place to another, would end the socket alone.
func TestWhoSendsTooMuchWhileItLogsIn(t *testing.T) {
	s := serve(t, broker.Options{AccountRules: broker.AccountRules{Throttle: admission.ThrottleLimits{Free: 1, Most: time.Hour}}})
	sent := append([]byte(amqp091.ProtocolHeader), amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong", Locale: "en_US"})...)
	for len(sent) < 40<<10 {
		sent = append(sent, beat...)
	}
	var clients sync.WaitGroup
	for range 15 { // the last would be answered after an hour
		clients.Go(func() {
			nc, err := net.Dial("tcp", s.addr)
			if err == nil {
				defer func() { _ = nc.Close() }()
				_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
				_, err = nc.Write(sent)
			}
			if err == nil {
				_, err = io.ReadAll(nc)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
	clients.Wait()
}
