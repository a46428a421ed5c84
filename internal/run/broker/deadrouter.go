package broker

import (
	"strings"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// deadRouter answers the partitions' questions about dead letters.
type deadRouter struct{ b *Broker }

// RouteDead implements partition.Router (DL-6.1, steps 1 and 5). It checks neither permissions, nor the internal
// flag, nor exclusiveness (DL-5.4).
func (r deadRouter) RouteDead(q *partition.Queue, exchange string, keys []string, rec message.Record, h *deadletter.History, out []*partition.Queue) (targets []*partition.Queue, exists, byKeys bool) {
	targets, exists, byKeys = r.route(q, exchange, keys, rec, h, out)
	// A letter without a target is gone for good, so an exchange or queue that was missing must be gone for good,
	// too. The wait comes after the look, because the look may see a deletion of a moment ago. A failure ends the
	// node.
	_ = r.b.awaitRemovals()
	return targets, exists, byKeys
}

func (r deadRouter) route(q *partition.Queue, exchange string, keys []string, rec message.Record, h *deadletter.History, out []*partition.Queue) (targets []*partition.Queue, exists, byKeys bool) {
	r.b.topo.RLock()
	defer r.b.topo.RUnlock()
	v, ok := r.b.state.VHost(q.VHost)
	if !ok || !v.Had(q.Incarnation) {
		return out, false, false
	}
	x, ok := v.Exchange(message.ExchangeName(exchange))
	if !ok {
		r.missing(q, exchange)
		return out, false, false
	}
	m := routing.Message{Key: []byte(keys[0]), Extra: convert.Matchable(h), Waited: h.Delayed}
	for _, k := range keys[1:] {
		m.More = append(m.More, []byte(k))
	}
	targets, byKeys = r.b.routeRecord(v, x, &m, rec, out)
	return targets, true, byKeys && (!h.Delayed || q.Config().Delays) // of others some have waited, and some not
}

// missing logs that a queue's dead letters go to an exchange that does not exist, once for both.
func (r deadRouter) missing(q *partition.Queue, exchange string) {
	if !r.b.missing.first(string(q.VHost) + "\x00" + q.Name + "\x00" + exchange) {
		return
	}
	becomes := "are dropped"
	if decl, ok := q.Info.(*topology.Queue); ok && decl.Effective.Strategy == topology.AtLeastOnce {
		becomes = "wait in the queue"
	} else if ok && r.b.FindsLost(decl) {
		becomes = "go to " + string(LostAndFound)
	}
	r.b.Logger.Warn("The dead-letter exchange of a queue does not exist: its dead letters "+becomes+" until somebody declares the exchange. This is logged once",
		"vhost", string(q.VHost), "queue", q.Name, "exchange", exchange)
}

// HasVHost implements partition.Router.
func (r deadRouter) HasVHost(name message.VHost, incarnation uint64) bool {
	r.b.topo.RLock()
	v, ok := r.b.state.VHost(name)
	ok = ok && v.Had(incarnation)
	r.b.topo.RUnlock()
	_ = r.b.awaitRemovals() // after the look, as in RouteDead; a failure ends the node
	return ok
}

// QueueUnused implements partition.Router: the queue's x-expires has passed (DL-8.12).
func (r deadRouter) QueueUnused(q *partition.Queue) {
	decl := q.Info.(*topology.Queue)
	_, _ = r.b.remove(decl, internalUser, func(n partition.Counts) error {
		if !n.Unused {
			return topology.Refuse(topology.PreconditionFailed, "%s in use", decl.Resource())
		}
		return nil
	})
}

// Dropped implements partition.Router.
func (r deadRouter) Dropped(q *partition.Queue, reason deadletter.Reason, outcome deadletter.Outcome, rec message.Record, h *deadletter.History) {
	if reason == deadletter.DeliveryLimit && outcome == deadletter.NoExchange && r.b.limited.first(string(q.VHost)+"\x00"+q.Name) {
		r.b.Logger.Warn("Messages are dropped that have failed more often than the delivery limit of their queue, which has no dead-letter exchange. This is logged once",
			"vhost", string(q.VHost), "queue", q.Name)
	}
	if outcome != deadletter.Cycle {
		return
	}
	var list []string
	for _, d := range h.Deaths {
		list = append(list, d.Queue)
	}
	queues := strings.Join(list, ",")
	if r.b.cycles.first(string(q.VHost) + "\x00" + queues) { // DL-9.6
		r.b.Logger.Warn("Message dropped because the following list of queues (ordered by death recency) contains a dead letter cycle without reason 'rejected'. This list will not be logged again",
			"vhost", string(q.VHost), "queues", queues, "reason", reason.String())
	}
}
