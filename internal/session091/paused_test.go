package session091

import (
	"testing"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// BR-9.8: a consumer whose client is behind is noted together with the delivery that was one
// too many. Noted later, it would wait for ever if the client had taken all meanwhile.
func TestAPausedConsumerIsNotedWithItsDelivery(t *testing.T) {
	c := &conn{}
	k := &consumer{ch: &channel{c: c}}
	for _, size := range []uint32{10, highWater} {
		it := item{kind: itemDelivery, ch: k.ch, consumer: k, d: queue.Delivery{Body: message.Ref(1 << 63), Size: size}}
		more := c.deliver(&it)
		if want := size < highWater; more != want {
			t.Fatalf("after %d bytes there is room for more: %t", size, more)
		}
		if noted := len(c.out.paused) == 1; noted == more {
			t.Errorf("room for more: %t; noted as paused: %t", more, noted)
		}
	}
	if k.Deliver(nil, &k.Consumer, &queue.Delivery{Body: message.Ref(1 << 63)}) || len(c.out.paused) != 2 {
		t.Errorf("noted as paused %d times, want 2", len(c.out.paused))
	}
}
