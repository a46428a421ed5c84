package session091_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// answers passes on what methods come to the channels of a raw connection, until last says
// that it was the last.
func answers(t *testing.T, nc net.Conn, last func(channel uint16, m amqp091.Method) bool) {
	t.Helper()
	var read []byte
	buffer := make([]byte, 64<<10)
	for {
		f, n, err := amqp091.NextFrame(read, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			k, err := nc.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, buffer[:k]...)
			continue
		}
		if f.Type == amqp091.FrameMethod && f.Channel > 0 && last(f.Channel, must[amqp091.Method](t)(amqp091.DecodeMethod(f.Payload))) {
			return
		}
		read = read[n:]
	}
}

// told reads what comes to the channels of a raw connection until one that was asked
// for comes, and lists cancellations and ends of queues in order.
func told(t *testing.T, nc net.Conn, last string) (list []string) {
	t.Helper()
	answers(t, nc, func(_ uint16, m amqp091.Method) bool {
		switch m := m.(type) {
		case *amqp091.BasicCancel:
			list = append(list, m.ConsumerTag)
		case *amqp091.QueueDeleteOk:
			list = append(list, "delete-ok")
		case *amqp091.QueueDeclareOk:
			list = append(list, m.Queue)
		}
		return slices.Contains(list, last)
	})
	return list
}

// A channel that deletes a queue it consumes is told first that the queue is deleted, and
// then of its consumers; what other channels of the connection consume may be told before
// (BR-9.14).
func TestDeleteOkComesBeforeTheCancellations(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, noWait := range []bool{false, true} {
			name := kind
			if noWait {
				name += ", no wait"
			}
			t.Run(name, func(t *testing.T) {
				s := serve(t, broker.Options{})
				nc := opened(t, s, 2)
				var b []byte
				b = amqp091.AppendMethod(b, 1, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
				for _, tag := range []string{"a", "b"} {
					b = amqp091.AppendMethod(b, 1, amqp091.BasicConsume{Queue: "q", ConsumerTag: tag})
				}
				b = amqp091.AppendMethod(b, 1, amqp091.QueueDelete{Queue: "q", NoWait: noWait})
				b = amqp091.AppendMethod(b, 1, amqp091.QueueDeclare{Queue: "end", Durable: true})
				if _, err := nc.Write(b); err != nil {
					t.Fatal(err)
				}
				want := "q delete-ok a b end"
				if noWait {
					want = "q a b end"
				}
				if got := strings.Join(told(t, nc, "end"), " "); got != want {
					t.Errorf("told %q, want %q", got, want)
				}
			})
		}
	}
}
