package partition

import "sync/atomic"

// Messages that do not fit into memory go to disk: first the bodies of pages that are not needed soon, then the bodies
// of large messages, then all bodies that the journal has (queue.PutBodiesAway); and pages of the index. This file
// compares memory with its budget and asks for relief. Each partition relieves its own queues (relief.go).

const (
	// coolShare: a relief frees 1/16 of the bodies' budget more than it must, so that it need not run for each
	// message.
	coolShare = 16
	// tightShare: bodies have 1/8 of their budget while other things have nearly used up the node's memory.
	tightShare = 8
	// scratchPause: after a body could not be written to disk, none is written for so many milliseconds.
	scratchPause = 5000
)

// memory is how much memory bodies and the index of all partitions use, and may use.
type memory struct {
	n *Node

	tight        atomic.Bool   // see ShortOfMemory
	index        atomic.Int64  // bytes of pages of the index
	scratchAgain atomic.Int64  // when bodies may be written to disk again after a failure, in milliseconds since 1970
	helped       atomic.Uint64 // how often publishers have helped the workers
}

// ShortOfMemory sets whether the node's memory is nearly used up. The caller repeats it while that is so.
func (n *Node) ShortOfMemory(short bool) {
	if n.memory.tight.Store(short); !short {
		return
	}
	for _, p := range n.all {
		p.wake() // perhaps no publisher does it
	}
}

// room is how much memory bodies may take.
func (m *memory) room() int64 {
	if m.tight.Load() {
		return m.n.Budget.Bodies / tightShare
	}
	return m.n.Budget.Bodies
}

// excess is how many bytes of bodies should leave memory.
func (m *memory) excess() int64 {
	room := m.room()
	return m.n.bodies.Memory() - (room - room/coolShare)
}

// short says whether bodies, and the index, exceed their budgets.
func (m *memory) short() (bodies, index bool) {
	if m.n.Index == nil {
		return false, false
	}
	return m.n.bodies.Memory() > m.room(), m.index.Load() > m.n.Budget.Index
}

// relieve makes the workers move bodies and pages to disk if memory is short. If they cannot keep up, it does a part
// itself: that slows down publishers who are faster than the disk.
func (m *memory) relieve() {
	bodies, index := m.short()
	if !bodies && !index {
		return
	}
	n := m.n
	for now, k := n.Now(), 0; k < len(n.all); k++ {
		n.all[k].relief.request(bodies, index, now)
	}
	room := m.room()
	if n.bodies.Memory() > room+room/2 || m.index.Load() > n.Budget.Index+n.Budget.Index/2 {
		n.all[m.helped.Add(1)%uint64(len(n.all))].relief.work()
	}
}
