package session091

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
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
		"the socket is broken":            func(c *conn) { c.sock.Break() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &conn{state: stateRunning, log: slog.New(slog.DiscardHandler), tagc: make(chan struct{}, 1)}
				c.Stands = func(broker.Standing) {}
				c.sock.Init(silent{}, nil, c.log)
				c.out.Init(&c.sock, pen{c})
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
				if goesOn := c.shutdown.Load() == nil && !c.sock.Dead(); ended == goesOn {
					t.Errorf("it has ended: %t", ended)
				}
				ch.mu.Lock()
				q := &partition.Queue{}
				ch.stats.lastQueue, ch.stats.lastSent = q, &sent{}
				ch.unacked.push(unacked{tag: 1, q: q, id: 1, consumer: &queue.Consumer{}})
				ch.mu.Unlock()
				c.tagged(ch)
				synctest.Wait()
				var want error
				if c.sock.Dead() {
					want = errBroken
				}
				if !ended || !errors.Is(failed, want) {
					t.Errorf("it has ended: %t, with %v, want %v", ended, failed, want)
				}
				if closed := c.state == stateClosing; closed != (c.shutdown.Load() != nil) {
					t.Errorf("the connection is closed: %t", closed)
				}
			})
		})
	}
}

// BR-8.11: a transaction is whole or not there, also where its connection ends when it has a get in hand, or waits for the tag
// of one that it settles: no commit goes on without the settlement.
func TestBR_8_11_ATransactionIsWholeWhereItsConnectionEnds(t *testing.T) {
	for name, at := range map[string]struct{ before, then func(s *severed, c *conn) }{
		"closed while it waits": {func(*severed, *conn) {}, func(_ *severed, c *conn) { c.Terminate(amqp091.CodeConnectionForced, "by an operator") }},
		"broken while it waits": {func(*severed, *conn) {}, func(_ *severed, c *conn) { c.sock.Break() }},
		"broken before the get": {func(s *severed, c *conn) {
			s.cut.Store(true) // the reader goes on
			c.sock.Break()
		}, func(s *severed, _ *conn) { _ = s.Conn.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				socket := &severed{Conn: near}
				p := dialled(t, b, socket, far, 1)
				for _, q := range []string{"in", "out"} {
					p.send(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: q, Durable: true}))
				}
				p.send(published("in", 1))
				p.send(amqp091.AppendMethod(nil, 1, amqp091.TxSelect{}))
				synctest.Wait()
				client := b.Connections()[0].Client()
				in, out := runtimeQueue(t, b, "in"), runtimeQueue(t, b, "out")
				_, letGo := StopSending(client)
				at.before(socket, client.(*conn))
				whole := amqp091.AppendMethod(nil, 1, amqp091.BasicGet{Queue: "in"})
				whole = append(whole, published("out", 1)...)
				whole = amqp091.AppendMethod(whole, 1, amqp091.BasicAck{Multiple: true})
				whole = amqp091.AppendMethod(whole, 1, amqp091.TxCommit{})
				go func() { _, _ = far.Write(whole) }()
				synctest.Wait()
				at.then(socket, client.(*conn))
				synctest.Wait()
				letGo()
				synctest.Wait()
				if n := p.heard[amqp091.TxCommitOkID]; n != 0 {
					t.Error("the client is told of a commit")
				}
				_ = far.Close()
				synctest.Wait()
				if in, out := b.Node().Counts(in).Ready, b.Node().Counts(out).Ready; in != 1 || out != 0 {
					t.Errorf("%d messages in the one queue and %d in the other, want the transaction not to be there", in, out)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
