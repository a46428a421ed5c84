package broker

import (
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// LostAndFound is the queue of a virtual host for dead letters that lead nowhere.
const LostAndFound message.QueueName = "bartleby.lost-and-found"

// The limits of LostAndFound. Beyond them the oldest letters are dropped.
const (
	LostAndFoundLength int64 = 100_000
	LostAndFoundBytes  int64 = 256 << 20
)

// refuge finds queues for dead letters that lead nowhere, and has them made when they are first needed.
type refuge struct{ b *Broker }

var _ partition.Refuge = refuge{}

// Find implements partition.Refuge.
func (r refuge) Find(q *partition.Queue, why deadletter.Outcome, lost bool, h *deadletter.History, ready func()) (found *partition.Queue, waits bool) {
	if d, ok := r.defaultTarget(q, why, h); ok && r.b.makings.need(d, ready) {
		return nil, true
	}
	if !lost || diedIn(h, LostAndFound) {
		return nil, false // one that died there does not go there again: that would have no end
	}
	found, making := r.lostAndFound(q)
	switch {
	case found != nil:
		r.tell(q, why)
		return found, false
	case making:
		return nil, r.b.makings.need(OwnQueue(q.VHost, LostAndFound), ready)
	}
	return nil, false
}

// defaultTarget returns the declaration of the queue that the virtual host's default names for dead letters of q, if this one
// was sent there and that queue is not there yet. It is durable, and of the type of q.
func (r refuge) defaultTarget(q *partition.Queue, why deadletter.Outcome, h *deadletter.History) (d topology.QueueDecl, ok bool) {
	decl, declared := q.Info.(*topology.Queue)
	if !declared || why != deadletter.NoRoute || h.Exchange != "" || len(h.Keys) != 1 {
		return d, false
	}
	r.b.topo.RLock()
	defer r.b.topo.RUnlock()
	to := decl.Effective.DefaultDeadLetter
	if v, there := r.b.state.VHost(q.VHost); !there || !v.Had(q.Incarnation) || to == "" || h.Keys[0] != string(to) {
		return d, false
	}
	return topology.QueueDecl{VHost: q.VHost, Name: to, Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: string(decl.Type)}}}, true
}

// diedIn says whether a message has died in the queue since it was published or replayed.
func diedIn(h *deadletter.History, name message.QueueName) bool {
	for i := range h.Deaths {
		if h.Deaths[i].Queue == string(name) {
			return true
		}
	}
	return false
}

// lostAndFound returns the queue for the lost letters of q's virtual host. missing says that it is to be made. A queue of
// that name that does not outlive the node, or belongs to a connection, is no place for them.
func (r refuge) lostAndFound(q *partition.Queue) (found *partition.Queue, missing bool) {
	r.b.topo.RLock()
	defer r.b.topo.RUnlock()
	v, ok := r.b.state.VHost(q.VHost)
	if !ok || !v.Had(q.Incarnation) {
		return nil, false
	}
	decl, ok := v.Queue(LostAndFound)
	switch {
	case !ok || decl.Unstored():
		return nil, true
	case !decl.Durable || decl.Exclusive:
		return nil, false
	}
	return runtimeOf(decl), false
}

// tell logs that dead letters of a queue lead nowhere, once for each reason.
func (r refuge) tell(q *partition.Queue, why deadletter.Outcome) {
	if r.b.lost.first(string(q.VHost) + "\x00" + q.Name + "\x00" + why.String()) {
		r.b.Logger.Warn("Dead letters of a queue lead nowhere. They go to lost and found. This is logged once",
			"vhost", string(q.VHost), "queue", q.Name, "why", why.String(), "to", string(LostAndFound))
	}
}

// FindsLost says whether dead letters of the queue that lead nowhere go to LostAndFound.
// In ApsaraMQ they do not: it has no limits of length, so nothing would bound that queue.
func (b *Broker) FindsLost(q *topology.Queue) bool {
	return b.LostAndFound && q.Profile != deadletter.ApsaraMQ && (!q.Strict || b.LostAndFoundStrict) && q.Delays == nil && !strings.HasPrefix(string(q.Name), topology.OwnPrefix)
}
