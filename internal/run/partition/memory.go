package partition

import "sync/atomic"

// What does not fit into memory goes to disk: first the bodies of pages that are not needed soon, then those of large
// messages, then all bodies that the journal has (queue.PutBodiesAway); and pages of the index. This file compares what
// is in memory with what there is room for, and asks for relief. Each partition gives it for its own queues (relief.go).

const (
	// coolShare is the part of their budget that bodies are put away below it, so that it is not done for each message.
	coolShare = 16
	// tightShare is the part of their budget that bodies have while the node's memory is nearly used up: by whatever else.
	tightShare = 8
	// scratchPause is for how long no bodies are put away after one could not be written, in milliseconds.
	scratchPause = 5000
)

// memory is what bodies and the index of all partitions take, and may take.
type memory struct {
	n *Node

	tight        atomic.Bool   // see ShortOfMemory
	index        atomic.Int64  // bytes of pages of the index
	scratchAgain atomic.Int64  // when bodies may be put away again after one could not be written, in milliseconds since 1970
	helped       atomic.Uint64 // how often others have helped the workers
}

// ShortOfMemory says whether the memory that the node may use is nearly used up. It is said again as long as it is so.
func (n *Node) ShortOfMemory(short bool) {
	if n.memory.tight.Store(short); !short {
		return
	}
	for _, p := range n.all {
		p.wake() // perhaps nobody publishes who would
	}
}

// room is how much memory bodies may take.
func (m *memory) room() int64 {
	if m.tight.Load() {
		return m.n.Budget.Bodies / tightShare
	}
	return m.n.Budget.Bodies
}

// excess is how many bytes of bodies are to be put away.
func (m *memory) excess() int64 {
	room := m.room()
	return m.n.bodies.Memory() - (room - room/coolShare)
}

// short says whether there is less memory than there should be: for bodies, and for the index.
func (m *memory) short() (bodies, index bool) {
	if m.n.Index == nil {
		return false, false
	}
	return m.n.bodies.Memory() > m.room(), m.index.Load() > m.n.Budget.Index
}

// relieve has the workers put bodies and pages away if memory is short. If they cannot keep up it does some of the
// work itself: that slows down publishers who are faster than the disk.
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
