package session091

import (
	"sync/atomic"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// publishing counts what a channel publishes to one exchange (BR-15.13). The reader counts, but for confirms; other
// goroutines read.
type publishing struct {
	exchange                                message.ExchangeName
	published, confirmed, returned, dropped atomic.Uint64
}

// sent counts a channel's deliveries from one queue, and their acknowledgements. The channel's mutex guards it.
type sent struct {
	delivered, deliveredNoAck, got, gotNoAck, gotNothing, redelivered, acked uint64
}

// counters are a channel's, by exchange and by queue. Most channels use one of each, so the last one is found without a
// search. What there is no room for counts as of no exchange, or of no queue.
type counters struct {
	active atomic.Int64 // when the client's last frame was read, in milliseconds since 1970

	lastExchange *publishing // the reader's
	others       publishing

	// Guarded by the channel's mutex.
	byExchange map[message.ExchangeName]*publishing
	byQueue    map[*partition.Queue]*sent
	lastQueue  *partition.Queue
	lastSent   *sent
	otherSent  sent
}

// maxCounted is how many exchanges, and how many queues, a channel counts.
const maxCounted = 256

// publishing returns the counters of an exchange. Only the reader calls it.
func (ch *channel) publishing(exchange []byte) *publishing {
	t := &ch.stats
	if t.lastExchange == nil || string(t.lastExchange.exchange) != string(exchange) {
		ch.mu.Lock()
		t.lastExchange = ch.publishingTo(message.ExchangeName(exchange))
		ch.mu.Unlock()
	}
	return t.lastExchange
}

// publishingTo finds or makes the counters of an exchange. REQUIRES: ch.mu is held.
func (ch *channel) publishingTo(exchange message.ExchangeName) *publishing {
	t := &ch.stats
	if p := t.byExchange[exchange]; p != nil {
		return p
	}
	if len(t.byExchange) == maxCounted || ch.closed || !ch.c.link.TakeSeries() {
		return &t.others
	}
	if t.byExchange == nil {
		t.byExchange = map[message.ExchangeName]*publishing{}
	}
	p := &publishing{exchange: exchange}
	t.byExchange[exchange] = p
	return p
}

// sentFrom returns the counters of a queue; nil: a direct reply, which has none. REQUIRES: ch.mu is held.
func (ch *channel) sentFrom(q *partition.Queue) *sent {
	t := &ch.stats
	switch {
	case q == nil:
		return &t.otherSent
	case t.lastQueue == q:
		return t.lastSent
	}
	s := t.byQueue[q]
	if s == nil {
		if s = ch.newSent(); s == nil {
			return &t.otherSent
		}
		t.byQueue[q] = s
	}
	t.lastQueue, t.lastSent = q, s
	return s
}

// newSent makes room for the counters of a queue. Where a channel has had too many queues, it begins anew: most of them
// may be deleted. It returns nil if there is no room.
func (ch *channel) newSent() *sent {
	t := &ch.stats
	if len(t.byQueue) == maxCounted {
		for _, s := range t.byQueue {
			t.otherSent.add(s)
		}
		ch.c.link.GiveSeries(len(t.byQueue))
		clear(t.byQueue)
	}
	if ch.closed || !ch.c.link.TakeSeries() {
		return nil
	}
	if t.byQueue == nil {
		t.byQueue = map[*partition.Queue]*sent{}
	}
	return &sent{}
}

// end gives the room for counters back. REQUIRES: ch.mu is held, and ch is closed.
func (ch *channel) endCounters() {
	t := &ch.stats
	if n := len(t.byExchange) + len(t.byQueue); n > 0 {
		ch.c.link.GiveSeries(n)
	}
	for _, s := range t.byQueue {
		t.otherSent.add(s)
	}
	t.byExchange, t.byQueue, t.lastQueue, t.lastSent = nil, nil, nil, nil
}

func (s *sent) add(o *sent) {
	s.delivered += o.delivered
	s.deliveredNoAck += o.deliveredNoAck
	s.got += o.got
	s.gotNoAck += o.gotNoAck
	s.gotNothing += o.gotNothing
	s.redelivered += o.redelivered
	s.acked += o.acked
}

func (s *sent) count(it *item) {
	switch {
	case it.kind == itemGet && it.d.NoAck:
		s.gotNoAck++
	case it.kind == itemGet:
		s.got++
	case it.kind == itemReply || it.d.NoAck:
		s.deliveredNoAck++
	default:
		s.delivered++
	}
	if it.d.Redelivered {
		s.redelivered++
	}
}

// gotNothing counts a get from a queue that had no message.
func (ch *channel) gotNothing(q *partition.Queue) {
	ch.mu.Lock()
	ch.sentFrom(q).gotNothing++
	ch.mu.Unlock()
}

func (p *publishing) shown() broker.ChannelStats {
	return broker.ChannelStats{Published: p.published.Load(), Confirmed: p.confirmed.Load(), Returned: p.returned.Load(), Dropped: p.dropped.Load()}
}

func (s *sent) shown() broker.ChannelStats {
	return broker.ChannelStats{
		Delivered: s.delivered, DeliveredNoAck: s.deliveredNoAck, Got: s.got, GotNoAck: s.gotNoAck, GotNothing: s.gotNothing,
		Redelivered: s.redelivered, Acked: s.acked,
	}
}

// counted returns the sum of all, and each. REQUIRES: ch.mu is held.
func (ch *channel) counted() (all broker.ChannelStats, byExchange map[message.ExchangeName]broker.ChannelStats, byQueue map[message.QueueName]broker.ChannelStats) {
	t := &ch.stats
	byExchange, byQueue = map[message.ExchangeName]broker.ChannelStats{}, map[message.QueueName]broker.ChannelStats{}
	all = t.others.shown()
	from := t.otherSent.shown()
	all.Add(&from)
	for name, p := range t.byExchange {
		st := p.shown()
		byExchange[name] = st
		all.Add(&st)
	}
	for q, s := range t.byQueue {
		st := s.shown()
		all.Add(&st)
		before := byQueue[message.QueueName(q.Name)] // of a queue of the same name, since deleted
		st.Add(&before)
		byQueue[message.QueueName(q.Name)] = st
	}
	all.Active = t.active.Load()
	return all, byExchange, byQueue
}
