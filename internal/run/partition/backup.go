package partition

import (
	"context"
	"errors"

	"bartleby.mq/internal/disk/journal"
)

// Copy names the directories that CopyTo fills. The journal's exists; the others do not.
type Copy struct {
	Journal, Keep, Index string
	// End returns the position up to which the journal is copied, chosen at a moment when journal and declarations
	// agree. The journal has committed it. nil: everything committed.
	End func() journal.Pos
}

// CopyTo copies all durable queues while they go on: the copy is what a crash at some moment after the call would
// leave. It writes a checkpoint first, so that most files can be linked and little must be copied.
func (n *Node) CopyTo(ctx context.Context, to Copy) error {
	if n.Index == nil || n.Keep == nil {
		return errors.New("a node without checkpoints cannot be copied while it runs")
	}
	if err := n.Checkpoint(); err != nil {
		return err
	}
	// While this is held no file is freed or moved, because only checkpoints and compactions do that.
	n.checkpoints.mu.Lock()
	defer n.checkpoints.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	// The checkpoint first, then the journal: it has the checkpoint's cut.
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
