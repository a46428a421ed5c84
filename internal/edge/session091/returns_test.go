package session091

import (
	"net"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp091"
)

// What is returned is not copied while the output is locked, which a partition waits for that delivers to the same
// connection; it comes whole, and before what answers it.
func TestReturnsAreHandedOver(t *testing.T) {
	const size, n = 2 * serving.WriteSize, 3
	mandatory := amqp091.AppendMethod(nil, 1, amqp091.BasicPublish{RoutingKey: "nowhere", Mandatory: true})
	mandatory = append(mandatory, published("nowhere", size)[len(amqp091.AppendMethod(nil, 1, amqp091.BasicPublish{RoutingKey: "nowhere"})):]...)
	for name, first := range map[string][]byte{"in a transaction": amqp091.AppendMethod(nil, 1, amqp091.TxSelect{}), "one by one": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				p := dialled(t, b, near, far, 1)
				if first != nil {
					p.send(first)
				}
				c := b.Connections()[0].Client().(*conn)
				_, letGo := StopSending(c)
				for range n {
					p.send(mandatory)
				}
				if first != nil {
					p.send(amqp091.AppendMethod(nil, 1, amqp091.TxCommit{}))
				}
				if copied := len(ready(c)); copied > size/2 {
					t.Errorf("%d bytes were copied", copied)
				}
				letGo()
				synctest.Wait()
				if got := p.heard[amqp091.BasicReturnID]; got != n || p.body != n*size {
					t.Errorf("%d messages of %d bytes together were returned", got, p.body)
				}
				if first != nil && p.heard[amqp091.TxCommitOkID] != 1 {
					t.Error("the commit was not answered")
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
