package journal

import "sync"

// notice is a function to call when a position is durable.
type notice struct {
	pos Pos
	fn  func()
}

// notices are those waiting, and those being called. queued is guarded by the
// journal's mu, due by running, which is taken before mu.
type notices struct {
	queued []notice

	running sync.Mutex
	due     []func()
}

// collect moves what is due below durable from queued to due, in order.
// REQUIRES: mu, running.
func (n *notices) collect(durable Pos) {
	kept := n.queued[:0]
	for _, w := range n.queued {
		if w.pos < durable {
			n.due = append(n.due, w.fn)
		} else {
			kept = append(kept, w)
		}
	}
	clear(n.queued[len(kept):])
	n.queued = kept
}

// run calls what is due. REQUIRES: running.
func (n *notices) run() {
	for _, fn := range n.due {
		fn()
	}
	clear(n.due)
	n.due = n.due[:0]
}

// drop forgets all that wait: their positions will never be durable. REQUIRES: mu.
func (n *notices) drop() { n.queued = nil }

// NotifyCommitted has fn called once the frame at pos is durable: at once, by the
// caller, if it is already; otherwise by whichever goroutine leads the commit
// that makes it so, right after the sync. Queued functions are called in the order
// of their registration, one at a time; one called at once may overtake them.
//
// It starts nothing: unless a Commit for pos or a later position is under way or will
// come, the caller must see to one (Flush alone syncs nothing), or fn is never
// called. Nor is it called on a journal that has failed or is closed: OnFatal tells of
// that. fn must not block, and must not call Commit, Flush or Close; it may Append.
func (j *Journal) NotifyCommitted(pos Pos, fn func()) {
	if pos >= Pos(j.durable.Load()) {
		j.mu.Lock()
		if pos >= Pos(j.durable.Load()) {
			if j.err == nil {
				j.waiting.queued = append(j.waiting.queued, notice{pos, fn})
			}
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
	}
	fn()
}
