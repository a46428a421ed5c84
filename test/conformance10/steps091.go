package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.yaml.in/yaml/v3"
)

// client091 is a connection by AMQP 0-9-1 with one channel, which confirms.
type client091 struct {
	conn   *amqp.Connection
	socket net.Conn
	ch     *amqp.Channel

	confirms chan amqp.Confirmation
	closed   chan *amqp.Error
	tags     map[string]uint64 // the latest delivery tag of each message body; under "" that of the last message
}

// dial091 connects with the credentials of the run.
func (p *player) dial091() (*client091, error) {
	user, password := p.credentials("", "")
	c := &client091{tags: map[string]uint64{}}
	config := amqp.Config{Vhost: p.vhost, Heartbeat: 30 * time.Second, SASL: []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}},
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := net.DialTimeout(network, addr, p.timeout)
			c.socket = conn
			return conn, err
		}}
	var err error
	if c.conn, err = amqp.DialConfig("amqp://"+p.address(), config); err != nil {
		return nil, err
	}
	return c, c.open()
}

// open opens the channel, or another one after the broker closed it.
func (c *client091) open() error {
	ch, err := c.conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	c.ch, c.confirms, c.closed = ch, ch.NotifyPublish(make(chan amqp.Confirmation, 1000)), ch.NotifyClose(make(chan *amqp.Error, 1))
	return nil
}

// channel is the one that the steps of AMQP 0-9-1 use, opened when the first of them is played.
func (p *player) channel() (*client091, error) {
	if p.old == nil {
		c, err := p.dial091()
		if err != nil {
			return nil, err
		}
		p.old = c
	}
	if p.old.ch.IsClosed() {
		return p.old, p.old.open()
	}
	return p.old, nil
}

// call runs a call on the channel; a refusal of the broker is what was seen.
func (p *player) call(f func(c *client091) ([]string, error)) ([]string, error) {
	c, err := p.channel()
	if err != nil {
		return nil, err
	}
	lines, err := f(c)
	if e, ok := err.(*amqp.Error); ok {
		return append(lines, fmt.Sprintf("channel closed: %d %s", e.Code, e.Reason)), nil
	}
	return lines, err
}

func (a *args) table(name string) (amqp.Table, error) {
	n := a.nodes[name]
	if n == nil {
		return nil, nil
	}
	v, err := field091(n, a.p.expand)
	if err != nil {
		return nil, err
	}
	t, ok := v.(amqp.Table)
	if !ok {
		return nil, fmt.Errorf("line %d: a table is wanted here", n.Line)
	}
	return t, nil
}

func declareExchange(p *player, a *args) ([]string, error) {
	t, err := a.table("args")
	if err != nil {
		return nil, err
	}
	return p.call(func(c *client091) ([]string, error) {
		return nil, c.ch.ExchangeDeclare(a.text("name", ""), a.text("type", "direct"), a.is("durable", true), a.is("auto_delete", false), a.is("internal", false), false, t)
	})
}

func declareQueue(p *player, a *args) ([]string, error) {
	t, err := a.table("args")
	if err != nil {
		return nil, err
	}
	return p.call(func(c *client091) ([]string, error) {
		q, err := c.ch.QueueDeclare(a.text("name", ""), a.is("durable", true), a.is("auto_delete", false), a.is("exclusive", false), false, t)
		if err == nil && a.has("as") {
			p.vars[a.text("as", "")] = q.Name
		}
		return nil, err
	})
}

func deleteQueue(p *player, a *args) ([]string, error) {
	return p.call(func(c *client091) ([]string, error) {
		n, err := c.ch.QueueDelete(a.text("name", ""), false, false, false)
		return []string{fmt.Sprintf("deleted with %d messages", n)}, err
	})
}

func purge(p *player, a *args) ([]string, error) {
	return p.call(func(c *client091) ([]string, error) {
		n, err := c.ch.QueuePurge(a.text("name", ""), false)
		return []string{fmt.Sprintf("purged %d messages", n)}, err
	})
}

func bind(p *player, a *args) ([]string, error) {
	t, err := a.table("args")
	if err != nil {
		return nil, err
	}
	return p.call(func(c *client091) ([]string, error) {
		return nil, c.ch.QueueBind(a.text("queue", ""), a.text("key", ""), a.text("exchange", ""), false, t)
	})
}

