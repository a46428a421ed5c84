package session091_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-15.15: a connection that waits for the disk while it opens is listed, and can be shown as every other.
func TestBR_15_15_AConnectionIsShownWhileItOpens(t *testing.T) {
	var armed atomic.Bool
	reached, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, broker.Options{Failpoint: func(step string) {
		if step == broker.FailDeclareChanged && armed.CompareAndSwap(true, false) {
			close(reached)
			<-goOn
		}
	}})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release) // before the server ends
	other := s.login(t)
	armed.Store(true)
	other.methods(1, amqp091.QueueDeclare{Queue: "q", Durable: true})
	<-reached
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	w := &wire{t: t, nc: nc}
	w.send([]byte(amqp091.ProtocolHeader))
	w.methods(0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"},
		amqp091.ConnectionTuneOk{ChannelMax: 10, FrameMax: 4096}, amqp091.ConnectionOpen{VirtualHost: "/"})
	listed := s.b.Connections()
	for deadline := time.Now().Add(10 * time.Second); len(listed) < 2; listed = s.b.Connections() {
		if time.Now().After(deadline) {
			t.Fatal("the connection is not listed")
		}
		time.Sleep(time.Millisecond)
	}
	for _, c := range listed {
		if st := c.Client().Status(); st.VHost != "/" || st.User != "guest" {
			t.Errorf("status: %+v", st)
		}
		if channels := c.Client().ChannelStatuses(); len(channels) > 1 {
			t.Errorf("channels: %v", channels)
		}
	}
	release()
	await[*amqp091.ConnectionOpenOk](w)
	await[*amqp091.QueueDeclareOk](other)
}
