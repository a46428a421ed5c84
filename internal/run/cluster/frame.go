package cluster

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"bartleby.mq/internal/disk/journal"
)

// A frame is what one group had to make durable at one moment, as one record of
// the journal: all of it or nothing is there after a crash. Integers are uvarints.
//
//	frame    FrameFirstByte | group | parts byte | the parts, in this order | bodies
//	hard     term | vote | commit
//	snapshot index | term | members | length          replaces the whole log
//	entries  first index | n | n × (term - term of the entry before | kind byte | length)
//	members  n | n × voter id | n | n × learner id
//	bodies   the bytes of the snapshot, then of each entry
//
// Entries replace whatever the log holds from their first index on: a suffix that
// conflicts is truncated by what takes its place, since Raft truncates for no other
// reason. The journal's frame has the checksum.

// FrameFirstByte begins the frames of a driver in the journal. A later format has
// another one, which is none of internal/run/partition's.
const FrameFirstByte = 2

const (
	partHard = 1 << iota
	partSnapshot
	partEntries
)

// maxFrameEntries is how many bytes of entries go to one frame, but for a single
// larger one.
const maxFrameEntries = 64 << 20

// maxProposal leaves room for the rest of a frame.
const maxProposal = journal.MaxPayload - 1<<20

// frame is a frame as it is written or read.
type frame struct {
	group    uint64
	hard     *hardState
	snapshot *snapshot
	entries  []Entry // At is 0 when written
}

// hardState is what a replica has promised.
type hardState struct{ term, vote, commit uint64 }

// snapshot is a machine's state at an index.
type snapshot struct {
	index, term uint64
	members     Members
	data        []byte
	at, frame   journal.Pos // of data and of the frame that holds them, 0 if none of this node does
}

// frameWriter lays frames out. Its memory is used again.
type frameWriter struct {
	head  []byte
	parts [][]byte
}

// write appends a frame to the journal. Entries are raft's. It returns the frame's
// position and that of the first body.
func (w *frameWriter) write(j *journal.Journal, group uint64, hard *hardState, snap *snapshot, entries []*raftpb.Entry) (pos, body journal.Pos) {
	b := append(w.head[:0], FrameFirstByte)
	b = binary.AppendUvarint(b, group)
	parts := len(b)
	b = append(b, 0)
	w.parts = append(w.parts[:0], nil)
	if hard != nil {
		b[parts] |= partHard
		b = binary.AppendUvarint(b, hard.term)
		b = binary.AppendUvarint(b, hard.vote)
		b = binary.AppendUvarint(b, hard.commit)
	}
	if snap != nil {
		b[parts] |= partSnapshot
		b = binary.AppendUvarint(b, snap.index)
		b = binary.AppendUvarint(b, snap.term)
		b = appendMembers(b, &snap.members)
		b = binary.AppendUvarint(b, uint64(len(snap.data)))
		w.parts = append(w.parts, snap.data)
	}
	if len(entries) > 0 {
		b[parts] |= partEntries
		b = binary.AppendUvarint(b, entries[0].GetIndex())
		b = binary.AppendUvarint(b, uint64(len(entries)))
		term := uint64(0)
		for _, e := range entries {
			b = binary.AppendUvarint(b, e.GetTerm()-term)
			term = e.GetTerm()
			b = append(b, byte(kindOf(e)))
			b = binary.AppendUvarint(b, uint64(len(e.GetData())))
			w.parts = append(w.parts, e.GetData())
		}
	}
	w.head, w.parts[0] = b, b
	pos = j.AppendParts(w.parts...)
	clear(w.parts)
	return pos, j.PayloadPos(pos) + journal.Pos(len(b))
}

func kindOf(e *raftpb.Entry) entryKind {
	if e.GetType() == raftpb.EntryNormal {
		return kindCommand
	}
	return kindMembers
}

// readFrame decodes a frame whose payload begins at pos. Everything in it aliases
// payload. It fails with ErrFrame.
func readFrame(pos journal.Pos, payload []byte) (frame, error) {
	r := reader{b: payload}
	if r.byte() != FrameFirstByte {
		return frame{}, ErrFrame
	}
	f := frame{group: r.uint()}
	parts := r.byte()
	if parts&partHard != 0 {
		f.hard = &hardState{r.uint(), r.uint(), r.uint()}
	}
	var snapshotBytes uint64
	if parts&partSnapshot != 0 {
		f.snapshot = &snapshot{index: r.uint(), term: r.uint(), members: r.members()}
		snapshotBytes = r.uint()
	}
	var lengths []uint64
	if parts&partEntries != 0 {
		index, n, term := r.uint(), r.count(3), uint64(0)
		for i := range n {
			term += r.uint()
			f.entries = append(f.entries, Entry{Index: index + uint64(i), Term: term, kind: r.kind()})
			lengths = append(lengths, r.uint())
		}
		if index == 0 || n == 0 {
			r.fail()
		}
	}
	if f.snapshot != nil {
		f.snapshot.at = pos + journal.Pos(r.at)
		f.snapshot.data = r.bytes(snapshotBytes)
	}
	for i := range f.entries {
		f.entries[i].At = pos + journal.Pos(r.at)
		f.entries[i].Data = r.bytes(lengths[i])
	}
	if !r.done() || parts&^(partHard|partSnapshot|partEntries) != 0 || f.group == 0 {
		return frame{}, ErrFrame
	}
	return f, nil
}

// Commands calls f for each command that a frame of a driver holds, decided or not, for who brings back what he
// can where the state of the groups is lost. payload begins at pos. It fails with ErrFrame.
func Commands(pos journal.Pos, payload []byte, f func(group uint64, e *Entry)) error {
	r, err := readFrame(pos, payload)
	if err != nil {
		return err
	}
	for i := range r.entries {
		if e := &r.entries[i]; e.kind == kindCommand && len(e.Data) > 0 {
			f(r.group, e)
		}
	}
	return nil
}
