package broker

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/wire/amqp091"
)

// bccOf is a BCC header with n keys of 255 bytes, none the queue's but the last.
func bccOf(n int, queue string) amqp091.PropertyList {
	keys := amqp091.Array{}
	for range n {
		keys = append(keys, strings.Repeat("b", 255))
	}
	two := uint8(2)
	return amqp091.PropertyList{DeliveryMode: &two, Headers: amqp091.Table{{Key: "BCC", Value: append(keys, queue)}, {Key: "h", Value: "v"}}}
}

// A header frame has room for more BCC keys than 64 KiB: the message is carried unchanged, also through a restart.
func TestBR_8_5_ManyBCCKeysAreCarried(t *testing.T) {
	fs := vfs.NewMem()
	start := func() *Connection {
		b, err := Open(Options{FS: fs, Dir: "data"})
		if err != nil {
			t.Fatal(err)
		}
		return b.As("guest", "/")
	}
	c := start()
	if err := c.b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "q")
	mustDeclare(t, c, "r")
	publish(t, c, "", "q", "body", bccOf(300, "r"))
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	c = start()
	defer func() { _ = c.b.Close() }()
	for _, queue := range []message.QueueName{"q", "r"} {
		g, ok, err := c.Get(queue, true)
		if err != nil || !ok {
			t.Fatalf("get %s: %t, %v", queue, ok, err)
		}
		var window bodies.Window
		b, err := c.b.bodies.Read(g.Body, &window)
		if err != nil {
			t.Fatal(err)
		}
		rec := message.Record(b)
		props, err := amqp091.DecodeProps(rec.Properties())
		if err != nil || len(props.Headers) != 1 || props.Headers[0].Key != "h" || string(rec.Body()) != "body" || len(rec.BCC()) != 300*256+2 {
			t.Errorf("%s: properties %+v, %v, body %q, %d bytes of BCC keys", queue, props, err, rec.Body(), len(rec.BCC()))
		}
		c.b.bodies.Release(g.Body)
	}
}

// Names that a record has no room for are refused before anything is done.
func TestMessagesThatCannotBeKeptAreRefused(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	raw := amqp091.AppendPropsFrom(nil, bccOf(message.MaxBCC/256+1, "q"))
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]*Publication{
		"header BCC has keys of": {Key: []byte("q"), Raw: raw, Props: props},
		"exchange should be at":  {Exchange: []byte(strings.Repeat("x", 303)), Raw: []byte{0, 0}},
		"routing_key should be":  {Key: []byte(strings.Repeat("k", 256)), Raw: []byte{0, 0}},
	} {
		_, err := c.PublishOne(p)
		var refused *topology.Error
		if !errors.As(err, &refused) || refused.Kind != topology.PreconditionFailed || !strings.Contains(refused.Text, what) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
