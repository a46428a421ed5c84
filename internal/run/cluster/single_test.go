package cluster

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

func commands(from, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("command %d", from+i))
	}
	return out
}

func want(t *testing.T, m *recorder, commands []string) {
	t.Helper()
	if diff := cmp.Diff(commands, m.got()); diff != "" {
		t.Fatalf("the machine has other commands (-want +got):\n%s", diff)
	}
}

// The only voter leads when Start returns, and decides what it is asked.
func TestOneVoter(t *testing.T) {
	n := openNode(t, vfs.NewCrashableMem(), FirstState(1), &recorder{})
	if err := n.d.Start(); err != nil {
		t.Fatal(err)
	}
	defer n.j.Close()
	defer n.d.Stop()
	if id, me := n.g.Leader(); id != 1 || !me {
		t.Fatalf("Leader() = %d, %t after Start", id, me)
	}
	pos, err := n.g.Append([]byte("command 0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.d.Commit(pos); err != nil {
		t.Fatal(err)
	}
	want(t, n.m, commands(0, 1))
	at := n.m.at[0]
	if b, err := n.j.ReadAt(at, len("command 0"), nil); err != nil || string(b) != "command 0" {
		t.Errorf("the journal has %q, %v where the entry said its data are", b, err)
	}
	if st := n.g.Status(); st.LogBytes != 0 || st.First != st.Last+1 {
		t.Errorf("the log keeps %d to %d, %d bytes: want nothing", st.First, st.Last, st.LogBytes)
	}
}

// A machine whose proposal was refused because too much was undecided is told when that is over.
func TestRoomAfterBusy(t *testing.T) {
	n := openNode(t, vfs.NewCrashableMem(), FirstState(1), &recorder{}, func(o *Options) { o.MaxUncommitted = 100 })
	if err := n.d.Start(); err != nil {
		t.Fatal(err)
	}
	defer n.j.Close()
	defer n.d.Stop()
	pos, err := n.g.Append(make([]byte, 90))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.g.Append(make([]byte, 90)); !errors.Is(err, ErrBusy) {
		t.Fatalf("a second proposal: %v, want ErrBusy", err)
	}
	if err := n.d.Commit(pos); err != nil {
		t.Fatal(err)
	}
	if last := n.m.calls[len(n.m.calls)-1]; last != "room" {
		t.Errorf("the machine was told %q last, want room", last)
	}
	if _, err := n.g.Append(make([]byte, 90)); err != nil {
		t.Errorf("a proposal when there is room: %v", err)
	}
}

// What was decided is there after a restart, from the journal alone and from a
// checkpoint with what follows it.
func TestOneVoterRestarts(t *testing.T) {
	fs := vfs.NewCrashableMem()
	n := openNode(t, fs, FirstState(1), &recorder{})
	if err := n.d.StartStepped(); err != nil {
		t.Fatal(err)
	}
	n.pump(t)
	n.propose(t, commands(0, 5)...)
	n.pump(t)
	n.propose(t, commands(5, 5)...) // not committed when the checkpoint is taken
	st := n.g.State(n.m.applied)
	checkpoint := &recorder{applied: n.m.applied, commands: n.m.got()}
	decoded, err := DecodeState(st.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	n.pump(t)
	n.propose(t, commands(10, 5)...)
	n.pump(t)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})

	for name, from := range map[string]struct {
		st State
		m  *recorder
	}{
		"journal":    {FirstState(1), &recorder{}},
		"checkpoint": {decoded, checkpoint},
	} {
		t.Run(name, func(t *testing.T) {
			n := openNode(t, crashed.CrashClone(vfs.CrashCloneCfg{}), from.st, from.m)
			if err := n.d.StartStepped(); err != nil {
				t.Fatal(err)
			}
			n.pump(t)
			want(t, n.m, commands(0, 15))
			n.propose(t, "more")
			n.pump(t)
			want(t, n.m, append(commands(0, 15), "more"))
		})
	}
}
