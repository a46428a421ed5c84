package session091

import (
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// opOwner gets the outcome of an operation.
type opOwner struct {
	ch  *channel // nil: none
	tag uint64   // of the publish to be confirmed
}

// addOp adds an operation to the batch of this read.
func (c *conn) addOp(op partition.Op, owner opOwner) {
	c.ops = append(c.ops, op)
	c.opOwner = append(c.opOwner, owner)
	if len(c.ops) >= maxOps || c.opBytes >= maxOpBytes {
		c.flushOps()
	}
}

// addPublish is addOp for a publish whose record has size bytes.
func (c *conn) addPublish(op partition.Op, owner opOwner, size int) {
	c.opBytes += size
	c.targets += len(op.Targets)
	c.addOp(op, owner)
}

const (
	// maxOps is the number of collected operations at which they are run.
	maxOps = 512
	// maxOpBytes is the same for the bytes that they publish or note: one read may complete a
	// large message on each of many channels.
	maxOpBytes = 4 << 20
	// entrySize is the approximate memory of a queue's entry: a message in a thousand queues
	// takes more than its publisher has sent.
	entrySize = 32
)

// nothingToRun notes a publish that reaches no queue, for example an unroutable one. It is
// not an operation, but in confirm mode it is confirmed in its turn.
func (ch *channel) nothingToRun() {
	if ch.confirms == nil {
		return
	}
	ch.confirms.ran(ch.confirms.add(ch.publishing(ch.content.exchange)), &partition.Op{})
	ch.c.owesConfirms(ch)
}

// owesConfirms notes a channel with publishes that were run.
func (c *conn) owesConfirms(ch *channel) {
	if !ch.confirms.listed {
		ch.confirms.listed = true
		c.confirming = append(c.confirming, ch)
	}
}

// flushOps runs the collected operations, and notes the publishes to confirm.
func (c *conn) flushOps() {
	if len(c.ops) == 0 {
		return
	}
	if targets := c.targets; targets > len(c.ops) {
		c.broker.Received((targets - len(c.ops)) * entrySize)
	}
	c.targets = 0
	c.receipt.Add(c.link.Run(c.ops))
	for i := range c.ops {
		if ch := c.opOwner[i].ch; ch != nil {
			c.owesConfirms(ch)
			ch.confirms.ran(c.opOwner[i].tag, &c.ops[i])
		}
	}
	clear(c.ops)
	c.ops, c.opOwner, c.opBytes = c.ops[:0], c.opOwner[:0], 0
	c.pumpGated()
}

// confirm confirms the publishes that were run, as far as possible (BR-8.8). Publishes in
// the journal are confirmed after a sync: the reader makes the sync, or waits for the
// goroutine that does, and publishes that arrive meanwhile make the next batch. The sync may
// also commit proposals of replicated queues; their answers come through Answered.
func (c *conn) confirm() {
	c.flushOps() // no publish may wait for its confirm without being run
	if len(c.confirming) == 0 {
		return
	}
	if err := c.link.Await(c.receipt); err != nil {
		c.sock.Break() // the node stops and confirms nothing more
		return
	}
	c.receipt = partition.Receipt{}
	for _, ch := range c.confirming {
		ch.confirms.listed = false
		ch.confirms.durable()
		ch.sendConfirms()
	}
	clear(c.confirming)
	c.confirming = c.confirming[:0]
}

func (ch *channel) confirmSelect(m *amqp091.ConfirmSelect) error {
	if ch.tx != nil {
		return fail(amqp091.CodePreconditionFailed, "cannot switch from tx to confirm mode")
	}
	if ch.confirms == nil {
		ch.confirms = &confirms{first: 1}
		ch.shown.confirm.Store(true)
	}
	ch.reply(amqp091.ConfirmSelectOk{}, m.NoWait)
	return nil
}
