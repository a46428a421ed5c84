package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"bartleby.mq/internal/disk/journal"
)

// FuzzStatesAreReadBackEqual: a State in a checkpoint, and all that a frame may have, is read
// back as it was written, whatever the values are.
func FuzzStatesAreReadBackEqual(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	_, _, j := written(f, nil, nil) // one for all frames
	f.Cleanup(func() { _ = j.Close() })
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		number := func() uint64 {
			return []uint64{0, 1, 127, 128, math.MaxUint32, 1 << 32, math.MaxInt64, 1 << 63, math.MaxUint64 - 10, r.Uint64()}[r.IntN(10)]
		}
		ids := func() (list []uint64) {
			for range r.IntN(4) {
				list = append(list, max(1, number()))
			}
			slices.Sort(list)
			return slices.Compact(list)
		}
		entries := func(index uint64) (list []Entry) {
			term := uint64(0)
			for i := range r.IntN(4) {
				if next := number(); next >= term {
					term = next
				}
				data := []byte(strings.Repeat("x", []int{0, 1, 127, 128, 300}[r.IntN(5)]))
				list = append(list, Entry{Index: index + uint64(i), Term: term, kind: entryKind(r.IntN(int(kindMembers) + 1)), At: journal.Pos(number()), Data: data})
			}
			return list
		}
		equal := cmp.Options{cmp.AllowUnexported(frame{}, hardState{}, snapshot{}, Entry{}), cmpopts.EquateEmpty()}
		members := Members{Voters: ids(), Learners: ids()}
		st := State{Term: number(), Vote: number(), Commit: number(), Applied: number(), AppliedTerm: number(), Members: members, Pos: journal.Pos(number())}
		st.Entries = entries(st.Applied + 1)
		got, err := DecodeState(st.Append(nil))
		if diff := cmp.Diff(st, got, equal); err != nil || diff != "" {
			t.Fatalf("%v; the state, -written +read:\n%s", err, diff)
		}

		wrote := frame{group: 7, entries: entries(max(1, number()))}
		if r.IntN(2) == 0 {
			wrote.hard = &hardState{number(), number(), number()}
		}
		if r.IntN(2) == 0 {
			wrote.snapshot = &snapshot{index: number(), term: number(), members: members, data: []byte(strings.Repeat("s", r.IntN(300)))}
		}
		pos, payload := writtenTo(t, j, wrote.hard, wrote.snapshot, wrote.entries...)
		read, err := readFrame(pos, payload)
		ignore := cmp.Options{equal, cmpopts.IgnoreFields(Entry{}, "At"), cmpopts.IgnoreFields(snapshot{}, "at", "frame")}
		if diff := cmp.Diff(wrote, read, ignore); err != nil || diff != "" {
			t.Fatalf("%v; the frame, -written +read:\n%s", err, diff)
		}
	})
}
