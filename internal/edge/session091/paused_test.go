package session091

import (
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/serving"
)

// BR-9.8: a consumer whose client is behind is paused, and goes on when the client has taken enough, also if that was before it was
// paused.
func TestAPausedConsumerGoesOn(t *testing.T) {
	c := &conn{}
	c.out.Init(&c.sock, pen{c})
	k := &consumer{ch: &channel{c: c}}
	for _, size := range []uint32{10, serving.HighWater} {
		it := item{kind: itemDelivery, ch: k.ch, consumer: k, d: queue.Delivery{Content: queue.Content{Body: message.Ref(1 << 63), Size: size}}}
		more := c.deliver(&it)
		if want := size < serving.HighWater; more != want {
			t.Fatalf("after %d bytes there is room for more: %t", size, more)
		}
		if may := (pen{c}).Resumable(pausedConsumer{c: k}); may != more {
			t.Errorf("room for more: %t; a paused consumer may go on: %t", more, may)
		}
	}
	if k.Deliver(nil, &k.Consumer, &queue.Delivery{Content: queue.Content{Body: message.Ref(1 << 63)}}) {
		t.Error("a client that is behind gets more")
	}
}

// BR-9.8: what waits for a client takes room in its output, too. A client that does not read has a bounded number of empty messages wait.
func TestEmptyMessagesFillAnOutbox(t *testing.T) {
	b := brokerOn(t, vfs.NewMem())
	defer b.Close()
	body, _ := b.Bodies().Alloc(1)
	defer b.Bodies().Release(body)
	c := &conn{broker: b}
	c.out.Init(&c.sock, pen{c})
	k := &consumer{ch: &channel{c: c}}
	most := serving.HighWater/int(unsafe.Sizeof(item{})) + 1
	for n := 1; k.Deliver(nil, &k.Consumer, &queue.Delivery{Content: queue.Content{Body: body}}); n++ {
		if n > most {
			t.Fatalf("more than %d empty messages wait", most)
		}
	}
}
