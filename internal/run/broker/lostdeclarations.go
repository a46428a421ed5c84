package broker

import (
	"fmt"
	"path/filepath"

	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/datadir"
)

// LostDeclarationsError says that the log of declarations has lost its end: the journal refers to declarations that
// it does not have. Nothing was changed.
type LostDeclarationsError struct {
	File   string // of the log
	Offset int64  // where it ends
	Why    string
}

// Error names the file.
func (e *LostDeclarationsError) Error() string {
	return fmt.Sprintf("%s has lost its end, from offset %d on: %s. A start would give up the messages of queues whose declarations are lost", e.File, e.Offset, e.Why)
}

// checkDeclarations compares what the journal and the index say about declarations with the store. With keep, the
// loss is accepted: the store's declarations count from now on.
func (b *Broker) checkDeclarations(noted store.Reach, highest uint64, keep bool) error {
	e := &LostDeclarationsError{File: filepath.Join(b.Dir, datadir.StateLogDir)}
	end, reached := b.data.State.Reaches(noted)
	if end != 0 {
		e.File, e.Offset = filepath.Join(e.File, fmt.Sprintf("%010d.seg", end.Segment())), end.Offset()
	}
	switch {
	case !reached:
		e.Why = fmt.Sprintf("the journal says that it was durable beyond %s", noted.Pos)
	case highest > b.state.Reserved():
		// Before anything enters a queue, its number is reserved on disk: see topology.State.
		e.Why = fmt.Sprintf("there are operations on queue number %d, and no number beyond %d was ever given", highest, b.state.Reserved())
	default:
		return nil
	}
	if !keep {
		return e
	}
	b.state.GoOnFrom(highest)
	if err := b.data.State.Apply(mutation.All(b.state.TakeChanges()), true); err != nil {
		return err
	}
	return b.data.State.Rename()
}

// buryGhosts deletes the declarations of queues that their group has deleted. The store forgets a queue before its
// group does, so such declarations exist only after a repair without the end of the declarations' log. REQUIRES: topo
// is held for writing.
func (b *Broker) buryGhosts() {
	for _, v := range b.state.VHosts() {
		for _, q := range v.Queues() {
			if b.node.HasDeleted(runtimeOf(q)) {
				b.Logger.Warn("a queue whose deletion was lost is deleted again", "queue", q.Name, "vhost", q.VHost)
				b.state.DeleteQueue(q)
			}
		}
	}
}