// publish091 publishes one message, or count of them (m1, m2, ...), and waits until they are confirmed.
func publish091(p *player, a *args) ([]string, error) {
	msg, err := a.publishing()
	if err != nil {
		return nil, err
	}
	bodies := []string{a.text("body", "m1")}
	if n := a.number("count", 0); n > 0 {
		bodies = nil
		for i := range n {
			bodies = append(bodies, "m"+strconv.Itoa(i+1))
		}
	}
	return p.call(func(c *client091) ([]string, error) {
		var lines []string
		for _, body := range bodies {
			msg.Body = []byte(body)
			if size := a.number("size", 0); size > len(body) {
				msg.Body = append(msg.Body, strings.Repeat(".", size-len(body))...)
			}
			if err := c.ch.PublishWithContext(context.Background(), a.text("exchange", ""), a.text("key", ""), false, false, msg); err != nil {
				return lines, err
			}
			select {
			case confirm := <-c.confirms:
				if !confirm.Ack {
					lines = append(lines, "nack")
				}
			case err := <-c.closed:
				return lines, err
			case <-time.After(p.timeout):
				return append(lines, "not confirmed"), nil
			}
		}
		return lines, nil
	})
}

func (a *args) publishing() (amqp.Publishing, error) {
	headers, err := a.table("headers")
	msg := amqp.Publishing{Headers: headers}
	if err != nil {
		return msg, err
	}
	for name, n := range a.mapping("props") {
		v := a.p.expand(n.Value)
		number, _ := strconv.ParseInt(v, 10, 64)
		switch name {
		case "content-type":
			msg.ContentType = v
		case "content-encoding":
			msg.ContentEncoding = v
		case "delivery-mode":
			msg.DeliveryMode = uint8(number)
		case "priority":
			msg.Priority = uint8(number)
		case "correlation-id":
			msg.CorrelationId = v
		case "reply-to":
			msg.ReplyTo = v
		case "expiration":
			msg.Expiration = v
		case "message-id":
			msg.MessageId = v
		case "timestamp":
			msg.Timestamp = time.Unix(number, 0)
		case "type":
			msg.Type = v
		case "user-id":
			msg.UserId = v
		case "app-id":
			msg.AppId = v
		default:
			return msg, fmt.Errorf("there is no property %q", name)
		}
	}
	return msg, nil
}

// get091 waits for count messages of a queue and shows them. They stay unsettled unless no_ack is true.
func get091(p *player, a *args) ([]string, error) {
	return p.call(func(c *client091) ([]string, error) {
		var lines []string
		for range a.number("count", 1) {
			var d amqp.Delivery
			var ok bool
			var err error
			until(p.timeout, func() bool {
				d, ok, err = c.ch.Get(a.text("queue", ""), a.is("no_ack", false))
				return ok || err != nil
			})
			if err != nil {
				return lines, err
			}
			if !ok {
				return append(lines, "empty"), nil
			}
			c.tags[string(d.Body)], c.tags[""] = d.DeliveryTag, d.DeliveryTag
			if a.has("as") {
				p.vars[a.text("as", "")] = d.ReplyTo
			}
			lines = append(lines, showDelivery(d)...)
		}
		return lines, nil
	})
}

func settle091(how string) func(*player, *args) ([]string, error) {
	return func(p *player, a *args) ([]string, error) {
		return p.call(func(c *client091) ([]string, error) {
			tag, ok := c.tags[a.text("of", "")]
			if !ok {
				return nil, fmt.Errorf("no message %q was delivered by AMQP 0-9-1", a.text("of", ""))
			}
			switch how {
			case "ack":
				return nil, c.ch.Ack(tag, false)
			case "nack":
				return nil, c.ch.Nack(tag, a.is("multiple", false), a.is("requeue", false))
			}
			return nil, c.ch.Reject(tag, a.is("requeue", false))
		})
	}
}

// close091 closes the connection by AMQP 0-9-1: what it had not settled goes back, its exclusive queues go.
func close091(p *player, _ *args) ([]string, error) {
	if p.old == nil {
		return nil, nil
	}
	err := p.old.conn.Close()
	p.old = nil
	return nil, err
}

// showDelivery shows a message as AMQP 0-9-1 has it: where it came from, its properties, a line for each header.
func showDelivery(d amqp.Delivery) []string {
	first := fmt.Sprintf("%s exchange=%q key=%q", showBytes(d.Body), d.Exchange, d.RoutingKey)
	if d.Redelivered {
		first += " redelivered"
	}
	lines := []string{first}
	var words []string
	text := func(name, v string) {
		if v != "" {
			words = append(words, fmt.Sprintf("%s=%q", name, v))
		}
	}
	text("content-type", d.ContentType)
	text("content-encoding", d.ContentEncoding)
	if d.DeliveryMode != 0 {
		words = append(words, fmt.Sprintf("delivery-mode=%d", d.DeliveryMode))
	}
	if d.Priority != 0 {
		words = append(words, fmt.Sprintf("priority=%d", d.Priority))
	}
	text("correlation-id", d.CorrelationId)
	text("reply-to", d.ReplyTo)
	text("expiration", d.Expiration)
	text("message-id", d.MessageId)
	if !d.Timestamp.IsZero() {
		words = append(words, "timestamp="+showSeconds(d.Timestamp))
	}
	text("type", d.Type)
	text("user-id", d.UserId)
	text("app-id", d.AppId)
	if len(words) > 0 {
		lines = append(lines, "  "+strings.Join(words, " "))
	}
	return append(lines, indent(showHeaders(d.Headers))...)
}

