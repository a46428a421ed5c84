package session091

import (
	"time"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// writeTimeout is how long a client may take for writePiece bytes. It always has at least half of that.
const writeTimeout = 2 * time.Minute

// writePiece is larger than a usual write.
const writePiece = 2 * writeSize

// lastWords is how long the end of a connection waits for the client to accept the last
// frames.
const lastWords = 5 * time.Second

// write is the writer: it sends the items that flush left to it, and heartbeats (BR-1.9).
func (c *conn) write() {
	beat := time.NewTimer(time.Hour)
	defer beat.Stop()
	for {
		select {
		case <-c.out.wakec:
		case <-beat.C:
			if c.out.idle() {
				c.out.put(amqp091.AppendHeartbeat)
			}
		case <-c.ended:
			c.writeLast()
			return
		}
		c.writeAll()
		if h := time.Duration(c.beat.Load()); h > 0 {
			beat.Reset(h / 2)
		}
	}
}

// writeLast sends the last frames, and keeps the pen for good, because the connection's output is
// dismantled after it.
func (c *conn) writeLast() {
	for c.writeAll(); !c.out.keep(); c.writeAll() {
		<-c.out.wakec // another goroutine has the pen, and may be waiting for the disk
	}
	c.writeTaken() // others may have left items just then
}

// writeAll sends until the output is empty.
func (c *conn) writeAll() {
	o := &c.out
	for {
		o.mu.Lock()
		if c.dead.Load() || !o.held && len(o.stuck) > 0 {
			o.paused = nil // its consumers are being detached; stuck items leave no room for more
		}
		if o.held || o.items.Len() == 0 && len(o.wire) == 0 && len(o.paused) == 0 {
			if !o.held {
				c.window.Free()
			}
			o.mu.Unlock()
			return
		}
		o.held = true
		o.take()
		o.mu.Unlock()
		c.writeTaken()
		o.mu.Lock()
		o.held = false
		var resume []pausedConsumer
		if o.pending.Load() < lowWater && len(o.paused) > 0 && len(o.stuck) == 0 {
			resume, o.paused = o.paused, nil
		}
		o.mu.Unlock()
		for _, p := range resume {
			c.link.Resume(p.q, &p.c.Consumer)
		}
	}
}

// writeTaken sends the taken items, and bytes that another goroutine has encoded before. REQUIRES: the pen.
func (c *conn) writeTaken() {
	o := &c.out
	ok := true
	send := func(b []byte) bool {
		if ok && !c.dead.Load() && len(b) > 0 {
			held.Nothing("a client")
			if err := c.writePieces(b); err != nil {
				c.broken(err)
				ok = false
			}
		}
		return ok && !c.dead.Load()
	}
	c.encode(send)
	send(o.wire)
	o.wire = o.wire[:0]
	if cap(o.wire) > 4*writeSize {
		o.wire = nil
	}
}

// writePieces writes b with a deadline for each piece, so that a slow client also gets a large message,
// and is not cut off in it again and again. REQUIRES: the pen.
func (c *conn) writePieces(b []byte) error {
	for len(b) > 0 {
		c.extendWriteDeadline()
		n, err := c.nc.Write(b[:min(len(b), writePiece)])
		c.stats.sent(n)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// extendWriteDeadline keeps the write deadline in the future. It moves the deadline only when it is near. REQUIRES:
// the pen.
func (c *conn) extendWriteDeadline() {
	select {
	case <-c.ended:
		return // end has set the last one
	default:
	}
	if now := time.Now(); c.writeBy.Sub(now) < writeTimeout/2 {
		c.writeBy = now.Add(writeTimeout)
		_ = c.nc.SetWriteDeadline(c.writeBy)
		select {
		case <-c.ended: // it ended just now: the last deadline may be overwritten
			_ = c.nc.SetWriteDeadline(now.Add(lastWords))
		default:
		}
	}
}

// idle says whether there is nothing to send and nobody sends. It checks the pen first, because
// encoded bytes belong to its holder.
func (o *output) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.held && o.items.Len() == 0 && len(o.wire) == 0
}

// giveBack returns unsent deliveries to their queues and releases their references.
// REQUIRES: the connection has no consumer left that could get them again.
func (c *conn) giveBack(items []item) {
	store := c.broker.Bodies()
	var ops []partition.Op
	for i := range items {
		it := &items[i]
		if it.kind == itemRaw || it.kind == itemRecovered || it.kind == itemOwn { // these are never stuck, but an output has them
			continue
		}
		if it.kind != itemReply && !it.d.NoAck {
			ops = append(ops, returnOp(it, queue.ReturnClosed))
		}
		if len(ops) == maxOps {
			c.broker.Node().Run(ops)
			ops = ops[:0]
		}
		c.out.pending.Add(-int64(it.bytes))
		store.Release(it.d.Body)
		store.Release(it.d.History)
	}
	c.broker.Node().Run(ops)
}

func returnOp(it *item, how queue.ReturnKind) partition.Op {
	op := partition.Op{Kind: partition.Return, Queue: it.q, ID: it.d.ID, Consumer: it.d.By, How: how}
	if it.consumer != nil {
		op.Consumer = &it.consumer.Consumer
	}
	return op
}

// returnLate returns one delivery whose channel was closed, or recovered, before it was sent.
func (c *conn) returnLate(it *item, how queue.ReturnKind) {
	op := returnOp(it, how)
	c.broker.Node().Run([]partition.Op{op})
	if how == queue.ReturnRecover && it.consumer != nil {
		it.consumer.givesBack()
	}
}

// drainOutbox returns all unsent deliveries. The reader and the writer have ended, and no
// consumer is attached. REQUIRES: the pen.
func (c *conn) drainOutbox() {
	c.out.mu.Lock()
	items := c.out.items
	c.out.items = serving.List[item]{}
	stuck := c.out.stuck
	c.out.stuck = nil
	c.window.Free()
	c.out.mu.Unlock()
	c.giveBack(stuck)
	for k := range items.Chunks() {
		c.giveBack(items.Chunk(k))
	}
}
