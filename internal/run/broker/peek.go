package broker

import (
	"slices"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// peekSlice is how many messages are read in one hold of the queue.
const peekSlice = 32

// peekBytes is the size at which a slice ends, because the messages are copied.
const peekBytes = 1 << 20

// Peek shows the ready messages, at most limit (0: all), without changing anything: their order, redelivered flags
// and counters stay, and consumers get them as if nobody had looked. It ends when f returns false.
func (c *Connection) Peek(name message.QueueName, limit int, f func(*Shown) bool) error {
	decl, err := c.find(name, c.readable)
	if err != nil {
		return err
	}
	q := runtimeOf(decl)
	left := c.b.node.Counts(q).Ready
	quorum := q.Type() == queue.Quorum
	var cursor queue.Cursor
	for n, done := 0, false; !done; {
		var slice []*Shown
		size := 0
		cursor, done, err = c.b.node.Browse(q, cursor, peekSlice, func(v queue.View, rec message.Record, history []byte) bool {
			if v.Out || v.Dead || v.NotBefore != 0 {
				return true
			}
			left = max(0, left-1)
			s := &Shown{Body: slices.Clone(convert.Body(rec)), Redelivered: v.Redelivered, Left: left}
			s.Properties, s.Exchange, s.Key = Rendered(rec, history, v.Counts, quorum)
			slice = append(slice, s)
			size += len(s.Body) + len(s.Properties)
			return size < peekBytes
		})
		if partition.Gone(err) {
			return topology.NoQueue(c.VHost, name)
		}
		if err != nil {
			return err
		}
		for _, s := range slice {
			if limit > 0 && n == limit || !f(s) {
				return nil
			}
			n++
		}
	}
	return nil
}
