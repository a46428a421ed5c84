package cluster

import (
	"encoding/binary"
	"slices"

	"bartleby.mq/internal/disk/journal"
)

// State is what a checkpoint holds of a replica beside its machine: with it, and
// with the frames of the journal from Pos on, the replica goes on as it was. The
// zero State is that of a replica that joins a group and knows nothing.
type State struct {
	Term, Vote, Commit uint64

	// Applied is the index the machine's state in the same checkpoint has reached.
	Applied, AppliedTerm uint64
	Members              Members // as of Applied or later

	Entries []Entry     // the log behind Applied
	Pos     journal.Pos // frames before it are in this State
	// Restoring says that the state is about to be replaced by a snapshot, in the frame
	// at Pos. It is not stored: who does not read the journal from Pos on takes no checkpoint now.
	Restoring bool
}

// FirstState is what every first member of a new group begins with.
func FirstState(voters ...uint64) State {
	voters = slices.Clone(voters)
	slices.Sort(voters)
	// A log that begins with an index past 1 makes replicas that know nothing get
	// a snapshot, and with it the members.
	return State{Term: 1, Commit: 1, Applied: 1, AppliedTerm: 1, Members: Members{Voters: voters}}
}

// stateVersion is the first byte of an encoded State.
const stateVersion = 1

// Append appends the encoding of s to b.
func (s *State) Append(b []byte) []byte {
	b = append(b, stateVersion)
	for _, v := range []uint64{s.Term, s.Vote, s.Commit, s.Applied, s.AppliedTerm, uint64(s.Pos)} {
		b = binary.AppendUvarint(b, v)
	}
	b = appendMembers(b, &s.Members)
	b = binary.AppendUvarint(b, uint64(len(s.Entries)))
	for i := range s.Entries {
		e := &s.Entries[i]
		b = binary.AppendUvarint(b, e.Term)
		b = append(b, byte(e.kind))
		b = binary.AppendUvarint(b, uint64(e.At))
		b = binary.AppendUvarint(b, uint64(len(e.Data)))
		b = append(b, e.Data...)
	}
	return b
}

// DecodeState is the reverse of State.Append. Data of the entries alias b. It fails
// with ErrFrame.
func DecodeState(b []byte) (State, error) {
	r := reader{b: b}
	if r.byte() != stateVersion {
		return State{}, ErrFrame
	}
	s := State{Term: r.uint(), Vote: r.uint(), Commit: r.uint(), Applied: r.uint(), AppliedTerm: r.uint(), Pos: journal.Pos(r.uint())}
	s.Members = r.members()
	n := r.count(4)
	for i := range n {
		e := Entry{Index: s.Applied + 1 + uint64(i), Term: r.uint(), kind: r.kind(), At: journal.Pos(r.uint())}
		e.Data = r.bytes(r.uint())
		s.Entries = append(s.Entries, e)
	}
	if !r.done() {
		return State{}, ErrFrame
	}
	return s, nil
}
