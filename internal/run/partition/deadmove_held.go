package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
)

// A held death is an at-least-once death that a target has refused or not answered for. It stays in the queue where
// it died, not deliverable and counted, until all targets have taken it (DL-13.*). Targets that have it are not asked
// again. Held deaths are retried now and then, and when their queue's settings change.

// waiting has the answers of targets for entries that stay in their queue until all have answered: held deaths, and
// offered messages (Node.Move).
type waiting struct {
	taken   map[queue.ID]targetSet // targets that have the entry already (DL-13.5)
	asked   map[queue.ID]targetSet // targets in other logs that were asked and have not answered
	refused map[queue.ID]bool      // held deaths that a target has refused since the last retry

	dropping bool // held deaths are being deleted and not retried: see dropHeldSlices
}

// take notes that targets have the entry. It sorts targets.
func (w *waiting) take(id queue.ID, targets ...uint64) {
	if w.taken == nil {
		w.taken = map[queue.ID]targetSet{}
	}
	w.taken[id] = w.taken[id].union(targets)
}

// ask notes that targets in other logs were asked to take the entry. It sorts targets.
func (w *waiting) ask(id queue.ID, targets ...uint64) {
	if w.asked == nil {
		w.asked = map[queue.ID]targetSet{}
	}
	w.asked[id] = w.asked[id].union(targets)
}

// tell notes which targets were asked to take the entry and which have taken it. It sorts both.
func (w *waiting) tell(id queue.ID, asked, taken []uint64) {
	if len(asked) > 0 {
		w.ask(id, asked...)
	}
	if len(taken) > 0 {
		w.take(id, taken...)
	}
}

// unask notes that a target has answered, and returns how many have not.
func (w *waiting) unask(id queue.ID, target uint64) (left int) {
	set := w.asked[id].without(target)
	if len(set) == 0 {
		delete(w.asked, id)
	} else {
		w.asked[id] = set
	}
	return len(set)
}

// note says whether a target refused the held entry at the last try.
func (w *waiting) note(id queue.ID, refused bool) {
	switch {
	case !refused:
		delete(w.refused, id)
	case w.refused == nil:
		w.refused = map[queue.ID]bool{id: true}
	default:
		w.refused[id] = true
	}
}

// forget is called when the entry has left its queue or no longer waits. Answers may still come.
func (w *waiting) forget(id queue.ID) {
	delete(w.taken, id)
	delete(w.refused, id)
}

// outcome is what becomes of a held death that is given up: it was routed if any target has it.
func (w *waiting) outcome(id queue.ID) deadletter.Outcome {
	if len(w.taken[id]) > 0 {
		return deadletter.Routed
	}
	return deadletter.Deleted
}

// retryHeld makes the router retry the held deaths of q, if this process is responsible. REQUIRES: q is held.
func (p *Partition) retryHeld(q *Queue) {
	if p.group != nil && !p.group.leads || q.retrying {
		return
	}
	q.retrying = true // only once, even if its settings change several times
	p.leaving.Lock()
	p.retry = append(p.retry, q)
	p.leaving.Unlock()
	p.wakeRouter()
}

// retryHeldSoon is retryHeld for a caller that holds nothing.
func (n *Node) retryHeldSoon(q *Queue) {
	h := n.lock(q.part)
	if !q.gone {
		q.part.retryHeld(q)
	}
	n.unlock(h)
}

// retries says whether held deaths of q may have a way out. REQUIRES: q is held.
func (q *Queue) retries() bool {
	s := q.m.Settings()
	return s.DeadLetter || s.LostAndFound
}

// retryHeld retries the held deaths of q (DL-13.4).
func (q *Queue) retryHeld() {
	n := q.part.node
	h := n.lock(q.part)
	q.retrying = false
	if q.gone || q.routing || q.waiting.dropping || q.m.Totals().Held == 0 || !q.retries() {
		n.unlock(h)
		return
	}
	q.routing = true
	n.unlock(h)
	var held []queue.Death
	var cursor index.SaveCursor
	for done := false; !done && !n.stopped(); {
		h := n.lock(q.part)
		held, cursor, done = q.m.HeldFrom(cursor, 2*sliceLimit, held[:0])
		h.entries = len(held)
		n.unlock(h)
		q.tryHeld(held)
	}
	n.moveDead([]*Queue{q}) // what died meanwhile, and the end of routing
}

