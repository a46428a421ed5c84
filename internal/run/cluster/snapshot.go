package cluster

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// snapshotElections is after how many election times without an answer a snapshot
// is given up.
const snapshotElections = 6

// makeSnapshot takes the machine's state as it is, for whoever is behind.
func (g *Group) makeSnapshot() {
	g.wantSnapshot = false
	snap := &snapshot{index: g.applied, term: g.appliedTerm, members: g.members.clone()}
	var err error
	g.unlocked(func() { snap.data, err = g.machine.Snapshot() })
	switch {
	case err != nil:
		g.d.opts.Logger.Warn("no snapshot for a follower", "group", g.id, "err", err)
	case len(snap.data) > maxProposal:
		g.d.opts.Logger.Error("the state is too large for a snapshot", "group", g.id, "bytes", len(snap.data))
	default:
		g.outgoing, g.outgoingAge = snap, 0
	}
}

// sendSnapshot hands a snapshot and its data to the transport. One from before a
// replica joined is nothing to that replica: another is made.
func (g *Group) sendSnapshot(m *raftpb.Message) {
	if g.outgoing != nil && !g.outgoing.members.has(m.GetTo()) {
		g.outgoing = nil
	}
	if g.outgoing == nil || g.outgoing.index != m.GetSnapshot().GetMetadata().GetIndex() {
		g.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
		return
	}
	g.d.opts.Transport.SendSnapshot(m.GetTo(), g.id, Message{m, g.outgoing.data})
	g.d.opts.Failpoint(FailRaftSnapshotSent)
}

func (g *Group) snapshotSent(to uint64, arrived bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running() {
		return
	}
	status := raft.SnapshotFinish
	if !arrived {
		status = raft.SnapshotFailure
	}
	g.raft.ReportSnapshot(to, status)
	g.process()
	g.turn()
}

// ageSnapshot frees a snapshot nobody is waiting for, and gives up on followers that
// do not answer to one.
func (g *Group) ageSnapshot() {
	if g.outgoing == nil {
		return
	}
	g.outgoingAge++
	if g.outgoingAge%(snapshotElections*g.d.opts.ElectionTicks) != 0 {
		return
	}
	var silent []uint64
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if p.State == tracker.StateSnapshot {
			silent = append(silent, id)
		}
	})
	if len(silent) == 0 {
		g.outgoing = nil
	}
	for _, id := range silent {
		g.raft.ReportSnapshot(id, raft.SnapshotFailure)
	}
}

// restore puts a snapshot, which is in the journal, in the place of the machine's
// state.
func (g *Group) restore(snap *snapshot) {
	var err error
	g.unlocked(func() { err = g.machine.Restore(snap.data, snap.at) })
	if err != nil {
		g.d.opts.Logger.Error("a snapshot could not be restored", "group", g.id, "err", err)
		g.unlocked(func() { g.d.fail(err) })
		return
	}
	g.applied, g.appliedTerm, g.members = snap.index, snap.term, snap.members.clone()
	if g.restoring == snap {
		g.restoring = nil
	}
	g.d.opts.Failpoint(FailRaftSnapshotRestored)
	g.process()
}

// peers lists the other replicas as the leader sees them. REQUIRES: mu.
func (g *Group) peers() []Peer {
	var peers []Peer
	g.raft.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		if id != g.d.opts.ID {
			peers = append(peers, Peer{id, kind == raft.ProgressTypeLearner, p.Match, p.State.String(), p.RecentActive})
		}
	})
	return peers
}
