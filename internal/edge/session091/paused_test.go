package session091

import (
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// BR-9.8: a consumer whose client is behind is noted together with the delivery that was one
// too many. Noted later, it would wait for ever if the client had taken all meanwhile.
func TestAPausedConsumerIsNotedWithItsDelivery(t *testing.T) {
	c := &conn{}
	k := &consumer{ch: &channel{c: c}}
	for _, size := range []uint32{10, highWater} {
		it := item{kind: itemDelivery, ch: k.ch, consumer: k, d: queue.Delivery{Content: queue.Content{Body: message.Ref(1 << 63), Size: size}}}
		more := c.deliver(&it)
		if want := size < highWater; more != want {
			t.Fatalf("after %d bytes there is room for more: %t", size, more)
		}
		if noted := len(c.out.paused) == 1; noted == more {
			t.Errorf("room for more: %t; noted as paused: %t", more, noted)
		}
	}
	if k.Deliver(nil, &k.Consumer, &queue.Delivery{Content: queue.Content{Body: message.Ref(1 << 63)}}) || len(c.out.paused) != 2 {
		t.Errorf("noted as paused %d times, want 2", len(c.out.paused))
	}
}

// BR-9.8: what waits for a client takes room in its output, too. A client that does not read has a bounded number of empty messages wait.
func TestEmptyMessagesFillAnOutbox(t *testing.T) {
	b := brokerOn(t, vfs.NewMem())
	defer b.Close()
	body, _ := b.Bodies().Alloc(1)
	defer b.Bodies().Release(body)
	c := &conn{broker: b}
	k := &consumer{ch: &channel{c: c}}
	most := highWater/int(unsafe.Sizeof(item{})) + 1
	for n := 1; k.Deliver(nil, &k.Consumer, &queue.Delivery{Content: queue.Content{Body: body}}); n++ {
		if n > most {
			t.Fatalf("more than %d empty messages wait", most)
		}
	}
}
