package session091_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
)

// dropper is a connection that can end without a word.
type dropper struct {
	*amqp.Connection
	socket net.Conn
}

func (s *server) dropper(t testing.TB) *dropper {
	t.Helper()
	d := &dropper{}
	var err error
	d.Connection, err = amqp.DialConfig("amqp://guest:guest@"+s.addr, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		d.socket, err = net.Dial(network, addr)
		return d.socket, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// ways are how a client gives up what it holds: each ends the connection, or all its channels.
var ways = map[string]func(d *dropper, channels []*client){
	"drop":  func(d *dropper, _ []*client) { _ = d.socket.Close() },
	"close": func(d *dropper, _ []*client) { _ = d.Close() },
	"channel": func(_ *dropper, channels []*client) {
		for _, ch := range channels {
			_ = ch.Close()
		}
	},
}

func (d *dropper) client(t testing.TB, prefetch int) *client {
	t.Helper()
	c := &client{must[*amqp.Channel](t)(d.Channel()), t}
	if err := c.Qos(prefetch, 0, false); err != nil {
		t.Fatal(err)
	}
	return c
}

// each runs f for both types of queues and the ways given.
func each(t *testing.T, ways []string, f func(t *testing.T, kind, way string)) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, way := range ways {
			t.Run(kind+"/"+way, func(t *testing.T) { f(t, kind, way) })
		}
	}
}

// fill publishes messages m1 to mN and waits for their confirms.
func (c *client) fill(queue string, n int) {
	c.t.Helper()
	if err := c.Confirm(false); err != nil {
		c.t.Fatal(err)
	}
	confirms := c.NotifyPublish(make(chan amqp.Confirmation, n))
	for i := range n {
		c.publish("", queue, amqp.Publishing{Body: fmt.Appendf(nil, "m%d", i+1)})
	}
	for range n {
		<-confirms
	}
}

// BR-4.5: whatever a connection's consumers hold comes back when it ends, whatever was on its way to
// which of them, once, as one failed delivery at most.
func TestEndReturnsEverythingOnce(t *testing.T) {
	const messages, channels = 200, 6
	each(t, []string{"drop", "close"}, func(t *testing.T, kind, way string) {
		s := serve(t, broker.Options{})
		owner := s.client(t)
		owner.declare("q", amqp.Table{"x-queue-type": kind})
		d := s.dropper(t)
		for range channels {
			d.client(t, messages).consume("q")
		}
		owner.fill("q", messages)
		ways[way](d, nil)
		late := s.client(t)
		from := late.consume("q")
		var got []string
		for range messages {
			m := late.next(from)
			got = append(got, string(m.Body))
			if n, ok := m.Headers["x-delivery-count"].(int64); ok && n > 1 {
				t.Fatalf("%s was delivered once and counts %d failed deliveries", m.Body, n)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != messages {
			t.Errorf("%d messages came back, want %d", len(got), messages)
		}
	})
}

// BR-9.5: when the active consumer goes, what it had comes back before the next one gets anything.
func TestNextSingleActiveConsumerBeginsWhereTheLastStopped(t *testing.T) {
	each(t, []string{"drop", "close", "channel"}, func(t *testing.T, kind, way string) {
		s := serve(t, broker.Options{})
		owner := s.client(t)
		owner.declare("q", amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
		owner.fill("q", 6)
		d := s.dropper(t)
		active, idle := d.client(t, 2), d.client(t, 10)
		from := active.consume("q")
		active.next(from)
		active.next(from)
		idle.consume("q") // of the same connection: it must get nothing
		next := s.client(t)
		after := next.consume("q")
		channels := []*client{idle, active}
		ways[way](d, channels)
		var got []string
		for range 6 {
			m := next.next(after)
			got = append(got, string(m.Body))
			if n, ok := m.Headers["x-delivery-count"].(int64); ok && n > 1 {
				t.Errorf("%s counts %d failed deliveries", m.Body, n)
			}
		}
		if order := strings.Join(got, " "); order != "m1 m2 m3 m4 m5 m6" {
			t.Errorf("the next consumer got %s", order)
		}
	})
}

// BR-4.5: another consumer that has room gets what comes back in its order, and before what was never delivered.
func TestReturnedComesBeforeWhatWasNeverDelivered(t *testing.T) {
	each(t, []string{"drop", "close", "channel"}, func(t *testing.T, kind, way string) {
		s := serve(t, broker.Options{})
		owner := s.client(t)
		owner.declare("q", amqp.Table{"x-queue-type": kind})
		owner.fill("q", 8)
		other := s.dropper(t).client(t, 1)
		d := s.dropper(t)
		c := d.client(t, 2)
		for _, tag := range []string{"a", "b"} {
			from := must[<-chan amqp.Delivery](t)(c.Consume("q", tag, false, false, false, false, nil))
			c.next(from)
			c.next(from)
		}
		after := other.consume("q")
		first := other.next(after) // m5: it can take no more
		ways[way](d, []*client{c})
		var got []string
		for m := first; ; m = other.next(after) {
			got = append(got, string(m.Body))
			if len(got) == 8 {
				break
			}
			// Acknowledged only when all has come back.
			for deadline := time.Now().Add(10 * time.Second); len(got) == 1; {
				q := must[amqp.Queue](t)(owner.QueueDeclarePassive("q", true, false, false, false, nil))
				if q.Messages == 7 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d messages are ready", q.Messages)
				}
			}
			if err := m.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
		if order := strings.Join(got, " "); order != "m5 m1 m2 m3 m4 m6 m7 m8" {
			t.Errorf("the other consumer got %s", order)
		}
	})
}
