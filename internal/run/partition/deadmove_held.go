package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
)

// A dead letter that a target refuses, or has not answered for, waits in the queue where it died, if that queue
// dead-letters at least once. It is held, not deliverable, and counted, until all its targets have taken it (DL-13.*).
// Targets that have it are not asked again. Held deaths are tried again now and then, and when their settings change.

// waiting is what targets have said of entries that stay in their queue until all have answered: held deaths, and
// messages on offer (Node.Move).
type waiting struct {
	taken   map[queue.ID]targetSet // these have the entry already (DL-13.5)
	asked   map[queue.ID]targetSet // these, in other logs, were asked and have not answered
	refused map[queue.ID]bool      // of held deaths: some target has refused it since it was tried last

	dropping bool // what is held is being deleted, and not tried again: see dropHeldSlices
}

// take notes that targets have the entry. It sorts them.
func (w *waiting) take(id queue.ID, targets ...uint64) {
	if w.taken == nil {
		w.taken = map[queue.ID]targetSet{}
	}
	w.taken[id] = w.taken[id].union(targets)
}

// ask notes that targets in other logs were asked to take the entry. It sorts them.
func (w *waiting) ask(id queue.ID, targets ...uint64) {
	if w.asked == nil {
		w.asked = map[queue.ID]targetSet{}
	}
	w.asked[id] = w.asked[id].union(targets)
}

// tell notes that some targets were asked to take the entry, and that others have taken it. It sorts them.
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

// note says whether a target has refused the held entry when it was tried last.
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

// forget is called when the entry has left its queue, or waits no longer. Answers may still come.
func (w *waiting) forget(id queue.ID) {
	delete(w.taken, id)
	delete(w.refused, id)
}

// outcome is what becomes of a held death that is waited for no longer: it was routed if any
// target has it.
func (w *waiting) outcome(id queue.ID) deadletter.Outcome {
	if len(w.taken[id]) > 0 {
		return deadletter.Routed
	}
	return deadletter.Deleted
}

// retryHeld has the router try the held deaths of q again, if this process is to see to them. REQUIRES: q is held.
func (p *Partition) retryHeld(q *Queue) {
	if p.group != nil && !p.group.leads || q.retrying {
		return
	}
	q.retrying = true // once, however often its settings change meanwhile
	p.leaving.Lock()
	p.retry = append(p.retry, q)
	p.leaving.Unlock()
	p.wakeRouter()
}

// retryHeld tries the held deaths of q again (DL-13.4).
func (q *Queue) retryHeld() {
	n := q.part.node
	h := n.lock(q.part)
	q.retrying = false
	if q.gone || q.routing || q.waiting.dropping || q.m.Totals().Held == 0 || !q.m.Settings().DeadLetter {
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
		for left := held; len(left) > 0; {
			h := n.lock(q.part)
			m, picked := q.pickHeld(left[:min(len(left), sliceLimit/2)])
			_, caused := m.run(n.finishHold(h))
			left = left[picked:]
			n.moveDead(caused)
		}
	}
	n.moveDead([]*Queue{q}) // what died meanwhile, and the end of routing
}

// pickHeld pins the first of some held deaths, and says how many of them it has looked at. REQUIRES: q is held, and
// q.routing is the caller's.
func (q *Queue) pickHeld(list []queue.Death) (m *deadmove, picked int) {
	m = q.part.node.deadmove(q)
	m.again = true
	p := portion{store: m.n.bodies}
	for ; picked < len(list); picked++ {
		if d, ok := q.m.Held(list[picked].ID); ok && !q.gone && !q.waiting.dropping {
			if !p.takes(&d) {
				break
			}
			m.pin(&d)
			m.deaths = append(m.deaths, d)
		}
	}
	return m, picked
}

// When at-least-once is switched off, what waits for its targets is deleted, as RabbitMQ does (DL-13.10).

// heldDrop deletes held deaths of a queue, and counts them.
type heldDrop struct {
	q        *Queue
	messages int
	bytes    int64
}

// dropHeld deletes them all, in one hold. REQUIRES: q is held.
func (q *Queue) dropHeld(h *hold) {
	drop := heldDrop{q: q}
	q.m.RangeHeld(func(d queue.Death) bool {
		drop.one(h, &d)
		return true
	})
	drop.end()
}

// dropHeldSlices is dropHeld of a classic queue, in slices. Should at-least-once be switched on again meanwhile, what is
// still held stays.
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
	q.stats.Dead[d.Reason.Counted()][q.waiting.outcome(d.ID)]++ // for the node it counts since it died
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

// keepOffers forgets what is known of held deaths, of which there are none any more.
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
