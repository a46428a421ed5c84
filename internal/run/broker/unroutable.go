package broker

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// OnUnroutable calls f when messages are dropped that reached no queue, until it is called with nil. f must not block.
func (b *Broker) OnUnroutable(f func()) {
	if f == nil {
		b.onUnroutable.Store(nil)
		return
	}
	b.onUnroutable.Store(&f)
}

// unroutable notes that messages reached no queue.
func (b *Broker) unroutable(t *Traffic, dropped uint64) {
	if t.UnroutableDropped.Add(dropped); dropped > 0 {
		if f := b.onUnroutable.Load(); f != nil {
			(*f)()
		}
	}
}

// TakeUnroutable calls f for each exchange that has dropped messages since the last call, with their number. What went with a deleted
// exchange is not told. f must not wait for anything. REQUIRES: one goroutine at a time.
func (b *Broker) TakeUnroutable(f func(vhost message.VHost, exchange message.ExchangeName, count uint64)) {
	now := b.Totals.dropped()
	if now == b.toldUnroutable {
		return
	}
	b.toldUnroutable = now
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			v.EachExchange(func(x *topology.Exchange) {
				st := b.statsOf(x)
				now := st.Dropped.Load()
				if n := now - st.told; n > 0 {
					st.told = now
					f(v.Name, x.Name, n)
				}
			})
		}
	})
}
