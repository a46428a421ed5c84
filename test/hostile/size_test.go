package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp091"
)

// What is announced costs nothing; only what arrives does.
func TestAnnouncedBodies(t *testing.T) {
	start(t)
	c := loginChannel(t)
	c.send(publish(1, "", "nowhere", 1<<63, noProps, false))
	m := c.expect(amqp091.ChannelCloseID).(*amqp091.ChannelClose)
	if m.ReplyCode != amqp091.CodePreconditionFailed {
		t.Errorf("a body of 2^63 bytes: closed with %d %s", m.ReplyCode, m.ReplyText)
	}
	_ = c.Close()
	attack(t, 32*mib, func() func() {
		c := login(t)
		go c.drain()
		for i := range 2000 {
			channel := uint16(i + 1)
			c.method(channel, amqp091.ChannelOpen{})
			c.send(publish(channel, "", "nowhere", 16*mib, noProps, false))
			c.send(frame(3, channel, 1, []byte{0}, 0xCE))
		}
		return func() { _ = c.Close() }
	})
}

// Many large messages that all become complete in one read are not one record of
// the journal: that has a limit of 1 GiB.
func TestLargeBodiesCompleteAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a gigabyte")
	}
	start(t)
	// A connection may have four of the largest under way.
	const connections, each, size = 22, 3, 16 * mib
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	// What comes in leaves at once, or the memory would be the messages'.
	q, err := ch.QueueDeclare("large", true, false, false, false, amqp.Table{"x-max-length": 1})
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 128<<10-8)
	var clients []*raw
	for range connections {
		c := login(t)
		go c.drain()
		clients = append(clients, c)
		for channel := range uint16(each) {
			c.method(channel+1, amqp091.ChannelOpen{})
			props := []byte{0x10, 0, 2} // delivery-mode 2
			c.send(publish(channel+1, "", q.Name, size, props, false))
			left := size - 1
			for left > 0 {
				n := min(left, len(piece))
				c.send(frame(3, channel+1, uint32(n), piece[:n], 0xCE))
				left -= n
			}
		}
	}
	for _, c := range clients {
		var last []byte
		for channel := range uint16(each) {
			last = append(last, frame(3, channel+1, 1, []byte{0}, 0xCE)...)
		}
		c.send(last)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		q, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
		if err != nil {
			t.Fatalf("the server: %v", err)
		}
		if q.Messages > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no message has arrived")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, c := range clients {
		_ = c.Close()
	}
	if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
		t.Fatal(err)
	}
	served(t)
}

// A transaction is one record of the journal: one that has no room there is
// refused before it takes the memory.
func TestLargeTransaction(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a gigabyte")
	}
	start(t)
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	q, err := ch.QueueDeclare("large", true, false, false, false, amqp.Table{"x-max-length": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Tx(); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 15*mib)
	for range 75 {
		if err := ch.Publish("", q.Name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}); err != nil {
			break
		}
	}
	err = ch.TxCommit()
	if err == nil {
		t.Error("a transaction of more than a gigabyte was committed")
	}
	if reason := <-closed; reason == nil || reason.Code != amqp.PreconditionFailed {
		t.Errorf("the channel was closed with %v", reason)
	}
	if ch, err = conn.Channel(); err != nil {
		t.Fatalf("the server: %v", err)
	}
	if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
		t.Error(err)
	}
	served(t)
}

// nested is a header table with so many tables in each other.
func nested(depth int) []byte {
	var b []byte
	for range depth {
		inner := binary.BigEndian.AppendUint32([]byte("\x01aF"), uint32(len(b)))
		b = append(inner, b...)
	}
	return b
}

// headers makes properties that hold nothing but the table.
func headers(table []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0x20, 0}, uint32(len(table)))
	return append(b, table...)
}

