package broker

import (
	"slices"
	"sync"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// departures are the functions to call when queues are deleted, by the queues. Consumers hear of it from their partition; this is
// for others.
type departures struct {
	mu   sync.Mutex
	last uint64
	by   map[queueKey]map[uint64]func()
}

type queueKey struct {
	vhost message.VHost
	name  message.QueueName
}

// OnDeleted calls f when the queue is deleted, until cancel is called. f must not block; it may be called once more after cancel.
func (b *Broker) OnDeleted(vhost message.VHost, name message.QueueName, f func()) (cancel func()) {
	d, key := &b.departures, queueKey{vhost, name}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	id := d.last
	if d.by == nil {
		d.by = map[queueKey]map[uint64]func(){}
	}
	if d.by[key] == nil {
		d.by[key] = map[uint64]func(){}
	}
	d.by[key][id] = f
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if delete(d.by[key], id); len(d.by[key]) == 0 {
			delete(d.by, key)
		}
	}
}

// tellDeleted calls who waits for the end of the queue, in the order in which they came.
func (b *Broker) tellDeleted(q *topology.Queue) {
	d := &b.departures
	d.mu.Lock()
	waiting := d.by[queueKey{q.VHost, q.Name}]
	ids := make([]uint64, 0, len(waiting))
	for id := range waiting {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	list := make([]func(), len(ids))
	for i, id := range ids {
		list[i] = waiting[id]
	}
	d.mu.Unlock()
	for _, f := range list {
		f()
	}
}
