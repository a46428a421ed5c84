package sim

import (
	"math/rand/v2"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// Model makes the replicas of what a simulation replicates. One Model serves one
// World: it may keep what its clients were told.
type Model interface {
	// Open makes the replica of a group on a node that starts. checkpoint is what
	// Replica.Checkpoint gave before the last stop, or nil.
	Open(env Env, checkpoint []byte) (Replica, error)
	// Done is called at the end, with the replicas of a group that are left, which
	// have all applied the same. It says what was lost.
	Done(group uint64, replicas []Replica) error
}

// Env is where a replica lives.
type Env struct {
	Node, Group uint64
	Journal     *journal.Journal
	Now         func() int64 // virtual milliseconds, of the node's own clock
}

// Replica is one replica of a group: a Machine, and its clients.
type Replica interface {
	cluster.Machine
	// Joined gives it its group, before anything is applied.
	Joined(g *cluster.Group)
	// Act has a client do something here, such as proposing if the replica leads.
	Act(rng *rand.Rand)
	// Hash is a hash of the replicated state, and the index it has reached. 0 says
	// that it cannot be told at this index.
	Hash() (applied, hash uint64)
	// Check looks for what must never be: a thing in two places, or in none.
	Check() error
	// Checkpoint is all that Open needs to go on from Hash's index.
	Checkpoint() []byte
}