// tryHeld tries held deaths again. REQUIRES: the caller has set q.routing, and holds nothing.
func (q *Queue) tryHeld(held []queue.Death) {
	n := q.part.node
	for left := held; len(left) > 0; {
		h := n.lock(q.part)
		m, picked := q.pickHeld(left[:min(len(left), sliceLimit/2)])
		_, caused := m.run(n.finishHold(h))
		left = left[picked:]
		n.moveDead(caused)
	}
}

// pickHeld pins the first of some held deaths, and says how many of the list it has passed. REQUIRES: q is held, and
// the caller has set q.routing.
func (q *Queue) pickHeld(list []queue.Death) (m *deadmove, picked int) {
	m = q.part.node.deadmove(q)
	m.again = true
	p := portion{store: m.n.bodies}
	for ; picked < len(list); picked++ {
		if d, ok := q.m.Held(list[picked].ID); ok && !q.gone && !q.waiting.dropping && q.m.Routes(d.Reason) {
			if !p.takes(&d) {
				break
			}
			m.pin(&d)
			m.deaths = append(m.deaths, d)
		}
	}
	return m, picked
}

// When at-least-once is switched off, held deaths are deleted, as in RabbitMQ (DL-13.10).

// heldDrop deletes held deaths of a queue and counts them.
type heldDrop struct {
	q        *Queue
	messages int
	bytes    int64
}

// dropHeld deletes all held deaths in one hold. REQUIRES: q is held.
func (q *Queue) dropHeld(h *hold) {
	drop := heldDrop{q: q}
	q.m.RangeHeld(func(d queue.Death) bool {
		drop.one(h, &d)
		return true
	})
	drop.end()
}

// dropHeldSlices is dropHeld for a classic queue, in slices. If at-least-once is switched on again meanwhile, deaths
// that are still held stay.
func (q *Queue) dropHeldSlices() {
	drop := heldDrop{q: q}
	var held []queue.Death
	var cursor index.SaveCursor
	for done := false; !done; {
		gone := q.part.node.with(q, func(h *hold) {
			if q.m.Settings().AtLeastOnce {
				done = true
			} else {
				held, cursor, done = q.m.HeldFrom(cursor, sliceLimit, held[:0])
			}
			h.entries = len(held)
			for i := range held {
				drop.one(h, &held[i])
			}
			held = held[:0]
			if done {
				q.waiting.dropping = false
				drop.end()
			}
		})
		done = done || gone != nil
	}
}

func (f *heldDrop) one(h *hold, d *queue.Death) {
	q := f.q
	body, history, ok := q.m.Bury(d.ID)
	if !ok {
		return
	}
	outcome := q.waiting.outcome(d.ID)
	q.stats.Dead[d.Reason.Counted()][outcome]++ // the node counted it when it died
	q.leftDead(history, d.Logged, d.Reason, outcome)
	h.drop(body, history)
	if d.Logged {
		h.frame.settle(q.Incarnation, d.ID)
	}
	f.messages++
	f.bytes += int64(d.Size)
}

func (f *heldDrop) end() {
	if f.q.m.Totals().Held == 0 {
		f.q.keepOffers()
	}
	if f.messages > 0 {
		f.q.part.node.Logger.Info("Deleted dead-lettered messages that waited for their targets",
			"vhost", f.q.VHost, "queue", f.q.Name, "messages", f.messages, "bytes", f.bytes)
	}
}

// keepOffers forgets all answers except those for offered entries, when no held deaths are left.
func (q *Queue) keepOffers() {
	for _, m := range []map[queue.ID]targetSet{q.waiting.taken, q.waiting.asked} {
		for id := range m {
			if !q.m.Offered(id) {
				delete(m, id)
			}
		}
	}
	q.waiting.refused = nil
}
