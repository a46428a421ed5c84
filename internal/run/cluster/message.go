package cluster

import (
	"encoding/binary"
	"fmt"
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Message is what replicas of a group say to each other.
type Message struct {
	raft     *raftpb.Message
	snapshot []byte // of a snapshot message
}

// To is the id of the node it is for.
func (m Message) To() uint64 { return m.raft.GetTo() }

// From is the id of the node that sent it.
func (m Message) From() uint64 { return m.raft.GetFrom() }

// Vote reports whether it grants a vote: a promise that its sender must remember.
func (m Message) Vote() bool { return m.raft.GetType() == raftpb.MsgVoteResp && !m.raft.GetReject() }

// Size is about how many bytes its encoding takes.
func (m Message) Size() int {
	n := 64 + len(m.snapshot)
	for _, e := range m.raft.GetEntries() {
		n += len(e.GetData()) + entryOverhead
	}
	return n
}

// String says what kind of message it is and about which index, for traces.
func (m Message) String() string {
	r := m.raft
	return fmt.Sprintf("%s %d>%d term %d index %d/%d entries %d commit %d reject %t snapshot %d", r.GetType(), r.GetFrom(), r.GetTo(),
		r.GetTerm(), r.GetIndex(), r.GetLogTerm(), len(r.GetEntries()), r.GetCommit(), r.GetReject(), r.GetSnapshot().GetMetadata().GetIndex())
}

// Append appends the encoding of m to b: the length of Raft's own message as a
// uvarint, that message, and the bytes of a snapshot.
func (m Message) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(proto.Size(m.raft)))
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m.raft)
	if err != nil {
		panic(fmt.Sprintf("cluster: encode a message of our own: %v", err))
	}
	return append(b, m.snapshot...)
}

// DecodeMessage is the reverse of Message.Append. The bytes of a snapshot alias b. It
// fails with ErrFrame on what no replica sends.
func DecodeMessage(b []byte) (Message, error) {
	r := reader{b: b}
	m := Message{raft: &raftpb.Message{}}
	head := r.bytes(r.uint())
	if r.bad || (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(head, m.raft) != nil {
		return Message{}, ErrFrame
	}
	m.snapshot = b[r.at:]
	if !m.sane() {
		return Message{}, ErrFrame
	}
	return m, nil
}

// isSnapshot reports whether it carries a snapshot.
func (m Message) isSnapshot() bool { return m.raft.GetType() == raftpb.MsgSnap }

// sane reports whether m can come from another replica: Raft panics on what cannot.
func (m Message) sane() bool {
	r := m.raft
	if r.GetFrom() == 0 || r.GetTo() == 0 || raft.IsLocalMsgTarget(r.GetFrom()) || raft.IsLocalMsgTarget(r.GetTo()) || len(r.GetResponses()) > 0 {
		return false
	}
	if r.GetIndex() > math.MaxInt64 || r.GetCommit() > math.MaxInt64 || r.GetTerm() > math.MaxInt64 {
		return false
	}
	// A question for the read index may come back to the one who asked: the follower it
	// went to passes it on. Raft takes anything else without a term, or from the
	// replica itself, for a message of its own.
	if r.GetType() != raftpb.MsgReadIndex && (r.GetTerm() == 0 || r.GetFrom() == r.GetTo()) {
		return false
	}
	switch r.GetType() {
	case raftpb.MsgApp:
		term := r.GetLogTerm()
		for i, e := range r.GetEntries() {
			if e.GetIndex() != r.GetIndex()+1+uint64(i) || e.GetTerm() < term || e.GetTerm() > r.GetTerm() || !saneEntry(e) {
				return false
			}
			term = e.GetTerm()
		}
		return len(m.snapshot) == 0
	case raftpb.MsgSnap:
		meta := r.GetSnapshot().GetMetadata()
		return meta.GetIndex() > 0 && meta.GetIndex() < math.MaxInt64 && meta.GetTerm() > 0 && meta.GetTerm() <= r.GetTerm() &&
			len(r.GetSnapshot().GetData()) == 0 && saneMembers(meta.GetConfState())
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return len(r.GetEntries()) == 1 && len(m.snapshot) == 0
	case raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow:
		return len(r.GetEntries()) == 0 && len(m.snapshot) == 0
	}
	return false
}

func saneEntry(e *raftpb.Entry) bool {
	switch e.GetType() {
	case raftpb.EntryNormal:
		return true
	case raftpb.EntryConfChangeV2:
		var cc raftpb.ConfChangeV2
		if proto.Unmarshal(e.GetData(), &cc) != nil || len(cc.GetChanges()) != 1 {
			return false
		}
		return cc.GetTransition() == raftpb.ConfChangeTransitionAuto && cc.GetChanges()[0].GetNodeId() != 0
	}
	return false
}

func saneMembers(cs *raftpb.ConfState) bool {
	if len(cs.GetVoters()) == 0 || len(cs.GetVotersOutgoing()) > 0 || len(cs.GetLearnersNext()) > 0 || cs.GetAutoLeave() {
		return false
	}
	seen := map[uint64]bool{0: true}
	for _, ids := range [2][]uint64{cs.GetVoters(), cs.GetLearners()} {
		for _, id := range ids {
			if seen[id] {
				return false
			}
			seen[id] = true
		}
	}
	return true
}
