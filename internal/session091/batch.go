package session091

import (
	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/partition"
)

// opOwner is who wants to know what became of an operation.
type opOwner struct {
	ch  *channel // nil: nobody
	tag uint64   // of the publish to be confirmed
}

// addOp adds an operation to the batch of this read.
func (c *conn) addOp(op partition.Op, owner opOwner) {
	c.ops = append(c.ops, op)
	c.opOwner = append(c.opOwner, owner)
	if len(c.ops) >= maxOps {
		c.flushOps()
	}
}

// addPublish is addOp of a publish whose record has size bytes.
func (c *conn) addPublish(op partition.Op, owner opOwner, size int) {
	c.opBytes += size
	c.addOp(op, owner)
	if c.opBytes >= maxOpBytes {
		c.flushOps()
	}
}

const (
	// maxOps is how many operations are collected before they are run.
	maxOps = 512
	// maxOpBytes likewise for what they publish: one read may complete a large
	// message on each of many channels.
	maxOpBytes = 4 << 20
)

// flushOps runs what was collected, and notes what is to be confirmed.
func (c *conn) flushOps() {
	if len(c.ops) == 0 {
		return
	}
	c.link.Run(c.ops)
	for i := range c.ops {
		if ch := c.opOwner[i].ch; ch != nil && ch.confirms != nil {
			if len(ch.confirms.waiting) == 0 {
				c.confirming = append(c.confirming, ch)
			}
			ch.confirms.waiting = append(ch.confirms.waiting, confirm{c.opOwner[i].tag, c.ops[i].Pos, c.ops[i].Refused})
		}
	}
	clear(c.ops)
	c.ops, c.opOwner, c.opBytes = c.ops[:0], c.opOwner[:0], 0
	if c.ungate {
		c.ungate = false
		c.pumpGated()
	}
}

// confirm answers the publishes that were run (BR-8.8). What was logged is
// confirmed when the journal has it: the reader itself leads the sync, or waits
// for whoever does, and what arrives meanwhile makes the next batch.
func (c *conn) confirm() {
	if len(c.confirming) == 0 {
		return
	}
	var need journal.Pos
	for _, ch := range c.confirming {
		for i := range ch.confirms.waiting {
			need = max(need, ch.confirms.waiting[i].pos)
		}
	}
	if need != 0 {
		if err := c.link.Commit(need); err != nil {
			c.broken(err) // the node stops; nothing is confirmed any more
			return
		}
	}
	c.out.put(func(b []byte) []byte {
		for _, ch := range c.confirming {
			b = ch.confirms.append(b, ch.number)
			c.broker.Totals.Confirmed.Add(uint64(len(ch.confirms.waiting)))
			ch.confirms.waiting = ch.confirms.waiting[:0]
		}
		return b
	})
	clear(c.confirming)
	c.confirming = c.confirming[:0]
}

// append writes the acks and nacks; neighbours with the same answer share one (BR-8.8).
func (w *confirms) append(b []byte, number uint16) []byte {
	for i := 0; i < len(w.waiting); {
		j := i
		for j+1 < len(w.waiting) && w.waiting[j+1].refused == w.waiting[i].refused {
			j++
		}
		last, multiple := w.waiting[j].tag, j > i
		if w.waiting[i].refused {
			b = amqp091.AppendNack(b, number, last, multiple)
		} else {
			b = amqp091.AppendAck(b, number, last, multiple)
		}
		i = j + 1
	}
	return b
}

func (ch *channel) confirmSelect(m *amqp091.ConfirmSelect) error {
	if ch.tx != nil {
		return fail(amqp091.CodePreconditionFailed, "cannot switch from tx to confirm mode")
	}
	if ch.confirms == nil {
		ch.confirms = &confirms{}
		ch.shown.confirm.Store(true)
	}
	ch.reply(amqp091.ConfirmSelectOk{}, m.NoWait)
	return nil
}
