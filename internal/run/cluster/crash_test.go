package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// A node that dies at any named step of the journal or the driver has, when it is
// back, everything that was decided, and nothing nobody asked for.
func TestCrashAtEveryFailpoint(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		m := &recorder{}
		var asked []string
		// stored is the last checkpoint; it is durable at once.
		stored, storedCommands := FirstState(1), []string(nil)
		var n *node
		crash := func(name string) {
			seen[name]++
			decided := m.got()
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng})
			after := &recorder{applied: stored.Applied, commands: slices.Clone(storedCommands)}
			// Entries alias what the journal hands out: the checkpoint is read anew each time.
			st, err := DecodeState(stored.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			back := openNode(t, clone, st, after)
			if err := back.d.StartStepped(); err != nil {
				t.Fatalf("crash at %s: %v", name, err)
			}
			back.pump(t)
			got := after.got()
			if len(got) < len(decided) || !slices.Equal(got[:len(decided)], decided) {
				t.Fatalf("crash at %s: decided were %d commands, %d are back", name, len(decided), len(got))
			}
			if len(got) > len(asked) || !slices.Equal(got, asked[:len(got)]) {
				t.Fatalf("crash at %s: %d are back of %d asked for, or others", name, len(got), len(asked))
			}
			if err := back.j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		die := func(name string) { held.Apart(func() { crash(name) }) }
		j, err := journal.Open(journal.Options{FS: fs, Dir: "journal", SegmentBytes: 16 << 10, KeepRecycled: 1, Failpoint: die})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Recover(0, nil); err != nil {
			t.Fatal(err)
		}
		d, err := New(Options{ID: 1, Journal: j, Failpoint: die})
		if err != nil {
			t.Fatal(err)
		}
		g, err := d.Open(7, m, FirstState(1))
		if err != nil {
			t.Fatal(err)
		}
		n = &node{fs, j, d, g, m}
		if err := d.StartStepped(); err != nil {
			t.Fatal(err)
		}
		n.pump(t)
		for i := range 60 {
			c := fmt.Sprintf("%d %s", i, string(make([]byte, rng.IntN(2000))))
			asked = append(asked, c) // before: a crash inside may keep it
			n.propose(t, c)
			switch rng.IntN(4) {
			case 0, 1:
				n.pump(t)
			case 2:
				if err := j.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if i%10 == 9 {
				st, commands := g.State(m.applied), m.got()
				n.pump(t)
				stored, storedCommands = st, commands
				if err := j.Retire(st.Pos.Segment(), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Concat(journal.Failpoints, Failpoints) {
		switch name {
		case FailRaftSnapshotSent, FailRaftSnapshotRestored, journal.FailRecoverMid, // the simulation and the journal's own tests go there
			journal.FailRetireMoved, journal.FailRetireKept: // no frame of ours is kept for its bytes here
		default:
			if seen[name] == 0 {
				t.Errorf("failpoint %s was never reached", name)
			}
		}
	}
}
