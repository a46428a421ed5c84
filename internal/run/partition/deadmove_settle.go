package partition

import "bartleby.mq/internal/safety/held"

// calmWait is a wait until the deaths of a queue so far have left it, or cannot leave.
type calmWait struct {
	died uint64 // see queue.Machine.DeathCount
	c    chan struct{}
}

// SettleDeaths waits until the messages that have died in a queue so far have left it as far as possible, so that
// they are not deleted with the queue. Messages that are due now die first. It does not wait for what is published or
// dies meanwhile: that might never end. REQUIRES: the node runs, and the caller holds no lock that a Router needs.
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

// awaitCalm waits until the deaths of q so far have left it or cannot leave. It returns false if the node stops.
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

// calm ends all waits: the deaths of q are no longer routed. REQUIRES: q is held.
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
	for len(q.calmc) > 0 && !q.m.Awaits(q.calmc[0].died) { // later waits are for as many deaths or more
		close(q.calmc[0].c)
		q.calmc = q.calmc[1:]
	}
}
