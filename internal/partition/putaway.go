package partition

// What does not fit into memory goes to disk: first the bodies of pages that
// nobody will need soon, then the pages. Each partition's worker does that for
// its own queues, in slices; if publishers are faster than the workers, they help.

// putAwaySlice is how many pages one hold puts away.
const putAwaySlice = 32

// putAwayLate is the same while something is overdue, which goes first.
const putAwayLate = 4

// restBetweenSweeps is how long a partition lets its queues be after all of them
// were looked at, in milliseconds.
const restBetweenSweeps = 20

// A sweep that has freed less than one part in vainSweep of the partition's index
// was in vain, if nothing but the index is short: what is left in memory is needed there.
// Then the partition lets its queues be until it has looked at them for a tenth of the
// time only, or the index has grown by half of its budget.
const vainSweep = 64

// short says whether there is less memory than there should be: for bodies, and for the index.
func (n *Node) short() (bodies, index bool) {
	return n.Index != nil && n.bodies.Memory() > n.BodyBudget, n.Index != nil && n.lent.Load() > n.IndexBudget
}

// resting says whether it is too early for the next sweep.
func (p *Partition) resting(now int64) bool {
	until := p.rest.Load()
	if p.node.lent.Load() <= p.node.IndexBudget/2*3 {
		until = max(until, p.vain.Load())
	}
	return now < until
}

// putAway puts away a slice of the partition's pages if memory is short.
func (p *Partition) putAway() {
	n := p.node
	bodies, index := n.short()
	if !bodies && !index {
		if p.sweeping.Swap(false) {
			p.mu.Lock()
			p.sweep = nil
			p.mu.Unlock()
		}
		return
	}
	if !p.sweeping.Load() && p.resting(n.Now()) {
		return
	}
	h := n.lock(p)
	written := n.pagesWritten.Load()
	if len(p.sweep) == 0 {
		if p.resting(h.now) { // somebody else has just ended it
			n.unlock(h)
			return
		}
		p.swept, p.freed = h.now, 0
		for _, q := range p.queues {
			if q.m.Long() {
				q.m.SweepAgain(index)
				p.sweep = append(p.sweep, q)
			}
		}
	}
	left := putAwaySlice
	if p.late() > 0 {
		left = putAwayLate
	}
	for left > 0 && len(p.sweep) > 0 {
		q := p.sweep[len(p.sweep)-1]
		did := 0
		if !q.gone {
			before := p.pages.Bytes()
			did = q.m.PutAway(left, index)
			p.freed += before - p.pages.Bytes()
		}
		if left -= did; did == 0 {
			p.sweep = p.sweep[:len(p.sweep)-1]
		}
	}
	if len(p.sweep) > 0 {
		p.sweeping.Store(true)
		p.wake() // if it was not the worker
	} else {
		vain := int64(0)
		if !bodies && p.freed < p.pages.Bytes()/vainSweep {
			vain = h.now + min(9*(h.now-p.swept), 1000)
		}
		p.vain.Store(vain)
		p.rest.Store(h.now + restBetweenSweeps) // what could be put away has been
		p.sweeping.Store(false)
	}
	n.unlock(h)
	if n.pagesWritten.Load() > written {
		n.at(FailSpill)
	}
}

// counted tells the node how much memory the partition's pages take. REQUIRES:
// p.mu is held.
func (p *Partition) counted() {
	n := p.node
	if lent := p.pages.Bytes(); lent != p.lent {
		n.lent.Add(int64(lent - p.lent))
		p.lent = lent
	}
}
