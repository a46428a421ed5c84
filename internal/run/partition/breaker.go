package partition

import "bartleby.mq/internal/core/queue"

// broken is a change of a queue's breaker, which is told of when nothing is locked.
type broken struct {
	q      *Queue
	change queue.BreakerChange
	as     queue.Broken
}

// Broke implements queue.Sink. Of a replicated queue only the leader tells: nobody hears of it twice, and nobody again when a
// start repeats the log.
func (q *Queue) Broke(change queue.BreakerChange, b queue.Broken) {
	if g := q.part.group; q.part.node.OnBreaker != nil && (g == nil || g.leads) {
		h := q.part.hold
		h.broken = append(h.broken, broken{q, change, b})
	}
}

// tellBroken tells of the breakers that have changed in the hold.
func (n *Node) tellBroken(h *hold) {
	for _, b := range h.broken {
		n.OnBreaker(b.q, b.change, b.as)
	}
	clear(h.broken)
	h.broken = h.broken[:0]
}

// closeBreaker closes the breaker, if it is open or tries.
type closeBreaker struct{}

func (closeBreaker) write(w *commandWriter, queue uint64) { w.op(cmdCloseBreaker, queue) }

func (closeBreaker) apply(x *execution, q *Queue) {
	before := q.m.Breaker(x.h.now)
	q.m.ResetBreaker()
	q.m.Pump(x.h.now, sliceLimit)
	if x.show(q); x.ask != nil {
		x.ask.counts.Breaker = before
	}
}

// CloseBreaker closes the breaker of a queue and returns what it was before.
func (n *Node) CloseBreaker(q *Queue) (before queue.Broken, err error) {
	var a ask
	err = q.part.driver.do(q, closeBreaker{}, &a)
	return a.counts.Breaker, err
}

// Breaker shows the breaker of a queue. It waits for nothing.
func (n *Node) Breaker(q *Queue) (b queue.Broken) {
	_ = n.with(q, func(h *hold) { b = q.m.Breaker(h.now) })
	return b
}