func showSeconds(t time.Time) string {
	if d := time.Since(t); d > -time.Hour && d < time.Hour {
		return "<time>"
	}
	return fmt.Sprint(t.Unix())
}

// showHeaders writes a table one entry a line, and a list of tables such as x-death one element a line.
func showHeaders(t amqp.Table) []string {
	var lines []string
	for _, k := range sortedKeys(t) {
		if list, ok := t[k].([]any); ok && len(list) > 0 {
			if _, ok := list[0].(amqp.Table); ok {
				for i, e := range list {
					lines = append(lines, fmt.Sprintf("%s[%d] = %s", k, i, showField091(e)))
				}
				continue
			}
		}
		lines = append(lines, k+" = "+showField091(t[k]))
	}
	return lines
}

// showField091 writes a field of a table with its type: i64 is a 64-bit integer, str a long string, and so on.
func showField091(v any) string {
	switch v := v.(type) {
	case nil:
		return "void"
	case bool:
		return fmt.Sprintf("bool %t", v)
	case int8, int16, int32, int64:
		return fmt.Sprintf("i%d %d", bits(v), v)
	case uint8, uint16, uint32, uint64:
		return fmt.Sprintf("u%d %d", bits(v), v)
	case float32:
		return fmt.Sprintf("f32 %g", v)
	case float64:
		return fmt.Sprintf("f64 %g", v)
	case amqp.Decimal:
		return fmt.Sprintf("dec %d:%d", v.Scale, v.Value)
	case string:
		return fmt.Sprintf("str %q", v)
	case []byte:
		return "bin " + showBytes(v)
	case time.Time:
		return "time " + showSeconds(v)
	case amqp.Table:
		parts := make([]string, 0, len(v))
		for _, k := range sortedKeys(v) {
			parts = append(parts, k+"="+showField091(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			parts = append(parts, showField091(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("%T %v", v, v)
}

func bits(v any) int {
	switch v.(type) {
	case int8, uint8:
		return 8
	case int16, uint16:
		return 16
	case int32, uint32:
		return 32
	}
	return 64
}

// field091 turns a node into a field of AMQP 0-9-1. Plain numbers become 32-bit integers where they fit; the tags !i8 !u8
// !i16 !u16 !i32 !u32 !i64 !f32 !f64 !dec !bin !time name the other types.
func field091(n *yaml.Node, expand func(string) string) (any, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return field091(n.Alias, expand)
	case yaml.MappingNode:
		t := amqp.Table{}
		for i := 0; i < len(n.Content); i += 2 {
			v, err := field091(n.Content[i+1], expand)
			if err != nil {
				return nil, err
			}
			t[n.Content[i].Value] = v
		}
		return t, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			v, err := field091(c, expand)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	integer := func(bits int) (int64, error) { return strconv.ParseInt(n.Value, 0, bits) }
	unsigned := func(bits int) (uint64, error) { return strconv.ParseUint(n.Value, 0, bits) }
	switch n.Tag {
	case "!!null":
		return nil, nil
	case "!!bool":
		return n.Value == "true", nil
	case "!!int":
		if v, err := integer(32); err == nil {
			return int32(v), nil
		}
		return integer(64)
	case "!!float", "!f64":
		return strconv.ParseFloat(n.Value, 64)
	case "!f32":
		v, err := strconv.ParseFloat(n.Value, 32)
		return float32(v), err
	case "!i8":
		v, err := integer(8)
		return int8(v), err
	case "!u8":
		v, err := unsigned(8)
		return uint8(v), err
	case "!i16":
		v, err := integer(16)
		return int16(v), err
	case "!u16":
		v, err := unsigned(16)
		return uint16(v), err
	case "!i32":
		v, err := integer(32)
		return int32(v), err
	case "!u32":
		v, err := unsigned(32)
		return uint32(v), err
	case "!i64":
		return integer(64)
	case "!time":
		v, err := integer(64)
		return time.Unix(v, 0), err
	case "!bin":
		return []byte(n.Value), nil
	case "!dec": // scale:value
		scale, value, _ := strings.Cut(n.Value, ":")
		s, err := strconv.ParseUint(scale, 10, 8)
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseInt(value, 10, 32)
		return amqp.Decimal{Scale: uint8(s), Value: int32(v)}, err
	}
	return expand(n.Value), nil
}
