package partition

import "bartleby.mq/internal/safety/held"

// calmWait is a wait until what has died in a queue has left it, or cannot.
type calmWait struct {
	died uint64 // see queue.Machine.DeathCount
	c    chan struct{}
}

// SettleDeaths waits until what has died in a queue so far has left it, that which is due
// by now included, as far as it can: so that it is not lost with a queue that is to be
// deleted. What is published, or dies, meanwhile is not waited for: there may be no end of
// it. REQUIRES: the node runs, and the caller has nothing locked that a Router needs.
func (n *Node) SettleDeaths(q *Queue) {
	began := n.Now()
	for n.awaitCalm(q) {
		due := false
		if n.with(q, func(h *hold) { due = q.m.ExpiresBy(min(began, h.now)) }) != nil || !due { // the clock may have gone back
			return
		}
		if q.part.driver.do(q, tick{}, new(ask)) != nil {
			return
		}
	}
}

// awaitCalm waits until what has died in q by now has left it or cannot, and says whether it is so.
func (n *Node) awaitCalm(q *Queue) bool {
	held.Nothing("the deaths of a queue")
	p := q.part
	p.mu.Lock()
	died := q.m.DeathCount()
	if !q.routing || q.gone || !q.m.Awaits(died) {
		p.mu.Unlock()
		return true
	}
	c := make(chan struct{})
	q.calmc = append(q.calmc, calmWait{died, c})
	p.mu.Unlock()
	select {
	case <-c:
		return true
	case <-n.stop:
		return false
	}
}

// calm ends all waits: the deaths of q are not routed any more. REQUIRES: q is held.
func (q *Queue) calm() {
	for _, w := range q.calmc {
		close(w.c)
	}
	q.calmc = nil
}

// calmBy ends the waits that are over. REQUIRES: q is held.
func (q *Queue) calmBy() {
	if !q.routing {
		q.calm()
	}
	for len(q.calmc) > 0 && !q.m.Awaits(q.calmc[0].died) { // those behind it wait for as much or more
		close(q.calmc[0].c)
		q.calmc = q.calmc[1:]
	}
}
