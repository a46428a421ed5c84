package partition

import "sync/atomic"

// Whoever wants to know which queues have got letters asks for those that something came to since it last asked. So that
// asking costs nothing while nothing comes, a queue enters a list of its partition with the first such message; later ones
// find it there.

// arrivalWatch is the node's side. The zero value watches nothing.
type arrivalWatch struct {
	on   atomic.Bool
	wake func()
}

// arrivalMark says what came to a queue since TakeArrivals.
type arrivalMark uint8

const (
	cameUnknown arrivalMark = 1 << iota // a message that may be a letter: a client may have written into its headers that it died
	cameDead                            // a message with a history
)

// WatchArrivals says what to call when there is something to take; a partition is locked then, so wake must not block. It is
// called once, before WantArrivals.
func (n *Node) WatchArrivals(wake func()) { n.arrivals.wake = wake }

// WantArrivals begins to note arrivals, or ends it.
func (n *Node) WantArrivals(on bool) { n.arrivals.on.Store(on) }

// noteArrival notes that a message has entered the queue. REQUIRES: q is held.
func (q *Queue) noteArrival(a *arrival) {
	mark := cameUnknown
	switch {
	case a.entry.History != 0:
		mark = cameDead
	case a.rec != nil && !a.rec.HasHeaders():
		return
	}
	if q.arrived == 0 && !q.config.Delays {
		p := q.part
		p.leaving.Lock()
		p.arrived = append(p.arrived, q)
		p.leaving.Unlock()
		p.node.arrivals.wake()
	}
	q.arrived |= mark
}

// TakeArrivals calls f for each queue in which something came since the last call that may be a letter; died is false if only
// its headers can say so. Nothing is locked while f runs. REQUIRES: one goroutine at a time.
func (n *Node) TakeArrivals(f func(q *Queue, died bool)) {
	for _, p := range n.all {
		p.leaving.Lock()
		list := p.arrived
		p.arrived = nil
		p.leaving.Unlock()
		for _, q := range list {
			p.mu.Lock()
			mark, gone := q.arrived, q.gone
			q.arrived = 0
			p.mu.Unlock()
			if !gone {
				f(q, mark&cameDead != 0)
			}
		}
	}
}
