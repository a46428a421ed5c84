package session091_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// BR-7.5: an exclusive queue is its connection's alone. Another connection from the same address and
// port, as a gateway may give them to the next client, does not get it while the first one ends.
func TestBR_7_5_TheNextClientOfAPortOwnsNothing(t *testing.T) {
	s := serve(t, broker.Options{})
	var socket *net.TCPConn
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	dial := func() *amqp.Connection {
		t.Helper()
		for {
			c, err := amqp.DialConfig("amqp://guest:guest@"+s.addr, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
				nc, err := (&net.Dialer{LocalAddr: from, Timeout: time.Second}).Dial(network, addr)
				if err != nil {
					return nil, err
				}
				socket = nc.(*net.TCPConn)
				from = socket.LocalAddr().(*net.TCPAddr)
				return nc, socket.SetLinger(0) // to be closed by a reset: the port is free at once
			}})
			if err == nil {
				return c
			}
			if from.Port == 0 {
				t.Fatal(err)
			}
		}
	}
	for round := range 10 {
		c := dial()
		ch := must[*amqp.Channel](t)(c.Channel())
		for i := range 300 {
			must[amqp.Queue](t)(ch.QueueDeclare(fmt.Sprint("other", round, "-", i), false, false, true, false, nil))
		}
		must[amqp.Queue](t)(ch.QueueDeclare(fmt.Sprint("mine", round), false, false, true, false, nil))
		_ = socket.Close()
		c = dial()
		ch = must[*amqp.Channel](t)(c.Channel())
		if q, err := ch.QueueDeclarePassive(fmt.Sprint("mine", round), false, false, true, false, nil); err == nil {
			t.Fatalf("round %d: the queue of the connection before is the next one's: %+v", round, q)
		}
		_ = socket.Close()
	}
}
