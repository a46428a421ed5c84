package cluster

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// ErrBehind refuses to promote a learner that has not caught up.
var ErrBehind = errors.New("cluster: the learner is behind")

// AddLearner proposes that a node join the group and get everything, without a
// vote. Its id must be one that was never a member. Only the leader can, and one
// change at a time: *NotLeaderError, ErrBusy.
func (g *Group) AddLearner(id uint64) error {
	return g.change(raftpb.ConfChangeAddLearnerNode, id, func() error {
		if id == 0 || g.members.has(id) {
			return fmt.Errorf("group %d: node %d is a member", g.id, id)
		}
		return nil
	})
}

// Promote proposes that a learner get a vote. It fails with ErrBehind while the
// learner lacks what is decided.
func (g *Group) Promote(id uint64) error {
	return g.change(raftpb.ConfChangeAddNode, id, func() error {
		if !slices.Contains(g.members.Learners, id) {
			return fmt.Errorf("group %d: node %d is no learner", g.id, id)
		}
		for _, p := range g.peers() {
			if p.ID == id && p.Active && p.Match >= g.applied {
				return nil
			}
		}
		return ErrBehind
	})
}

// Remove proposes that a node leave the group for ever.
func (g *Group) Remove(id uint64) error {
	return g.change(raftpb.ConfChangeRemoveNode, id, func() error {
		if !g.members.has(id) {
			return fmt.Errorf("group %d: node %d is no member", g.id, id)
		}
		if slices.Equal(g.members.Voters, []uint64{id}) {
			return fmt.Errorf("group %d: node %d is the only voter", g.id, id)
		}
		return nil
	})
}

// change proposes a change of one member, if check says nothing against it.
func (g *Group) change(kind raftpb.ConfChangeType, id uint64, check func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.leading(); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if g.lastMembers > g.applied {
		return ErrBusy // Raft would log an empty entry in the place of this one
	}
	if err := g.raft.ProposeConfChange(&raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: kind.Enum(), NodeId: new(id)}},
	}); err != nil {
		return ErrBusy
	}
	g.process()
	g.d.wake()
	return nil
}

// Transfer asks the leader, this replica, to hand over to another voter. That it
// did shows in Machine.Following; after an election time without it, it leads on.
// Proposals get ErrBusy meanwhile.
func (g *Group) Transfer(to uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.leading(); err != nil {
		return err
	}
	if to == g.d.opts.ID || !slices.Contains(g.members.Voters, to) {
		return fmt.Errorf("group %d: node %d is no other voter", g.id, to)
	}
	g.raft.TransferLeader(to)
	g.process()
	return nil
}
