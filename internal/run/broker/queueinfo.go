package broker

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// Read calls f with the declarations and the accounts locked for reading, and returns when what f has seen is stored.
// f must change nothing and wait for nothing. It may keep only what never changes: names, policies, settings,
// bindings, users. REQUIRES: nothing is locked.
func (b *Broker) Read(f func(s *topology.State, u *auth.Users)) {
	_ = b.look(func() { f(b.state, b.users) }) // a failure ends the node
}

// QueueInfo is a queue as declared, with the effect of policies, at one moment. The caller may keep it.
type QueueInfo struct {
	// Decl is the declaration; only fields that never change may be read.
	Decl *topology.Queue
	// Policy and OperatorPolicy are those in force, or nil.
	Policy, OperatorPolicy *topology.Policy
	Effective              *topology.Settings

	runtime *partition.Queue
}

// Incarnation is the number of the queue that is called so now.
func (q *QueueInfo) Incarnation() uint64 { return q.runtime.Incarnation }

// Quorum says whether it is a quorum queue.
func (q *QueueInfo) Quorum() bool { return q.runtime.Type() == queue.Quorum }

// Runtime is the queue in its partition.
func (q *QueueInfo) Runtime() *partition.Queue { return q.runtime }

// Missing turns an error of the partition about the queue into the client's.
func (q *QueueInfo) Missing(err error) error { return missing(err, q.Decl) }

// Definition is both policies merged, nil if there are none. Describe does not compute it, because it runs under the
// lock, there may be very many queues, and most answers do not show it.
func (q *QueueInfo) Definition() topology.Definition {
	return topology.MergeDefinitions(q.Policy, q.OperatorPolicy)
}

// Describe copies a queue out of the topology. REQUIRES: called within Read.
func Describe(q *topology.Queue) QueueInfo {
	return QueueInfo{
		Decl: q, Policy: q.Policy, OperatorPolicy: q.OperatorPolicy,
		Effective: q.Effective, runtime: runtimeOf(q),
	}
}

// SortQueues sorts queues by virtual host and name.
func SortQueues(list []QueueInfo) []QueueInfo {
	slices.SortFunc(list, func(a, b QueueInfo) int { return a.compare(&b) })
	return list
}

func (q *QueueInfo) compare(o *QueueInfo) int {
	return cmp.Or(cmp.Compare(q.Decl.VHost, o.Decl.VHost), cmp.Compare(q.Decl.Name, o.Decl.Name))
}

// Counts returns the present counters of a queue; all are zero if the queue was deleted meanwhile.
func (b *Broker) Counts(q QueueInfo) partition.Counts { return b.node.Counts(q.runtime) }

// Consumers lists the consumers of a queue in the order in which they are served.
func (b *Broker) Consumers(q QueueInfo) (list []AttachedConsumer) {
	for _, c := range b.node.Consumers(q.runtime) {
		a := AttachedConsumer{
			Tag: c.Tag, NoAck: c.NoAck, Exclusive: c.Exclusive, Active: c.Active,
			Prefetch: c.Prefetch, Priority: c.Priority, Timeout: c.Timeout,
		}
		if i, ok := c.Target.(Informant); ok {
			a.ConsumerInfo = i.Info()
		}
		list = append(list, a)
	}
	return list
}

// DistinguishedConsumers returns the tags of the exclusive consumer of a queue and of its single active one, "" where
// there is none.
func (b *Broker) DistinguishedConsumers(q QueueInfo) (exclusive, active string) {
	return b.node.Distinguished(q.runtime)
}

// ReadyByPriority is how many messages of each priority are ready (BR-15.12).
func (b *Broker) ReadyByPriority(q *topology.Queue) map[int]int {
	found := map[int]int{}
	b.node.RangeLevels(runtimeOf(q), func(level, ready int) { found[level] = ready })
	return found
}

// DelayedUntil returns when the waits of the first and of the last delayed message end, in milliseconds since 1970; 0
// if none is delayed. It looks only at the front of the queue, so it may miss later ones in a long queue.
func (b *Broker) DelayedUntil(q QueueInfo) (first, last int64) {
	const front = 1024
	_, _, _ = b.node.Glance(q.runtime, queue.Cursor{}, front, func(v queue.View) bool {
		if at := v.NotBefore; at != 0 {
			if first == 0 || at < first {
				first = at
			}
			last = max(last, at)
		}
		return true
	})
	return first, last
}
