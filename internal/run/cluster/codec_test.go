package cluster

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/raft/v3/raftpb"

	"bartleby.mq/internal/disk/journal"
)

// written is a frame as the journal has it.
func written(t testing.TB, hard *hardState, snap *snapshot, entries ...Entry) (pos journal.Pos, payload []byte, j *journal.Journal) {
	t.Helper()
	j, err := journal.Open(journal.Options{FS: vfs.NewMem(), Dir: "journal"})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(0, nil); err != nil {
		t.Fatal(err)
	}
	pos, payload = writtenTo(t, j, hard, snap, entries...)
	return pos, payload, j
}

// writtenTo is written in a journal that there is.
func writtenTo(t testing.TB, j *journal.Journal, hard *hardState, snap *snapshot, entries ...Entry) (pos journal.Pos, payload []byte) {
	t.Helper()
	var w frameWriter
	list := make([]*raftpb.Entry, len(entries))
	for i := range entries {
		list[i] = raftEntry(&entries[i])
	}
	pos, _ = w.write(j, 7, hard, snap, list)
	end := j.Append([]byte{0})
	payload, err := j.ReadAt(j.PayloadPos(pos), int(end-j.PayloadPos(pos)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return j.PayloadPos(pos), payload
}

var (
	someHard = &hardState{term: 9, vote: 2, commit: 1 << 40}
	someSnap = &snapshot{index: 70, term: 8, members: Members{Voters: []uint64{1, 2, 5}, Learners: []uint64{9}}, data: []byte("the state")}
	some     = []Entry{
		{Index: 71, Term: 8, Data: []byte("first")}, {Index: 72, Term: 8, kind: kindMembers, Data: []byte("second")},
		{Index: 73, Term: 11}, {Index: 74, Term: 11, Data: []byte("last")},
	}
)

// What is written is what is read, and every position is that of its bytes.
func TestFrame(t *testing.T) {
	for name, f := range map[string]frame{
		"hard state": {hard: someHard},
		"snapshot":   {snapshot: someSnap},
		"entries":    {entries: some},
		"everything": {hard: someHard, snapshot: someSnap, entries: some},
	} {
		t.Run(name, func(t *testing.T) {
			pos, payload, j := written(t, f.hard, f.snapshot, f.entries...)
			got, err := readFrame(pos, payload)
			if err != nil {
				t.Fatal(err)
			}
			f.group = 7
			equal := cmp.Options{
				cmp.AllowUnexported(frame{}, hardState{}, snapshot{}, Entry{}), cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(Entry{}, "At"), cmpopts.IgnoreFields(snapshot{}, "at", "frame"),
			}
			if diff := cmp.Diff(f, got, equal); diff != "" {
				t.Errorf("-written +read:\n%s", diff)
			}
			check := func(what string, at journal.Pos, data []byte) {
				if b, err := j.ReadAt(at, len(data), nil); err != nil || string(b) != string(data) {
					t.Errorf("%s is not at %v: %q, %v", what, at, b, err)
				}
			}
			if s := got.snapshot; s != nil {
				check("the snapshot", s.at, s.data)
			}
			for _, e := range got.entries {
				check("an entry", e.At, e.Data)
			}
		})
	}
}

func FuzzReadFrame(f *testing.F) {
	_, payload, _ := written(f, someHard, someSnap, some...)
	f.Add(payload)
	f.Add([]byte{FrameFirstByte, 7, partEntries, 1, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(1, b)
		if err != nil {
			return
		}
		for i, e := range got.entries {
			if e.Index != got.entries[0].Index+uint64(i) || e.Index == 0 {
				t.Fatalf("entry %d has index %d", i, e.Index)
			}
		}
	})
}

func someState() State {
	st := FirstState(3, 1, 2)
	st.Vote, st.Pos = 2, journal.MakePos(3, 1<<20)
	st.Members.Learners = []uint64{8}
	st.Entries = []Entry{{Index: 2, Term: 1, Data: []byte("x"), At: 77}, {Index: 3, Term: 4, kind: kindMembers, Data: []byte("y")}}
	return st
}

func TestState(t *testing.T) {
	st := someState()
	got, err := DecodeState(st.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(st, got, cmp.AllowUnexported(Entry{})); diff != "" {
		t.Errorf("-encoded +decoded:\n%s", diff)
	}
}

func FuzzDecodeState(f *testing.F) {
	st := someState()
	f.Add(st.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := DecodeState(b)
		if err != nil {
			return
		}
		again, err := DecodeState(st.Append(nil))
		if err != nil {
			t.Fatalf("its own encoding does not decode: %v", err)
		}
		if diff := cmp.Diff(st, again, cmp.AllowUnexported(Entry{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func someMessages() []Message {
	app := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(3)), Index: new(uint64(1)), LogTerm: new(uint64(1)),
		Entries: []*raftpb.Entry{raftEntry(&Entry{Index: 2, Term: 3, Data: []byte("command")})}, Commit: new(uint64(1)),
	}
	snap := &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(3)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, Index: new(uint64(9)), Term: new(uint64(2)),
		}},
	}
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(3)), Commit: new(uint64(1))}
	vote := &raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(4)), Index: new(uint64(9)), LogTerm: new(uint64(9)),
	}
	return []Message{{raft: app}, {raft: snap, snapshot: []byte{9}}, {raft: beat}, {raft: vote}}
}

// A message that decodes does not make a replica panic, whatever is in it.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range someMessages() {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		again, err := DecodeMessage(m.Append(nil))
		if err != nil || again.String() != m.String() {
			t.Fatalf("%s decodes again to %s, %v", m, again, err)
		}
		n := openNode(t, vfs.NewMem(), FirstState(1, 2, 3), &recorder{}, func(o *Options) {
			o.OnFatal = nil // a snapshot of nonsense ends the driver, as it should
		})
		defer n.j.Close()
		if err := n.d.StartStepped(); err != nil {
			t.Fatal(err)
		}
		n.d.Receive(7, []Message{m})
		for pos, more := n.d.Unsynced(); more; pos, more = n.d.Unsynced() {
			_ = n.d.Commit(pos)
		}
		n.d.Tick()
	})
}

// What no replica sends does not decode.
func TestMessageNonsense(t *testing.T) {
	for name, m := range map[string]*raftpb.Message{
		"no sender":       {Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(1))},
		"to itself":       {Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(2)), Term: new(uint64(1))},
		"no term":         {Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1))},
		"local":           {Type: raftpb.MsgHup.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1))},
		"a proposal":      {Type: raftpb.MsgProp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Entries: []*raftpb.Entry{{}}},
		"empty snapshot":  {Type: raftpb.MsgSnap.Enum(), From: new(uint64(2)), To: new(uint64(1))},
		"a gap":           {Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Entries: []*raftpb.Entry{raftEntry(&Entry{Index: 9, Term: 1})}},
		"a later term":    {Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Entries: []*raftpb.Entry{raftEntry(&Entry{Index: 1, Term: 2})}},
		"broken members":  {Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Entries: []*raftpb.Entry{raftEntry(&Entry{Index: 1, Term: 1, kind: kindMembers, Data: []byte{1}})}},
		"storage thread":  {Type: raftpb.MsgStorageApplyResp.Enum(), From: new(uint64(2)), To: new(uint64(1))},
		"unknown message": {Type: raftpb.MessageType(99).Enum(), From: new(uint64(2)), To: new(uint64(1))},
	} {
		if got, err := DecodeMessage(Message{raft: m}.Append(nil)); err == nil {
			t.Errorf("%s decodes to %s", name, got)
		}
	}
}
