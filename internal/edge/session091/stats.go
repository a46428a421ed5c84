package session091

import (
	"sync/atomic"

	"bartleby.mq/internal/run/broker"
)

// received counts the client's requests on a channel (BR-15.13). The reader counts, other
// goroutines read.
type received struct {
	published, confirmed, returned, dropped, gotNothing atomic.Uint64
	active                                              atomic.Int64 // when its last frame was read, in milliseconds since 1970
}

// sent counts a channel's deliveries and their acknowledgements. The channel's mutex guards
// it.
type sent struct {
	delivered, deliveredNoAck, got, gotNoAck, redelivered, acked uint64
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

// counted returns both. REQUIRES: ch.mu is held.
func (ch *channel) counted() broker.ChannelStats {
	r, s := &ch.stats, &ch.sent
	return broker.ChannelStats{
		Published: r.published.Load(), Confirmed: r.confirmed.Load(), Returned: r.returned.Load(), Dropped: r.dropped.Load(),
		Delivered: s.delivered, DeliveredNoAck: s.deliveredNoAck, Got: s.got, GotNoAck: s.gotNoAck, GotNothing: r.gotNothing.Load(),
		Redelivered: s.redelivered, Acked: s.acked, Active: r.active.Load(),
	}
}
