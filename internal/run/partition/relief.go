package partition

import "sync/atomic"

const (
	// reliefSlice is how many pages one hold puts away, of bodies and of the index each.
	reliefSlice = 32
	// reliefLate is the same while something is overdue, which goes first.
	reliefLate = 4
	// reliefPause is how long a partition lets its queues be after it has put away what it could, in milliseconds.
	reliefPause = 20
)

// A sweep for the index that has freed less than one part in vainSweep of the partition's
// was in vain: what is left in memory is needed there.
// Then the partition lets its queues be until it has looked at them for a tenth of the
// time only, or the index has grown by half of its budget.
const vainSweep = 64

// A relief puts bodies and pages of one partition away while memory is short, a slice at a time. The partition's worker
// does it, and publishers help if the worker cannot keep up. Atomic fields are read with nothing locked; the partition's
// mutex guards the others.
type relief struct {
	p *Partition

	// Of bodies.
	cooling atomic.Bool  // there are more to put away
	cooled  atomic.Int64 // when it may begin again if there were no more, in milliseconds since 1970
	early   atomic.Bool  // it was asked to before that

	// Of pages of the index: a sweep looks at all long queues.
	sweeping   atomic.Bool  // there are more to put away
	sweepAgain atomic.Int64 // when the next sweep may begin, in milliseconds since 1970
	vainUntil  atomic.Int64 // the same, after one in vain, while the index is not much too large
	queues     []*Queue     // that this sweep still looks at
	began      int64        // when this sweep did
	freed      int          // bytes that it has freed so far
	told       int          // bytes of pages, as the node counts them
}

// may says for what of that which is short it is not too early.
func (r *relief) may(bodies, index bool, now int64) (mayBodies, mayIndex bool) {
	m := &r.p.node.memory
	until := r.sweepAgain.Load()
	if m.index.Load() <= m.n.Budget.Index/2*3 {
		until = max(until, r.vainUntil.Load())
	}
	bodies = bodies && now >= m.scratchAgain.Load()
	return bodies && (r.cooling.Load() || now >= r.cooled.Load()), index && (r.sweeping.Load() || now >= until)
}

// request wakes the worker for what is short, unless it is too early. For bodies the worker then looks again by
// itself: perhaps there is no other request.
func (r *relief) request(bodies, index bool, now int64) {
	may, mayIndex := r.may(bodies, index, now)
	if may || mayIndex || bodies && !r.early.Swap(true) {
		r.p.wake()
	}
}

// under says whether there is more to put away now.
func (r *relief) under() bool { return r.cooling.Load() || r.sweeping.Load() }

// work puts away a slice of the partition's bodies and pages if memory is short.
func (r *relief) work() {
	p, n := r.p, r.p.node
	bodies, index := n.memory.short()
	if r.cooling.Load() {
		if bodies = n.memory.excess() > 0; !bodies {
			r.cooling.Store(false)
		}
	}
	if !index && r.sweeping.Swap(false) {
		p.mu.Lock()
		r.queues = nil
		p.mu.Unlock()
	}
	if !bodies {
		r.early.Store(false)
	}
	if !bodies && !index {
		return
	}
	may, mayIndex := r.may(bodies, index, n.Now())
	if bodies && !may && r.cooling.Swap(false) {
		r.early.Store(true) // one could not be written: the worker sleeps until it may try again
	}
	if bodies, index = may, mayIndex; !bodies && !index {
		return
	}
	if bodies {
		r.early.Store(false)
	}
	h := n.lock(p)
	before := p.store.written
	limit := reliefSlice
	if p.late() > 0 {
		limit = reliefLate
	}
	if bodies {
		more := p.pages.PutBodiesAway(limit, n.memory.excess()) // as it is now: others may have put some away
		if !more {
			r.cooled.Store(h.now + reliefPause)
		}
		r.cooling.Store(more)
	}
	if index {
		r.sweep(h, limit)
	}
	if r.under() {
		p.wake() // if it was not the worker
	}
	wrote := p.store.written > before
	n.unlock(h)
	if wrote {
		n.at(FailSpill)
	}
}

// sweep puts away up to limit of the partition's pages. REQUIRES: the partition is held, by h.
func (r *relief) sweep(h *hold, limit int) {
	p := r.p
	if len(r.queues) == 0 {
		if _, may := r.may(false, true, h.now); !may { // somebody else has just ended it
			return
		}
		r.began, r.freed = h.now, 0
		for _, q := range p.queues {
			if q.m.Long() {
				q.m.SweepAgain(true)
				r.queues = append(r.queues, q)
			}
		}
	}
	for limit > 0 && len(r.queues) > 0 {
		q := r.queues[len(r.queues)-1]
		did := 0
		if !q.gone {
			before := p.pages.Bytes()
			did = q.m.PutAway(limit, true)
			r.freed += before - p.pages.Bytes()
		}
		if limit -= did; did == 0 {
			r.queues = r.queues[:len(r.queues)-1]
		}
	}
	if len(r.queues) > 0 {
		r.sweeping.Store(true)
		return
	}
	vain := int64(0)
	if r.freed < p.pages.Bytes()/vainSweep {
		vain = h.now + min(9*(h.now-r.began), 1000)
	}
	r.vainUntil.Store(vain)
	r.sweepAgain.Store(h.now + reliefPause) // what could be put away has been
	r.sweeping.Store(false)
}

// count tells the node how much memory the partition's pages take. REQUIRES:
// the partition is held.
func (r *relief) count() {
	if bytes := r.p.pages.Bytes(); bytes != r.told {
		r.p.node.memory.index.Add(int64(bytes - r.told))
		r.told = bytes
	}
}
