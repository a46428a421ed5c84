package broker

import (
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// Arrival is a queue that something has come to which may be a letter.
type Arrival struct {
	Queue QueueInfo
	Died  bool // it has a history; else only its headers can say that it died
}

// WatchArrivals says what to call when TakeArrivals has something to report. wake must not block. It is called once, before
// WantArrivals.
func (b *Broker) WatchArrivals(wake func()) { b.node.WatchArrivals(wake) }

// WantArrivals begins to note arrivals, or ends it: what nobody wants to know costs nothing.
func (b *Broker) WantArrivals(on bool) { b.node.WantArrivals(on) }

// TakeArrivals returns the queues that something has come to since the last call. REQUIRES: one goroutine at a time.
func (b *Broker) TakeArrivals() (list []Arrival) {
	type arrival struct {
		q    *partition.Queue
		died bool
	}
	var all []arrival
	b.node.TakeArrivals(func(q *partition.Queue, died bool) { all = append(all, arrival{q, died}) })
	if len(all) == 0 {
		return nil
	}
	b.glance(func() { // nothing is answered to a client
		for _, a := range all {
			decl, ok := a.q.Info.(*topology.Queue)
			if !ok {
				continue
			}
			if v, ok := b.state.VHost(decl.VHost); ok {
				if now, ok := v.Queue(decl.Name); ok && now == decl {
					list = append(list, Arrival{Describe(decl), a.died})
				}
			}
		}
	})
	return list
}

// HasDeleted says whether the queue was deleted meanwhile.
func (b *Broker) HasDeleted(q QueueInfo) bool { return b.node.HasDeleted(q.runtime) }
