package hostile

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

const (
	sessions10 = 64  // that a connection may have
	links10    = 256 // that a session may have
	// linkBytes is what a link may cost the server, however long the names are that the client gives it.
	linkBytes = 4 << 10
)

// queue10 makes a queue with so many messages.
func queue10(t *testing.T, name, kind string, messages, size int) {
	t.Helper()
	filled(t, name, amqp.Table{"x-queue-type": kind}, messages, size)
}

// filled declares a queue with arguments, and fills it likewise.
func filled(t *testing.T, name string, arguments amqp.Table, messages, size int) {
	t.Helper()
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(name, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, size)
	for range messages {
		if err := ch.Publish("", name, false, false, amqp.Publishing{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, name, func(q amqp.Queue) bool { return q.Messages == messages })
}

// A connection has as many sessions and links as it may have, and each costs little, whatever the client says of it.
func TestLinksWithoutEnd10(t *testing.T) {
	long := strings.Repeat("n", 20_000)
	tests := map[string]func(handle uint32) []byte{
		"long names": func(h uint32) []byte { return client10.Frames(nil, 0, sending(h, long, "")) },
		"long keys":  func(h uint32) []byte { return client10.Frames(nil, 0, sending(h, "l", "/exchanges/amq.topic/"+long)) },
		"long tags": func(h uint32) []byte {
			tr := first(h)
			tr.Handle, tr.DeliveryTag, tr.More = h, []byte(long), true
			return transfer(client10.Frames(nil, 0, sending(h, "l", "")), tr, []byte{0})
		},
		"half messages": func(h uint32) []byte {
			tr := first(h)
			tr.Handle, tr.More = h, true
			return transfer(client10.Frames(nil, 0, sending(h, "l", "/queues/q")), tr, []byte{0})
		},
		"managers": func(h uint32) []byte { // two handles each
			pair := manager(h/2*2, h/2*2+1, long+name("", int(h/2)))
			pair[0].(*amqp10.Attach).Source = client10.Described(&amqp10.Source{Address: []byte(long)})
			pair[1].(*amqp10.Attach).Target = client10.Described(&amqp10.Target{Address: []byte(long)})
			return client10.Frames(nil, 0, pair[h%2])
		},
		"consumers": func(h uint32) []byte {
			a := receiving(h, long, "q")
			b, at := amqp10.BeginMap(nil)
			src := &amqp10.Source{Address: []byte("/queues/q"), Filter: amqp10.MustValue(amqp10.EndCompound(amqp10.AppendString(amqp10.AppendSymbol(b, "f"), long), at, 2))}
			a.Source = client10.Described(src)
			return client10.Frames(nil, 0, a)
		},
	}
	for name, link := range tests {
		t.Run(name, func(t *testing.T) {
			start10(t)
			queue10(t, "q", "classic", 1, 10)
			beside(t, 48*mib+sessions10*links10*linkBytes, func() func() {
				c := login10(t)
				go c.drain() // refusals are as good as links
				for s := range uint16(sessions10) {
					c.perform(s, &amqp10.Begin{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20})
					for h := range uint32(links10) {
						c.send(onChannel(link(h), s))
					}
				}
				return func() { _ = c.Close() }
			})
		})
	}
	t.Run("one session too many", func(t *testing.T) {
		start10(t)
		c := login10(t)
		for s := range uint16(sessions10) {
			c.begin(s, 100)
		}
		c.perform(sessions10, &amqp10.Begin{IncomingWindow: 1, OutgoingWindow: 1})
		ended[*amqp10.Close](c, amqp10.ConditionFramingError, "channel number (64) exceeds maximum channel number (63)")
	})
	t.Run("one link too many", func(t *testing.T) {
		start10(t)
		queue10(t, "q", "classic", 0, 0)
		c := session10(t)
		for h := range uint32(links10) {
			c.perform(0, sending(h, "l", "/queues/q"))
			want10[*amqp10.Flow](c)
		}
		c.perform(0, sending(links10, "l", "/queues/q"))
		ended[*amqp10.End](c, amqp10.ConditionFramingError, "link handle value (256) exceeds maximum link handle value (255)")
	})
}

// onChannel puts frames on another channel.
func onChannel(b []byte, channel uint16) []byte {
	for rest := b; len(rest) > 0; {
		_, n, err := amqp10.NextFrame(rest, 1<<30)
		if err != nil || n == 0 {
			panic("bad frames of our own")
		}
		rest[6], rest[7] = byte(channel>>8), byte(channel)
		rest = rest[n:]
	}
	return b
}

// Links and sessions that come and go without end leave nothing behind.
func TestChurn10(t *testing.T) {
	start10(t)
	queue10(t, "classic", "classic", 1000, 10)
	queue10(t, "quorum", "quorum", 1000, 10)
	off := &amqp10.Detach{Closed: true}
	tests := map[string][]byte{
		"sessions":   client10.Frames(nil, 0, &amqp10.Begin{IncomingWindow: 1, OutgoingWindow: 1}, &amqp10.End{}),
		"publishers": client10.Frames(nil, 1, sending(0, "l", "/queues/classic"), off),
		"managers":   client10.Frames(nil, 1, append(manager(0, 1, "m"), off, &amqp10.Detach{Handle: 1, Closed: true})...),
		"consumers":  client10.Frames(nil, 1, receiving(0, "l", "classic"), credit(0, 0, 100, false, false), off),
		"quorum":     client10.Frames(nil, 1, receiving(0, "l", "quorum"), credit(0, 0, 100, false, false), off),
		"refused":    client10.Frames(nil, 1, receiving(0, "l", "no such queue")),
		"bad":        client10.Frames(nil, 1, sending(0, "l", strings.Repeat("/bad", 20_000))),
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			beside(t, 96*mib, func() func() {
				c := login10(t)
				c.begin(1, 1<<30)
				go c.drain()
				t.Logf("%d MiB sent", c.flood(many(b), 2*time.Second)/mib)
				return func() { _ = c.Close() }
			})
		})
	}
	for _, q := range []string{"classic", "quorum"} {
		conn := dial(t)
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			got, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Messages == 1000 && got.Consumers == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has %d messages and %d consumers, want 1000 and 0", q, got.Messages, got.Consumers)
			}
		}
		_ = conn.Close()
	}
}

