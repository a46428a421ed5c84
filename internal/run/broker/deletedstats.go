package broker

import (
	"sync"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// deletedStats are what queues did that are gone, by their type, so that the node's
// counters never fall.
type deletedStats struct {
	mu     sync.Mutex // guards byType
	byType map[topology.QueueType]*partition.Stats
}

// keepStats keeps the counters of a queue that was deleted.
func (b *Broker) keepStats(t topology.QueueType, st *partition.Stats) {
	b.Totals.QueuesGone.Add(1)
	r := &b.deleted
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byType == nil {
		r.byType = map[topology.QueueType]*partition.Stats{}
	}
	if r.byType[t] == nil {
		r.byType[t] = new(partition.Stats)
	}
	r.byType[t].Add(st)
}

// StatsOfDeleted is what the deleted queues of a type did since the node started, and what became
// of their dead since.
func (b *Broker) StatsOfDeleted(t topology.QueueType) (st partition.Stats) {
	kind := queue.Classic
	if t == topology.Quorum {
		kind = queue.Quorum
	}
	st = b.node.Late(kind)
	r := &b.deleted
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone := r.byType[t]; gone != nil {
		st.Add(gone)
	}
	return st
}
