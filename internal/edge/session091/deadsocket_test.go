package session091

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/wire/amqp091"
)

// severed is a socket that fails to write from some moment on, and whose reader is the last to hear of it.
type severed struct {
	net.Conn
	cut atomic.Bool
}

func (s *severed) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return 0, errors.New("cut")
	}
	return s.Conn.Write(b)
}

func (s *severed) Close() error {
	if s.cut.Load() {
		return nil
	}
	return s.Conn.Close()
}

// What cannot be sent any more comes back when its consumer is gone: it had each message once at most. Returned before,
// messages would come to the same consumer again and again, and die of a delivery limit. (DL-11.3, DL-11.4)
func TestDL_11_3_ASocketThatBreaksCountsOnce(t *testing.T) {
	const messages, size = 80, 50_000
	for _, kind := range []string{"quorum", "classic"} {
		for name, get := range map[string]bool{"consumed": false, "got": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := brokerOn(t, vfs.NewMem())
					near, far := net.Pipe()
					socket := &severed{Conn: near}
					p := dialled(t, b, socket, far, 1)
					declare := amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "dead", Durable: true})
					p.send(amqp091.AppendMethod(declare, 1, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{
						{Key: "x-queue-type", Value: kind}, {Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "dead"},
					}}))
					for range messages {
						p.send(published("q", size))
					}
					connection := b.Connections()[0].Client().(*conn)
					socket.cut.Store(true)
					if get {
						var ask []byte
						for range messages {
							ask = amqp091.AppendMethod(ask, 1, amqp091.BasicGet{Queue: "q"})
						}
						p.send(ask)
					} else {
						p.send(amqp091.AppendMethod(nil, 1, amqp091.BasicConsume{Queue: "q"}))
					}
					q, dead := runtimeQueue(t, b, "q"), runtimeQueue(t, b, "dead")
					if n := b.Node().Counts(q); n.Ready+n.Out != messages {
						t.Errorf("%d ready and %d out when the socket is broken", n.Ready, n.Out)
					}
					_ = far.Close()
					synctest.Wait()
					if n := b.Node().Counts(q); n.Ready != messages || n.Out != 0 {
						t.Errorf("%d ready and %d out at the end, want all back", n.Ready, n.Out)
					}
					if n := b.Node().Counts(dead).Ready; n != 0 {
						t.Errorf("%d have died that nobody has had", n)
					}
					if n := connection.out.Pending(); n != 0 {
						t.Errorf("%d bytes wait at the end", n)
					}
					held := b.Bodies().Held()
					for range messages {
						d, _, ok, err := b.Node().Get(q, true)
						if err != nil || !ok {
							t.Fatal(ok, err)
						}
						if d.Counts.Deliveries > 1 || d.Counts.Acquired > 1 {
							t.Errorf("a message came back %d times, %d of them failed", d.Counts.Acquired, d.Counts.Deliveries)
						}
						b.Bodies().Release(d.Body)
						b.Bodies().Release(d.History)
					}
					if left := held - b.Bodies().Held(); left != messages {
						t.Errorf("%d bodies of %d were let go", left, messages)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
