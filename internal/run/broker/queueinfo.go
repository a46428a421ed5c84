package broker

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// Read calls f with the declarations and the accounts locked for reading, and returns
// when what f has seen is stored. f must change nothing and wait for nothing, and keep only
// what never changes: names, policies, settings, bindings, users. REQUIRES: nothing is
// locked.
func (b *Broker) Read(f func(s *topology.State, u *auth.Users)) {
	_ = b.look(func() { f(b.state, b.users) }) // a failure ends the node
}

// QueueInfo is a queue as it was declared, and what policies make of it, at one
// moment. It may be kept.
type QueueInfo struct {
	// Decl is the declaration; only what never changes may be read from it.
	Decl *topology.Queue
	// Policy and OperatorPolicy are those in force, or nil.
	Policy, OperatorPolicy *topology.Policy
	Effective              *topology.Settings

	runtime *partition.Queue
}

// Definition is both policies merged; nil if there is neither. It is made here and not in Describe, with nothing locked: there may
// be very many queues, and most answers do not show it.
func (q *QueueInfo) Definition() topology.Definition {
	return topology.MergeDefinitions(q.Policy, q.OperatorPolicy)
}

// Describe takes what is to be known of a queue out of the topology.
// REQUIRES: called within Read.
func Describe(q *topology.Queue) QueueInfo {
	return QueueInfo{
		Decl: q, Policy: q.Policy, OperatorPolicy: q.OperatorPolicy,
		Effective: q.Effective, runtime: runtimeOf(q),
	}
}

// SortQueues puts queues in the order of their virtual hosts and names.
func SortQueues(list []QueueInfo) []QueueInfo {
	slices.SortFunc(list, func(a, b QueueInfo) int { return a.compare(&b) })
	return list
}

func (q *QueueInfo) compare(o *QueueInfo) int {
	return cmp.Or(cmp.Compare(q.Decl.VHost, o.Decl.VHost), cmp.Compare(q.Decl.Name, o.Decl.Name))
}

// Counts are what the queue holds and has done, as of now. A queue deleted
// meanwhile has zero counts.
func (b *Broker) Counts(q QueueInfo) partition.Counts { return b.node.Counts(q.runtime) }

// Consumers lists the consumers of a queue in the order they are served.
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

// DistinguishedConsumers are the tags of the exclusive consumer of a queue and of its single active one; "" where
// there is none.
func (b *Broker) DistinguishedConsumers(q QueueInfo) (exclusive, active string) {
	return b.node.Distinguished(q.runtime)
}

// ReadyByPriority is how many messages of each priority are ready (BR-15.12).
func (b *Broker) ReadyByPriority(q QueueInfo) map[int]int {
	found := map[int]int{}
	b.node.RangeLevels(q.runtime, func(level, ready int) { found[level] = ready })
	return found
}

// DelayedUntil is when the wait of the first and of the last delayed message ends,
// in milliseconds since 1970; 0 if none is delayed. It looks at the front of the
// queue only: in a long queue later ones may be missed.
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
