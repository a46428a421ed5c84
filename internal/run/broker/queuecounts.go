package broker

import (
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// CountedQueue is a queue and its counters at one moment.
type CountedQueue struct {
	Queue  *topology.Queue
	Info   QueueInfo
	Counts partition.Counts
}

// CountQueues counts every queue, one after the other. Each is right by itself, but their sum belongs to no one
// moment. Queues are sorted by virtual host and name.
func (b *Broker) CountQueues() []CountedQueue {
	var all []CountedQueue
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			v.EachQueue(func(q *topology.Queue) { all = append(all, CountedQueue{Queue: q, Info: Describe(q)}) })
		}
	})
	slices.SortFunc(all, func(a, b CountedQueue) int { return a.Info.compare(&b.Info) })
	b.node.SettleAll()
	for i := range all {
		all[i].Counts = b.node.CountsNow(runtimeOf(all[i].Queue))
	}
	return all
}
