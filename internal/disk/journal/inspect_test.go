package journal

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mended recovers a journal after each of its holes was treated.
func mended(t *testing.T, fs vfs.FS, treat func(h *Hole) (more bool, err error)) []record {
	t.Helper()
	in, err := Inspect(fs, testDir, 0, func(Pos, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range in.Holes {
		more, err := treat(&in.Holes[i])
		if err != nil {
			t.Fatalf("hole %+v: %v", in.Holes[i], err)
		}
		if !more {
			break
		}
	}
	j, got, err := tryOpen(fs)
	if err != nil {
		t.Fatalf("after the repair of %+v: %v", in.Holes, err)
	}
	closeJournal(t, j)
	return got
}

var lostHead = []byte("LOST")

// Whatever byte rots, Inspect finds it where Recover does; filling the hole loses
// only what lay in it, cutting only what follows; what is left is what was written.
func TestInspectFillCut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	for seed := range uint64(4) {
		fs, all := history(t, rand.New(rand.NewPCG(seed, 3)), true)
		original := files(t, fs)
		report, err := check(fs, testDir)
		if err != nil || report.Damage != nil {
			t.Fatal(err, report.Damage)
		}
		in, err := Inspect(fs, testDir, 0, func(Pos, []byte) error { return nil })
		if err != nil || len(in.Holes) > 0 || in.Frames != report.Frames || in.End != report.End || in.TornBytes != report.TornBytes {
			t.Fatalf("intact: %+v, %v, want as %+v", in, err, report)
		}
		for range 60 {
			s := report.Segments[rng.IntN(len(report.Segments))]
			name := segmentName(s.Number)
			b := slices.Clone(original[name])
			b[headerBytes+rng.Int64N(s.Bytes-headerBytes)] ^= byte(1 + rng.IntN(255))
			if rng.IntN(5) == 0 {
				b[1], b[headerStride+1] = 0, 0 // the header too
			}
			damaged := withFiles(t, original, name, b)
			was, err := check(damaged, testDir)
			if err != nil {
				t.Fatal(err)
			}
			in, err := Inspect(damaged, testDir, 0, func(Pos, []byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if (was.Damage == nil) != (len(in.Holes) == 0) || was.Damage != nil && in.Holes[0].Segment != was.Damage.Segment {
				t.Fatalf("Recover says %v, Inspect %+v", was.Damage, in.Holes)
			}
			if was.Damage == nil {
				continue // it looks like a torn tail
			}
			h := in.Holes[0]
			got := mended(t, damaged, func(h *Hole) (bool, error) { return true, Fill(damaged, testDir, h, lostHead) })
			var want []record
			for _, r := range all {
				if r.pos.Segment() != h.Segment || r.pos.Offset() < h.From || r.pos.Offset() >= h.To {
					want = append(want, r)
				}
			}
			got = slices.DeleteFunc(got, func(r record) bool { return string(r.payload[:min(4, len(r.payload))]) == string(lostHead) })
			sameFrames(t, "filled", got, want)
			cut := withFiles(t, original, name, b)
			sameFrames(t, "cut", mended(t, cut, func(h *Hole) (bool, error) { return false, Cut(cut, testDir, h) }), before(all, h.Pos()))
		}
	}
}

func sameFrames(t *testing.T, what string, got, want []record) {
	t.Helper()
	equal := slices.EqualFunc(got, want, func(a, b record) bool { return a.pos == b.pos && string(a.payload) == string(b.payload) })
	if !equal {
		t.Fatalf("%s: %d frames, want %d", what, len(got), len(want))
	}
}
