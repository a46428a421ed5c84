package partition

import "sync/atomic"

const (
	// reliefSlice is how many pages one hold moves to disk, for bodies and for the index each.
	reliefSlice = 32
	// reliefLate is the same while something is overdue, which comes first.
	reliefLate = 4
	// reliefPause is how many milliseconds a partition rests after it has moved everything it could.
	reliefPause = 20
)

// A sweep of the index that frees less than 1/vainSweep of the partition's pages was in vain: the rest is needed in
// memory. Then the partition rests for nine times as long as the sweep took, at most a second, unless the index
// exceeds its budget by half.
const vainSweep = 64

// A relief moves bodies and pages of one partition to disk while memory is short, a slice at a time. The partition's
// worker does it; publishers help if it cannot keep up. Atomic fields are read without a lock; the partition's mutex
// guards the others.
type relief struct {
	p *Partition

	// Of bodies.
	cooling atomic.Bool  // there are more bodies to move
	cooled  atomic.Int64 // when it may begin again after it found no more, in milliseconds since 1970
	early   atomic.Bool  // it was requested before that

	// For pages of the index: a sweep looks at all long queues.
	sweeping   atomic.Bool  // there are more pages to move
	sweepAgain atomic.Int64 // when the next sweep may begin, in milliseconds since 1970
	vainUntil  atomic.Int64 // the same after a sweep in vain, unless the index is far too large
	queues     []*Queue     // long queues that this sweep has still to look at
	began      int64        // when this sweep began
	freed      int          // bytes freed by this sweep
	told       int          // bytes of pages that the node counts for this partition
}

// may says whether it is time to move bodies, and pages, if they are short.
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
// itself, because there may be no other request.
func (r *relief) request(bodies, index bool, now int64) {
	may, mayIndex := r.may(bodies, index, now)
	if may || mayIndex || bodies && !r.early.Swap(true) {
		r.p.wake()
	}
}

// under says whether there is more to move now.
func (r *relief) under() bool { return r.cooling.Load() || r.sweeping.Load() }

// work moves a slice of the partition's bodies and pages to disk if memory is short.
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
		more := p.pages.PutBodiesAway(limit, n.memory.excess()) // excess as it is now: others may have moved some
		if !more {
			r.cooled.Store(h.now + reliefPause)
		}
		r.cooling.Store(more)
	}
	if index {
		r.sweep(h, limit)
	}
	if r.under() {
		p.wake() // the caller may not be the worker
	}
	wrote := p.store.written > before
	n.unlock(h)
	if wrote {
		n.at(FailSpill)
	}
}

// sweep moves up to limit of the partition's pages to disk. REQUIRES: the partition is held, by h.
func (r *relief) sweep(h *hold, limit int) {
	p := r.p
	if len(r.queues) == 0 {
		if _, may := r.may(false, true, h.now); !may { // another goroutine has just ended a sweep
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
	r.sweepAgain.Store(h.now + reliefPause) // all that could be moved was moved
	r.sweeping.Store(false)
}

// count updates how much memory the partition's pages take of the node. REQUIRES: the partition is held.
func (r *relief) count() {
	if bytes := r.p.pages.Bytes(); bytes != r.told {
		r.p.node.memory.index.Add(int64(bytes - r.told))
		r.told = bytes
	}
}
