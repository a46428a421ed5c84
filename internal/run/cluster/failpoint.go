package cluster

// The named steps at which a crash test may stop the driver. A group's lock is held
// at the first, third and fifth, none at the others.
const (
	FailRaftAppend           = "raft-append"            // a group's frame is in the journal's buffer
	FailRaftCommit           = "raft-commit"            // decided, not applied
	FailRaftSnapshotSent     = "raft-snapshot-sent"     // a snapshot was handed to the transport
	FailRaftSnapshotRestored = "raft-snapshot-restored" // a snapshot took the place of the machine's state
	FailRaftApplied          = "raft-applied"           // applied, the log not told
)

// Failpoints lists the names Options.Failpoint is called with.
var Failpoints = []string{FailRaftAppend, FailRaftCommit, FailRaftSnapshotSent, FailRaftSnapshotRestored, FailRaftApplied}
