package partition

import (
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/queue"
)

// compact gives disk back. Once the journal has grown to twice what it was after
// the last time, every logged entry is written anew at its end, in slices, and
// the segments before are dropped: what lives is copied once for each doubling,
// what has died is never read. A frame in the dropped segments is not missed,
// since each entry that lives has been told, with all its state, after them.
//
// A record that already lies behind the cut is referred to, not copied. While
// this goes on (Node.compacting), a death is not written as a move from its
// source: a message that moves from a queue not yet visited into one already
// done would be told nowhere behind the cut.
func (n *Node) compact() {
	var total int64
	segments := n.Journal.Segments()
	for _, s := range segments {
		total += s.Bytes
	}
	if total < n.compactAt.Load() {
		return
	}
	// Everything appended from now on lies at or behind the cut.
	cut := uint64(n.Journal.Append([]byte{frameVersion, opCut}))
	n.compacting.Store(cut)
	defer n.compacting.Store(0)
	for _, p := range n.parts {
		p.mu.Lock()
		queues := make([]*Queue, 0, len(p.queues))
		for _, q := range p.queues {
			if q.Durable {
				queues = append(queues, q)
			}
		}
		p.mu.Unlock()
		for _, q := range queues {
			var cursor queue.Cursor
			for done := false; !done; {
				select {
				case <-n.stop:
					return
				default:
				}
				h := n.lock(p)
				if q.gone {
					n.unlock(h)
					break
				}
				cursor, done = n.retell(h, q, cursor, cut)
				n.unlock(h)
				n.relieve()
				n.at(FailCompactMid)
			}
		}
	}
	// Whoever still writes references is let finish before they end.
	n.compacting.Store(0)
	n.unlock(n.lock(n.parts...))
	if err := n.Journal.Commit(n.Journal.Append([]byte{frameVersion, opCutEnd})); err != nil {
		return // the node stops by itself
	}
	if err := n.Journal.DropBefore(journal.Pos(cut).Segment()); err != nil {
		n.Logger.Error("old segments of the journal cannot be dropped", "error", err)
		return
	}
	total = 0
	for _, s := range n.Journal.Segments() {
		total += s.Bytes
	}
	n.compactAt.Store(max(n.CompactBytes, 2*total))
}

// retell writes a slice of the queue's logged entries anew.
func (n *Node) retell(h *hold, q *Queue, after queue.Cursor, cut uint64) (queue.Cursor, bool) {
	return q.m.Browse(after, sliceLimit, func(v queue.View) bool {
		if !v.Logged {
			return true
		}
		e := entered{queue: q.Incarnation, id: v.ID, history: n.historyBytes(v.History)}
		e.r = v.Restored()
		if at := n.bodies.Location(v.Body); at >= cut {
			e.location = at
		} else {
			e.record, e.recordRef = n.bodies.Bytes(v.Body), v.Body
		}
		h.frame.enter(&e)
		if targets := q.answered[v.ID]; len(targets) > 0 {
			h.frame.answered(q.Incarnation, v.ID, targets)
		}
		// Large bodies: do not let one frame grow without end.
		return len(h.frame.b) < frameBytes
	})
}
