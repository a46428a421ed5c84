package session091

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/wire/amqp091"
)

// Who reads slowly, but reads, gets a large message whole: were it cut, the message would come again and count, up to the
// delivery limit.
func TestASlowReaderGetsALargeMessage(t *testing.T) {
	const size = 12 << 20
	synctest.Test(t, func(t *testing.T) {
		b := brokerOn(t, vfs.NewMem())
		near, far := net.Pipe()
		p := dialled(t, b, near, far, 1)
		p.send(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "q", Durable: true}))
		p.send(published("q", size))
		p.pause = time.Second // for 64 KiB at most
		p.send(amqp091.AppendMethod(nil, 1, amqp091.BasicConsume{Queue: "q", NoAck: true}))
		time.Sleep(3 * size / (64 << 10) * time.Second)
		synctest.Wait()
		if p.body != size {
			t.Errorf("%d bytes of %d have come", p.body, size)
		}
		p.pause = 0
		_ = far.Close()
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}
