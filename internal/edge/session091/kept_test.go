package session091

import (
	"net"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/wire/amqp091"
)

// A channel does not keep the memory of its largest transaction.
func TestAnEmptyTransactionKeepsLittle(t *testing.T) {
	tx := transaction{
		ops: make([]partition.Op, 100_000), settles: make([]uint64, 100_000), returns: make([]byte, 10<<20), replies: make([]heldReply, 100_000),
	}
	tx.reset()
	if cap(tx.ops) > keptOps || cap(tx.settles) > keptOps || tx.returns != nil || cap(tx.replies) > keptOps {
		t.Errorf("%d operations, %d tags, %d bytes of returns and %d replies are kept", cap(tx.ops), cap(tx.settles), cap(tx.returns), cap(tx.replies))
	}
	tx.ops = append(tx.ops, make([]partition.Op, 10)...)
	kept := cap(tx.ops)
	tx.reset()
	if len(tx.ops) != 0 || cap(tx.ops) != kept {
		t.Error("a small transaction keeps nothing for the next")
	}
}

// BR-12.4: what is counted of a reply is no less than what it takes, while a list grows by a quarter.
func TestBR_12_4_RepliesAreCountedAsWhatTheyTake(t *testing.T) {
	one := (int(reflect.TypeFor[item]().Size()) + 8) * 5 / 4 // 8 of the output's own
	if one > serving.ItemBytes {
		t.Errorf("an item takes %d bytes and is counted as %d", one, serving.ItemBytes)
	}
	if takes := one + int(reflect.TypeFor[reply]().Size()) + 2*16; takes > replyBytes {
		t.Errorf("a reply takes %d bytes and is counted as %d", takes, replyBytes)
	}
}

// Nor does a connection keep the memory of the most that it has settled at once.
func TestAConnectionKeepsLittleOfWhatItSettled(t *testing.T) {
	for name, settle := range map[string]amqp091.Method{
		"acknowledged": amqp091.BasicAck{Multiple: true}, "rejected": amqp091.BasicNack{Multiple: true}, "recovered": amqp091.BasicRecover{Requeue: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				p := dialled(t, b, near, far, 1)
				p.send(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "q"}))
				p.send(amqp091.AppendMethod(nil, 1, amqp091.BasicConsume{Queue: "q"}))
				const n = 4 * keptUnacked
				var all []byte
				for range n {
					all = append(all, published("q", 1)...)
				}
				p.send(all)
				if got := p.heard[amqp091.BasicDeliverID]; got != n {
					t.Fatalf("%d messages came, want %d", got, n)
				}
				p.send(amqp091.AppendMethod(nil, 1, settle))
				c := b.Connections()[0].Client().(*conn)
				if kept := cap(c.settling); kept > keptUnacked {
					t.Errorf("it keeps room for %d", kept)
				}
				p.send(all[:len(published("q", 1))])
				p.send(amqp091.AppendMethod(nil, 1, settle))
				if kept := cap(c.settling); name != "recovered" && kept == 0 {
					t.Error("it keeps no room for a few")
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

// BR-8.11: settlements count in a transaction, one by one and many at once; what is refused settles nothing.
func TestBR_8_11_SettlementsOfATransactionAreBounded(t *testing.T) {
	for name, ack := range map[string]amqp091.Method{"one": amqp091.BasicAck{DeliveryTag: 3}, "many": amqp091.BasicAck{Multiple: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokerOn(t, vfs.NewMem())
				near, far := net.Pipe()
				p := dialled(t, b, near, far, 1)
				p.send(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: "q"}))
				for range 3 {
					p.send(published("q", 1))
				}
				p.send(amqp091.AppendMethod(nil, 1, amqp091.TxSelect{}))
				p.send(amqp091.AppendMethod(nil, 1, amqp091.BasicConsume{Queue: "q"}))
				b.Connections()[0].Client().(*conn).channels[1].tx.steps = partition.MaxSteps - 2
				for tag := range uint64(2) {
					p.send(amqp091.AppendMethod(nil, 1, amqp091.BasicAck{DeliveryTag: tag + 1}))
					if name == "many" {
						break
					}
				}
				if p.heard[amqp091.ChannelCloseID] != 0 {
					t.Error("what may be in a transaction was refused")
				}
				p.send(amqp091.AppendMethod(nil, 1, ack))
				if p.heard[amqp091.ChannelCloseID] != 1 {
					t.Error("more than may be in a transaction was taken")
				}
				if n := b.Node().Counts(runtimeQueue(t, b, "q")); n.Ready != 3 {
					t.Errorf("%d are ready, want all", n.Ready)
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
