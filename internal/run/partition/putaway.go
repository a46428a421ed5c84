package partition

// What does not fit into memory goes to disk: the bodies of pages that nobody will need soon, those of large messages, and
// if that is not enough those of all that the journal has (queue.PutBodiesAway); and pages of the index. Each partition's
// worker does that for its own queues, in slices; if publishers are faster than the workers, they help.

// putAwaySlice is how many pages one hold puts away, of bodies and of the index each.
const putAwaySlice = 32

// putAwayLate is the same while something is overdue, which goes first.
const putAwayLate = 4

// restBetweenSweeps is how long a partition lets its queues be after all of them
// were looked at, in milliseconds.
const restBetweenSweeps = 20

// A sweep for the index that has freed less than one part in vainSweep of the partition's
// was in vain: what is left in memory is needed there.
// Then the partition lets its queues be until it has looked at them for a tenth of the
// time only, or the index has grown by half of its budget.
const vainSweep = 64

// coolShare is the part of their budget that bodies are put away below it, so that it is not done for each message.
const coolShare = 16

// tightShare is the part of their budget that bodies have while the node's memory is nearly used up: by whatever else.
const tightShare = 8

// ShortOfMemory says whether the memory that the node may use is nearly used up. It is said again as long as it is so.
func (n *Node) ShortOfMemory(short bool) {
	if n.tight.Store(short); !short {
		return
	}
	for _, p := range n.all {
		p.wake() // perhaps nobody publishes who would
	}
}

// bodyRoom is how much memory bodies may take.
func (n *Node) bodyRoom() int64 {
	if n.tight.Load() {
		return n.BodyBudget / tightShare
	}
	return n.BodyBudget
}

// short says whether there is less memory than there should be: for bodies, and for the index.
func (n *Node) short() (bodies, index bool) {
	return n.Index != nil && n.bodies.Memory() > n.bodyRoom(), n.Index != nil && n.lent.Load() > n.IndexBudget
}

// excess is how many bytes of bodies are to be put away.
func (n *Node) excess() int64 {
	room := n.bodyRoom()
	return n.bodies.Memory() - (room - room/coolShare)
}

// restAfterScratch is for how long no bodies are put away after one could not be written, in milliseconds.
const restAfterScratch = 5000

// mayPutAway says for what of that which is short it is not too early.
func (p *Partition) mayPutAway(bodies, index bool, now int64) (mayBodies, mayIndex bool) {
	until := p.rest.Load()
	if p.node.lent.Load() <= p.node.IndexBudget/2*3 {
		until = max(until, p.vain.Load())
	}
	bodies = bodies && now >= p.node.unscratched.Load()
	return bodies && (p.cooling.Load() || now >= p.cooled.Load()), index && (p.sweeping.Load() || now >= until)
}

// putAway puts away a slice of the partition's bodies and pages if memory is short.
func (p *Partition) putAway() {
	n := p.node
	bodies, index := n.short()
	if p.cooling.Load() {
		if bodies = n.excess() > 0; !bodies {
			p.cooling.Store(false)
		}
	}
	if !index && p.sweeping.Swap(false) {
		p.mu.Lock()
		p.sweep = nil
		p.mu.Unlock()
	}
	if !bodies {
		p.early.Store(false)
	}
	if !bodies && !index {
		return
	}
	may, mayIndex := p.mayPutAway(bodies, index, n.Now())
	if bodies && !may && p.cooling.Swap(false) {
		p.early.Store(true) // one could not be written: the worker sleeps until it may try again
	}
	if bodies, index = may, mayIndex; !bodies && !index {
		return
	}
	if bodies {
		p.early.Store(false)
	}
	h := n.lock(p)
	before := p.store.written
	limit := putAwaySlice
	if p.late() > 0 {
		limit = putAwayLate
	}
	if bodies {
		more := p.pages.PutBodiesAway(limit, n.excess()) // as it is now: others may have put some away
		if !more {
			p.cooled.Store(h.now + restBetweenSweeps)
		}
		p.cooling.Store(more)
	}
	if index {
		p.sweepIndex(h, limit)
	}
	if p.cooling.Load() || p.sweeping.Load() {
		p.wake() // if it was not the worker
	}
	wrote := p.store.written > before
	n.unlock(h)
	if wrote {
		n.at(FailSpill)
	}
}

// sweepIndex puts away so many of the partition's pages. REQUIRES: p.mu is held, by h.
func (p *Partition) sweepIndex(h *hold, limit int) {
	if len(p.sweep) == 0 {
		if _, may := p.mayPutAway(false, true, h.now); !may { // somebody else has just ended it
			return
		}
		p.swept, p.freed = h.now, 0
		for _, q := range p.queues {
			if q.m.Long() {
				q.m.SweepAgain(true)
				p.sweep = append(p.sweep, q)
			}
		}
	}
	for limit > 0 && len(p.sweep) > 0 {
		q := p.sweep[len(p.sweep)-1]
		did := 0
		if !q.gone {
			before := p.pages.Bytes()
			did = q.m.PutAway(limit, true)
			p.freed += before - p.pages.Bytes()
		}
		if limit -= did; did == 0 {
			p.sweep = p.sweep[:len(p.sweep)-1]
		}
	}
	if len(p.sweep) > 0 {
		p.sweeping.Store(true)
		return
	}
	vain := int64(0)
	if p.freed < p.pages.Bytes()/vainSweep {
		vain = h.now + min(9*(h.now-p.swept), 1000)
	}
	p.vain.Store(vain)
	p.rest.Store(h.now + restBetweenSweeps) // what could be put away has been
	p.sweeping.Store(false)
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
