package session10

import (
	"slices"
	"time"

	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp10"
)

// writeTimeout is how long a client may take for writePiece bytes. It always has at least half of that.
const writeTimeout = 2 * time.Minute

// writePiece is larger than a usual write.
const writePiece = 2 * writeSize

// lastWords is how long the end of a connection waits for the client to accept the last
// frames.
const lastWords = 5 * time.Second

// write is the writer: it sends the items that flush left to it, and empty frames (2.4.5).
func (c *conn) write() {
	beat := time.NewTimer(time.Hour)
	defer beat.Stop()
	for {
		select {
		case <-c.out.wakec:
		case <-beat.C:
			if c.out.idle() {
				c.out.put(amqp10.AppendEmptyFrame)
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
			o.hungry = nil // its consumers are being detached; stuck items leave no room for more
		}
		if o.held || o.items.Len() == 0 && len(o.wire) == 0 && !o.resumable() {
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
		served := o.serve()
		o.mu.Unlock()
		for _, k := range served {
			k.feed()
		}
	}
}

// serve takes those out of the consumers that starve who can go on. REQUIRES: o.mu is held.
func (o *output) serve() (list []*consumer) {
	if len(o.stuck) > 0 {
		return nil
	}
	o.hungry = slices.DeleteFunc(o.hungry, func(k *consumer) bool {
		if !o.served(k) {
			return false
		}
		k.hungry = false
		list = append(list, k)
		return true
	})
	return list
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
