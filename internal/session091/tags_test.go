package session091

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/queue"
)

// silent is a socket that nobody speaks through.
type silent struct{ net.Conn }

func (silent) SetReadDeadline(time.Time) error { return nil }

func (silent) Close() error { return nil }

// BR-9.7: who settles what it got with the same write waits until that has its tag, whatever
// others want of the connection meanwhile. Where that is its end, all it holds goes back, and
// nothing is wrong with the tag.
func TestBR_9_7_ASettlementWaitsForItsTag(t *testing.T) {
	for name, interrupt := range map[string]func(c *conn){
		"another channel is to be closed": func(c *conn) { c.abort(&channel{c: c, number: 2}, fail(amqp091.CodePreconditionFailed, "late")) },
		"the connection is to be closed":  func(c *conn) { c.Terminate(320, "closed") },
		"the socket is broken":            func(c *conn) { c.broken(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &conn{nc: silent{}, heedc: make(chan struct{}, 1)}
				c.out.tagc, c.out.wakec = make(chan struct{}, 1), make(chan struct{}, 1)
				ch := &channel{c: c, number: 1}
				ch.untagged.Store(1)
				ended := false
				var failed error
				go func() {
					failed = ch.settle(1, false, amqp091.BasicAckID, partition.Op{Kind: partition.Ack})
					ended = true
				}()
				synctest.Wait()
				interrupt(c)
				synctest.Wait()
				if goesOn := c.shutdown.Load() == nil && !c.dead.Load(); ended == goesOn {
					t.Errorf("it has ended: %t", ended)
				}
				ch.mu.Lock()
				ch.unacked.push(unacked{tag: 1, q: &partition.Queue{}, id: 1, consumer: &queue.Consumer{}})
				ch.mu.Unlock()
				c.tagged(ch)
				synctest.Wait()
				if !ended || failed != nil {
					t.Errorf("it has ended: %t, with %v", ended, failed)
				}
			})
		})
	}
}
