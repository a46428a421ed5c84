package session091

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-4.5: nothing follows the close of a channel: a consumer that times out, or whose queue goes,
// just when its channel ends is not told of behind it. The number may be another channel's by then.
func TestBR_4_5_NoCancelFollowsTheCloseOfItsChannel(t *testing.T) {
	b, err := broker.Open(broker.Options{FS: vfs.NewMem(), Dir: "data"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for name, ends := range map[string]func(k *consumer){
		"its queue goes": func(k *consumer) { k.QueueGone(nil, nil) },
		"it times out":   func(k *consumer) { k.TimedOut(nil, nil, 1) },
	} {
		for _, closed := range []bool{false, true} {
			c := &conn{capabilities: capabilities{cancelNotify: true}, link: b.As("guest", "/")}
			c.out.Init(&c.sock, pen{c})
			ch := &channel{c: c, number: 1, consumers: map[string]*consumer{}, closed: closed}
			k := &consumer{ch: ch, tag: "c"}
			ch.consumers["c"] = k
			ends(k)
			want := ""
			if !closed {
				want = string(amqp091.AppendMethod(nil, 1, amqp091.BasicCancel{ConsumerTag: "c", NoWait: true}))
			}
			if got := ready(c); got != want {
				t.Errorf("%s, channel closed: %v: sent %q, want %q", name, closed, got, want)
			}
		}
	}
}

// DL-12.7: what a consumer had that the client has cancelled times out as well. The tag may be another's by
// then, which the client must not take for cancelled.
func TestDL_12_7_TheTimeoutOfACancelledConsumerCancelsNoOther(t *testing.T) {
	c := &conn{capabilities: capabilities{cancelNotify: true}}
	c.out.Init(&c.sock, pen{c})
	ch := &channel{c: c, number: 1, consumers: map[string]*consumer{}}
	ch.consumers["c"] = &consumer{ch: ch, tag: "c"}
	(&consumer{ch: ch, tag: "c"}).TimedOut(nil, nil, 1)
	if got := ready(c); got != "" {
		t.Errorf("sent %q, want nothing", got)
	}
}
