package session091

import (
	"net"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/amqp091"
)

// Whoever wants a channel closed of a connection that is closing does not end it before its client has answered (BR-1.13).
// Who wants the connection closed does.
func TestBR_1_13_AChannelEndsNoConnectionThatCloses(t *testing.T) {
	for name, want := range map[string]int{"a channel": 1, "the connection": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				p := dialled(t, b, near, far, 1)
				synctest.Wait()
				c := b.Connections()[0].Client().(*conn)
				ch := c.channels[1]
				p.send(amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{})) // has no place
				synctest.Wait()
				if p.heard[amqp091.ConnectionCloseID] != 1 {
					t.Fatal("the connection is not closed")
				}
				if name == "a channel" {
					c.abort(ch, fail(amqp091.CodePreconditionFailed, "too late"))
				} else {
					c.Terminate(amqp091.CodeConnectionForced, "now")
				}
				synctest.Wait()
				_, _ = far.Write(amqp091.AppendMethod(nil, 0, amqp091.ConnectionClose{})) // ours, at the same time
				synctest.Wait()
				if n := p.heard[amqp091.ConnectionCloseOkID]; n != want {
					t.Errorf("the client's close was answered %d times, want %d", n, want)
				}
				_ = far.Close()
				synctest.Wait()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
