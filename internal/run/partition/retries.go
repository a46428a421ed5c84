package partition

import (
	"context"

	"bartleby.mq/internal/core/queue/index"
)

// Retries calls f with the moment at which each message of the queue that waits for a retry comes back. It goes through the
// index in slices, with other work in between, and reads no message. f is called with the queue locked, so it must be quick.
func (n *Node) Retries(ctx context.Context, q *Queue, f func(until int64)) error {
	var cursor index.SaveCursor
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := n.with(q, func(h *hold) {
			if done = q.m.Totals().Delayed == 0; !done {
				cursor, done = q.m.RetriesFrom(cursor, 2*sliceLimit, f)
			}
			h.entries = sliceLimit
		})
		if err != nil {
			return err
		}
	}
	return nil
}
