package cluster

import "bartleby.mq/internal/disk/journal"

// Machine is what a group replicates. Its methods are called by one goroutine at a
// time for each group, with no lock of this package held: they may call any method
// of Group but must not wait for one of its answers. They must not call
// Driver.Commit or the journal's.
//
// The machine has its own lock if others look at it. It must note the index of the
// last entry applied under that lock: see Group.State.
type Machine interface {
	// Apply takes committed entries, in order, each exactly once. Those without
	// Data are the group's own (an election, a change of members): they only move
	// the index. The slice is the driver's again when Apply returns; the Data of an
	// entry never changes and may be kept.
	Apply(entries []Entry)
	// Snapshot returns the whole state at the index last applied, bodies included,
	// for a follower that is new or too far behind. An error means: not now.
	Snapshot() ([]byte, error)
	// Restore replaces the whole state by a Snapshot of another replica. at is
	// where its bytes begin in this node's journal, durable already. An error stops
	// the driver: the replica cannot go on.
	Restore(snapshot []byte, at journal.Pos) error
	// Leading says that this replica leads from here on and that all entries of
	// earlier terms are applied. Group.Propose works from this call on.
	Leading(term uint64)
	// Following says that this replica does not lead. leader is 0 if nobody is known
	// to. What was proposed and not applied may or may not be decided yet.
	Following(leader uint64)
}

// Waiter is a Machine that wants to know when a proposal that was refused with ErrBusy
// may be made again, some of what was undecided being applied. Room is called as a
// Machine's methods are.
type Waiter interface{ Room() }

// Entry is one decision of a group.
type Entry struct {
	Index, Term uint64
	Data        []byte      // what was proposed; empty for the group's own entries
	At          journal.Pos // where Data begins in this node's journal, 0 if it is not known

	kind entryKind
}

// entryKind tells what an entry is for.
type entryKind uint8

const (
	kindCommand entryKind = iota // the machine's, or the empty one of an election
	kindMembers                  // a change of members
)