func TestHeaders(t *testing.T) {
	start(t)
	var wide []byte
	for i := range 8000 {
		key := name("key", i)
		wide = append(append(append(wide, byte(len(key))), key...), 'V')
	}
	tests := map[string][]byte{
		"wide":          headers(wide),
		"deep":          headers(nested(100)),
		"too deep":      headers(nested(15_000)),
		"arrays":        headers(append(binary.BigEndian.AppendUint32([]byte("\x01aA"), 100_000), bytes.Repeat([]byte{'A', 0, 0, 0, 0}, 20_000)...)),
		"length a lie":  headers([]byte("\x01aS\xff\xff\xff\xff")),
		"no such type":  headers([]byte("\x01a?")),
		"not UTF-8":     headers([]byte("\x02\xff\xfeV")),
		"CC of numbers": headers(append(binary.BigEndian.AppendUint32([]byte("\x02CCA"), 5), 'I', 0, 0, 0, 1)),
		"many CC keys":  headers(append(binary.BigEndian.AppendUint32([]byte("\x02CCA"), 100_000), bytes.Repeat([]byte("S\x00\x00\x00\x05queue"), 10_000)...)),
	}
	for name, props := range tests {
		t.Run(name, func(t *testing.T) {
			c := loginChannel(t)
			// To an exchange that looks at headers, with a queue behind it.
			c.method(1, amqp091.QueueDeclare{Exclusive: true})
			c.expect(amqp091.QueueDeclareOkID)
			c.method(1, amqp091.QueueBind{Exchange: "amq.headers", Arguments: amqp091.Table{{Key: "x-match", Value: "any"}, {Key: "a", Value: nil}}})
			c.expect(amqp091.QueueBindOkID)
			for range 50 {
				if _, err := c.Write(publish(1, "amq.headers", "", 0, props, false)); err != nil {
					break // refused, and closed
				}
			}
			_ = c.Close()
			served(t)
		})
	}
}

// Names as long as they can be, and longer than RabbitMQ's text has room for.
func TestLongNames(t *testing.T) {
	start(t)
	long := strings.Repeat("n", 255)
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(long, false, true, true, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare(long, "fanout", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(long, long, long, false, nil); err != nil {
		t.Fatal(err)
	}
	// An error text that holds the name twice does not fit into a short string.
	if err := ch.ExchangeDeclare(long, "direct", false, true, false, false, nil); err == nil {
		t.Error("an exchange was declared again with another type")
	}
	raw := loginChannel(t)
	raw.method(1, amqp091.QueueDeclare{Queue: "\xff\xfe" + long[:200], Exclusive: true})
	raw.gone()
	_ = raw.Close()
	served(t)
}

// A million bindings, or as many as a few seconds take: each costs the server 1 KiB
// at most, and with the queue they go.
func TestBindings(t *testing.T) {
	start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	attack(t, 1<<30, func() func() {
		c := loginChannel(t)
		go c.drain()
		c.method(1, amqp091.QueueDeclare{Queue: "hostile-bindings", Exclusive: true, NoWait: true})
		n := 0
		for ; n < 1_000_000 && ctx.Err() == nil; n += 500 {
			var b []byte
			for i := range 500 {
				b = amqp091.AppendMethod(b, 1, amqp091.QueueBind{Queue: "hostile-bindings", Exchange: "amq.topic", RoutingKey: name("a.*.#.key", n+i), NoWait: true})
			}
			c.send(b)
		}
		t.Logf("%d bindings asked for", n)
		return func() {
			_ = c.Close()
			gone(t, "hostile-bindings")
		}
	})
}

// gone waits until an exclusive queue of another connection does not exist any more.
func gone(t *testing.T, queue string) {
	t.Helper()
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		_, err = ch.QueueDeclarePassive(queue, false, false, false, false, nil)
		var e *amqp.Error
		if err == nil {
			_ = ch.Close()
		} else if ok := asError(err, &e); ok && e.Code == amqp.NotFound {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the queue of a connection that ended is there after 30 s: %v", err)
		}
	}
}
