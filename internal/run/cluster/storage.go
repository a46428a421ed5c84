package cluster

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// storage is a group's log as Raft reads it: from memory, always. It is only called
// by the group's RawNode, with the group's lock held.
type storage struct{ g *Group }

var _ raft.Storage = storage{}

// InitialState is what the replica promised and who its members are, for the start.
func (s storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	h := s.g.hard
	return &raftpb.HardState{Term: new(h.term), Vote: new(h.vote), Commit: new(h.commit)}, s.g.members.confState(), nil
}

// Entries are those of [low, high), at least one, up to maxSize bytes.
func (s storage) Entries(low, high, maxSize uint64) ([]*raftpb.Entry, error) {
	l := &s.g.log
	if low < l.first() {
		return nil, raft.ErrCompacted
	}
	if high > l.last()+1 {
		return nil, raft.ErrUnavailable
	}
	entries := l.entries[low-l.first() : high-l.first()]
	size := uint64(0)
	for i, e := range entries {
		size += uint64(len(e.GetData())) + entryOverhead
		if i > 0 && size > maxSize {
			entries = entries[:i]
			break
		}
	}
	return entries[:len(entries):len(entries)], nil
}

// entryOverhead is about what an entry takes in a message beside its data.
const entryOverhead = 16

// Term is the term of an entry, or of the one before the first.
func (s storage) Term(index uint64) (uint64, error) { return s.g.log.term(index) }

// LastIndex is the index of the last entry.
func (s storage) LastIndex() (uint64, error) { return s.g.log.last(), nil }

// FirstIndex is the index of the first entry, there or to come.
func (s storage) FirstIndex() (uint64, error) { return s.g.log.first(), nil }

// Snapshot describes a snapshot that goes on with the log. Its data travel beside
// the message. If there is none the group makes one, and Raft asks again.
func (s storage) Snapshot() (*raftpb.Snapshot, error) {
	snap := s.g.outgoing
	if snap == nil || snap.index < s.g.log.base {
		s.g.outgoing, s.g.wantSnapshot = nil, true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: snap.members.confState(), Index: new(snap.index), Term: new(snap.term),
	}}, nil
}
