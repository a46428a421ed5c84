package partition

// The named steps at which a crash test may end the process. Unlike the journal's, most of them are passed with
// partitions locked, so a failpoint must not call the node.
const (
	FailPublishAppended   = "publish-appended"    // the frame of a batch with publishes is in the journal's buffer, nobody has an answer
	FailSettleAppended    = "settle-appended"     // the same for a batch of settlements only
	FailDeathMarked       = "death-marked"        // a slice of deaths is taken, their targets are unknown
	FailDeathPlanned      = "death-planned"       // the targets are known, nothing has moved
	FailDeathBeforeAppend = "death-before-append" // moved in memory, not in the journal
	FailDeathAppended     = "death-appended"      // the frame is in the journal's buffer, the partitions are locked
	FailDeathUnlocked     = "death-unlocked"      // unlocked, deliveries and wake-ups are still to come
	FailMailSent          = "mail-sent"           // messages for another log are about to be handed over
	FailMailTaken         = "mail-taken"          // they are durable there, the outbox has no answer
	FailCheckpointCut     = "checkpoint-cut"      // a checkpoint was cut, nothing of it is saved
	FailCheckpointPages   = "checkpoint-pages"    // some of its pages are saved
	FailCheckpointWhole   = "checkpoint-whole"    // it is on disk, what it makes needless was not deleted yet
	FailSpill             = "spill"               // pages were moved to disk
	FailKeepCopied        = "keep-copied"         // bodies were copied to a file of the keep, their queues still point to the old one
	FailKeepSwapped       = "keep-swapped"        // the queues point to the copy, no checkpoint does
	FailRecoverFrame      = "recover-frame"       // about to repeat a frame
)

// Failpoints lists the names that Options.Failpoint is called with.
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