// What a client does not read does not pile up.
func TestAnswersNobodyReads10(t *testing.T) {
	start10(t)
	queue10(t, "q", "classic", 20, mib)
	queue10(t, "empty", "classic", 0, 0)
	long := strings.Repeat("n", 60_000)
	message := amqp10.AppendData(nil, []byte("x"))
	settled := amqp10.Transfer{DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte{1}, Settled: amqp10.Some(true)}
	tests := map[string]struct {
		setup []amqp10.Composite
		flood []byte
	}{
		"echoes":         {nil, client10.Frames(nil, 0, &amqp10.Flow{IncomingWindow: 1 << 30, OutgoingWindow: 1, Echo: true})},
		"link echoes":    {[]amqp10.Composite{receiving(0, "l", "empty")}, client10.Frames(nil, 0, credit(0, 0, 10, false, true))},
		"drains":         {[]amqp10.Composite{receiving(0, "l", "empty")}, client10.Frames(nil, 0, credit(0, 0, 1<<32-1, true, true))},
		"drain of much":  {[]amqp10.Composite{receiving(0, "l", "q")}, client10.Frames(nil, 0, credit(0, 0, 1<<32-1, true, true))},
		"manager echoes": {manager(0, 1, "m"), client10.Frames(nil, 0, credit(1, 0, 1<<30, true, true))},
		"outcomes":       {[]amqp10.Composite{sending(0, "l", "/exchanges/amq.topic/none")}, transfer(nil, first(0), message)},
		"refused":        {[]amqp10.Composite{sending(0, "l", "")}, transfer(nil, first(0), append((&amqp10.Properties{To: []byte("/bad/" + long)}).Append(nil), message...))},
		"attaches":       {nil, client10.Frames(nil, 0, receiving(0, long, long))},
		"requests": {append(manager(0, 1, "m"), credit(1, 0, 1<<30, false, false)),
			transfer(nil, settled, request("GET", "/queues/q", nil))},
		"bad requests": {append(manager(0, 1, "m"), credit(1, 0, 1<<30, false, false)),
			transfer(nil, settled, request("GET", "/"+long, nil))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			beside(t, 96*mib, func() func() {
				var all []*raw10
				flooded := make(chan int, 4)
				for range cap(flooded) {
					c := session10(t)
					c.perform(0, test.setup...)
					all = append(all, c)
					go func() { flooded <- c.flood(many(test.flood), 1500*time.Millisecond) }()
				}
				sent := 0
				for range cap(flooded) {
					sent += <-flooded
				}
				t.Logf("%d MiB sent", sent/mib)
				return func() {
					for _, c := range all {
						_ = c.Close()
					}
				}
			})
		})
	}
}

