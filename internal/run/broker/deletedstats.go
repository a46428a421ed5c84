package broker

import (
	"sync"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// deletedStats are the counters of deleted queues by type, so that the node's counters never fall.
type deletedStats struct {
	mu     sync.Mutex // guards byType
	byType map[topology.QueueType]*partition.Stats
}

// keepStats adds the counters of a deleted queue.
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

// StatsOfDeleted returns the counters of the deleted queues of a type since the node started, including what became
// of their dead later.
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
