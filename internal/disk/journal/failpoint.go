package journal

// The named steps at which a crash test may stop the journal. No lock that Append
// or ReadAt needs is held at any of them.
const (
	FailBeforeWrite         = "before-write"          // a batch is taken, nothing of it is in a file
	FailAfterWrite          = "after-write"           // the batch is in the file, not synced
	FailAfterSync           = "after-sync"            // synced, nobody knows it yet
	FailRollBeforeHeader    = "roll-before-header"    // the new segment's file is there, its header is not
	FailRollAfterHeader     = "roll-after-header"     // the header is durable, no frame follows it
	FailRecycleBeforeRename = "recycle-before-rename" // about to rename a freed file to the new segment's name
	FailRetireBefore        = "retire-before"         // about to free the oldest segment, or to move it to KeepDir
	FailRetireMoved         = "retire-moved"          // moved to KeepDir, no directory is synced
	FailRetireKept          = "retire-kept"           // KeepDir is synced, the journal's directory is not
	FailRecoverMid          = "recover-mid"           // one segment replayed; and again before the tail is made durable
)

// Failpoints lists the names Options.Failpoint is called with.
var Failpoints = []string{
	FailBeforeWrite, FailAfterWrite, FailAfterSync, FailRollBeforeHeader, FailRollAfterHeader,
	FailRecycleBeforeRename, FailRetireBefore, FailRetireMoved, FailRetireKept, FailRecoverMid,
}
