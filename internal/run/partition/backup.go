package partition

import (
	"context"
	"errors"

	"bartleby.mq/internal/disk/journal"
)

// Copy are the directories that CopyTo fills. The journal's exists; the others do not.
type Copy struct {
	Journal, Keep, Index string
	// End returns up to where the journal is to be copied, at a moment when that and the
	// declarations agree; the journal has committed it. Nil: all that it has committed.
	End func() journal.Pos
}

// CopyTo copies what is on disk of all durable queues while they go on: what a crash
// would leave at some moment after the call began. It writes a checkpoint first, so
// that there is little to copy that cannot be linked.
func (n *Node) CopyTo(ctx context.Context, to Copy) error {
	if n.Index == nil || n.Keep == nil {
		return errors.New("a node without checkpoints cannot be copied while it runs")
	}
	if err := n.Checkpoint(); err != nil {
		return err
	}
	// No file is given back or moved while this is held: a checkpoint and a compaction
	// are what does.
	n.checkpoints.mu.Lock()
	defer n.checkpoints.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	// The checkpoint first, the journal after it: its cut is committed.
	if err := n.Index.CheckpointTo(to.Index); err != nil {
		return err
	}
	if err := n.Keep.LinkTo(ctx, to.Keep); err != nil {
		return err
	}
	end := to.End
	if end == nil {
		end = n.Journal.Committed
	}
	return n.Journal.CopyTo(ctx, to.Journal, end())
}
