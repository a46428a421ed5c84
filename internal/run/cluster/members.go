package cluster

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// Members are the replicas of a group, by node id, ascending.
type Members struct {
	Voters   []uint64
	Learners []uint64 // get everything, decide nothing
}

// alone reports whether id is all there is.
func (m *Members) alone(id uint64) bool {
	return len(m.Voters) == 1 && m.Voters[0] == id && len(m.Learners) == 0
}

func (m *Members) has(id uint64) bool {
	return slices.Contains(m.Voters, id) || slices.Contains(m.Learners, id)
}

func (m *Members) clone() Members {
	return Members{slices.Clone(m.Voters), slices.Clone(m.Learners)}
}

func (m *Members) confState() *raftpb.ConfState {
	return &raftpb.ConfState{Voters: slices.Clone(m.Voters), Learners: slices.Clone(m.Learners)}
}

// change applies a change of members: one node becomes a voter or a learner, or
// leaves. Anything else is never proposed.
func (m *Members) change(cc *raftpb.ConfChangeV2) {
	for _, c := range cc.GetChanges() {
		id := c.GetNodeId()
		is := func(other uint64) bool { return other == id }
		m.Voters = slices.DeleteFunc(m.Voters, is)
		m.Learners = slices.DeleteFunc(m.Learners, is)
		switch c.GetType() {
		case raftpb.ConfChangeAddNode:
			m.Voters = append(m.Voters, id)
			slices.Sort(m.Voters)
		case raftpb.ConfChangeAddLearnerNode:
			m.Learners = append(m.Learners, id)
			slices.Sort(m.Learners)
		}
	}
}
