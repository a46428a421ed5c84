package partition

// The named steps at which a crash test may end the process. Unlike the
// journal's, most of them are passed with partitions locked: whatever is called
// there must not call the node.
const (
	FailPublishAppended   = "publish-appended"    // the frame of a batch with publishes is in the journal's buffer, nobody was told
	FailSettleAppended    = "settle-appended"     // likewise of a batch with nothing but settlements
	FailDeathMarked       = "death-marked"        // a slice of deaths is taken, their targets are not known
	FailDeathPlanned      = "death-planned"       // the targets are known, nothing has moved
	FailDeathBeforeAppend = "death-before-append" // moved in memory, the journal does not know
	FailDeathAppended     = "death-appended"      // the frame is in the journal's buffer, the partitions are locked
	FailDeathUnlocked     = "death-unlocked"      // unlocked, deliveries and wake-ups are due
	FailMailSent          = "mail-sent"           // messages for another log are about to be handed over
	FailMailTaken         = "mail-taken"          // they are durable there, the outbox does not know
	FailCheckpointCut     = "checkpoint-cut"      // a checkpoint was cut, nothing of it is saved
	FailCheckpointPages   = "checkpoint-pages"    // some of its pages are saved
	FailCheckpointWhole   = "checkpoint-whole"    // it is on disk, what it makes needless is still there
	FailSpill             = "spill"               // pages were put away
	FailKeepCopied        = "keep-copied"         // bodies were copied to a file of the keep, their queues do not know
	FailKeepSwapped       = "keep-swapped"        // the queues know, no checkpoint does
	FailRecoverFrame      = "recover-frame"       // about to redo a frame
)

// Failpoints lists the names Options.Failpoint is called with.
var Failpoints = []string{
	FailPublishAppended, FailSettleAppended, FailDeathMarked, FailDeathPlanned, FailDeathBeforeAppend,
	FailDeathAppended, FailDeathUnlocked, FailCheckpointCut, FailCheckpointPages, FailCheckpointWhole, FailSpill,
	FailMailSent, FailMailTaken, FailKeepCopied, FailKeepSwapped, FailRecoverFrame,
}

// at passes a named step; "" is none.
func (n *Node) at(step string) {
	if n.Failpoint != nil && step != "" {
		n.Failpoint(step)
	}
}