// Large answers of the management node wait for a client that reads none, in whatever way it does so: they have a bound.
func TestLargeAnswersNobodyReads10(t *testing.T) {
	t.Run("which it has asked for at once", func(t *testing.T) {
		bindings10(t)
		beside(t, 96*mib, func() func() {
			c := session10(t)
			c.perform(0, append(manager(0, 1, "m"), credit(1, 0, 1<<30, false, false))...)
			c.send(bytes.Repeat(transfer(nil, listing, list), 300))
			_ = c.flood(transfer(nil, listing, list), time.Second)
			return func() { _ = c.Close() }
		})
	})
	t.Run("in a closed window", func(t *testing.T) {
		bindings10(t)
		beside(t, 96*mib, func() func() {
			c := login10(t)
			c.begin(0, 0)
			grant := credit(1, 0, 1<<30, false, false)
			grant.IncomingWindow = 0
			c.perform(0, append(manager(0, 1, "m"), grant)...)
			go func() { _ = c.flood(bytes.Repeat(transfer(nil, listing, list), 10), 3*time.Second) }()
			ended[*amqp10.End](c, amqp10.ConditionResourceLimitExceeded, "bytes of answers of /management wait")
			return func() { _ = c.Close() }
		})
	})
	t.Run("without credit", func(t *testing.T) {
		bindings10(t)
		beside(t, 96*mib, func() func() {
			c := session10(t)
			for pair := range uint32(links10 / 2) {
				c.perform(0, manager(2*pair, 2*pair+1, name("m", int(pair)))...)
				tr := listing
				tr.Handle = 2 * pair
				_, _ = c.Write(bytes.Repeat(transfer(nil, tr, list), 8))
			}
			ended[*amqp10.End](c, amqp10.ConditionResourceLimitExceeded, "bytes of answers of /management wait")
			return func() { _ = c.Close() }
		})
	})
}

// list is a request whose answer has 2 MB, and listing is its transfer.
var (
	list    = request("GET", "/bindings?src=amq.headers&dstq=bound&key=key", nil)
	listing = amqp10.Transfer{DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte{1}, Settled: amqp10.Some(true)}
)

// bindings10 starts a server that has so many bindings.
func bindings10(t *testing.T) {
	t.Helper()
	start10(t)
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("bound", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := ch.QueueBind("bound", "key", "amq.headers", false, amqp.Table{"a": int32(i), "long": strings.Repeat("l", 800)}); err != nil {
			t.Fatal(err)
		}
	}
}

// Large messages that wait for a window which opens at once are not all in memory at once.
func TestLargeMessagesInAClosedWindow10(t *testing.T) {
	const count, size = 16, 8 * mib
	for _, window := range []uint32{0, 3} { // the second stops in the middle of a message
		t.Run(name("window", int(window)), func(t *testing.T) {
			start10(t)
			queue10(t, "large", "classic", count, size)
			c := login10(t)
			c.begin(0, window)
			c.perform(0, receiving(0, "l", "large"))
			want10[*amqp10.Attach](c)
			grant := credit(0, 0, count, false, false)
			grant.IncomingWindow = window
			beside(t, 48*mib, func() func() {
				c.perform(0, grant)
				empty(t, "large")
				c.perform(0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1 << 30, OutgoingWindow: 1})
				c.perform(0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1 << 30, OutgoingWindow: 1, Echo: true})
				want10[*amqp10.Transfer](c) // the node is at it
				return func() { _ = c.Close() }
			})
		})
	}
}

// empty waits until all messages of a queue are on their way to a client.
func empty(t *testing.T, queue string) {
	t.Helper()
	until(t, queue, func(q amqp.Queue) bool { return q.Messages == 0 })
}

// until waits until a queue is as it should be.
func until(t *testing.T, queue string, is func(amqp.Queue) bool) {
	t.Helper()
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if is(q) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has %d messages and %d consumers", queue, q.Messages, q.Consumers)
		}
	}
}
