package journal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// history runs random appends, commits, flushes, restarts and drops, so that
// segments are recycled, and returns what is in the journal at the end. sealed says
// whether it was closed, or stopped dead with all written.
func history(t testing.TB, rng *rand.Rand, sealed bool) (vfs.FS, []record) {
	t.Helper()
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	var all []record
	for i := range 50 {
		p := payload(uint64(i), 8+rng.IntN(1500))
		pos := j.Append(p)
		all = append(all, record{pos, p})
		var err error
		switch rng.IntN(5) {
		case 0:
			err = j.Commit(pos)
		case 1:
			err = j.Flush()
		}
		if err == nil && i == 25 {
			closeJournal(t, j)
			j, _ = open(t, fs)
		}
		if first := pos.Segment() - min(pos.Segment(), 2); err == nil && i%10 == 9 {
			err = j.Retire(first, nil)
			all = slices.DeleteFunc(all, func(r record) bool { return r.pos.Segment() < first })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if sealed {
		closeJournal(t, j)
	} else if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	return fs, all
}

// before returns the records that end at pos or before.
func before(all []record, pos Pos) []record {
	n := 0
	for n < len(all) && all[n].pos+frameHeaderBytes+Pos(len(all[n].payload)) <= pos {
		n++
	}
	return all[:n]
}

func TestTruncationAtEveryByte(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		fs, all := history(t, rand.New(rand.NewPCG(seed, 2)), seed%2 == 0)
		original := files(t, fs)
		report, err := check(fs, testDir)
		if err != nil || report.Damage != nil {
			t.Fatal(err, report.Damage)
		}
		for i, s := range report.Segments {
			last := i == len(report.Segments)-1
			name := segmentName(s.Number)
			for cut := int64(0); cut < int64(len(original[name])); cut++ {
				if cut > headerCopyBytes && cut < headerStride || cut > headerStride+headerCopyBytes && cut < headerBytes-20 || cut > s.Bytes+40 {
					continue // nothing lives there
				}
				if (testing.Short() || seed > 0 || i < len(report.Segments)-2) && cut%7 != 0 {
					continue // every byte of the last two segments of one history is enough
				}
				cutFS := withFiles(t, original, name, original[name][:cut])
				j, got, err := tryOpen(cutFS)
				// The newest may lack frames that were not synced. A header it has had.
				if !last && cut < s.Bytes || cut < headerCopyBytes {
					var damage *DamageError
					if !errors.As(err, &damage) || damage.Segment != s.Number {
						t.Fatalf("seed %d: segment %d cut at %d: got %v, want it reported as damage", seed, s.Number, cut, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("seed %d: segment %d cut at %d: %v", seed, s.Number, cut, err)
				}
				want := all
				if last {
					want = before(all, MakePos(s.Number, cut))
				}
				same(t, got, want)
				if cut%61 != 0 {
					j.Close()
					continue
				}
				// What comes next follows what was kept, and nothing torn comes back.
				p := payload(1<<40, 300)
				want = append(slices.Clone(want), record{j.Append(p), p})
				closeJournal(t, j)
				j, got = open(t, cutFS)
				same(t, got, want)
				closeJournal(t, j)
			}
		}
	}
}

func TestBitFlips(t *testing.T) {
	t.Parallel()
	rounds := 1500
	if testing.Short() {
		rounds = 400
	}
	damaged, torn, harmless := 0, 0, 0
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fs, all := history(t, rng, seed%2 == 0)
		original := files(t, fs)
		report, err := check(fs, testDir)
		if err != nil || report.Damage != nil {
			t.Fatal(err, report.Damage)
		}
		lastSegment := report.Segments[len(report.Segments)-1]
		for range rounds {
			s := report.Segments[rng.IntN(len(report.Segments))]
			name := segmentName(s.Number)
			at := rng.Int64N(int64(len(original[name])))
			if rng.IntN(4) > 0 { // mostly where it hurts
				at = headerBytes + rng.Int64N(int64(len(original[name]))-headerBytes)
			}
			data := slices.Clone(original[name])
			data[at] ^= 1 << rng.IntN(8)
			j, got, err := tryOpen(withFiles(t, original, name, data))
			var damage *DamageError
			if err != nil && !errors.As(err, &damage) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			pos := MakePos(s.Number, at)
			switch {
			case at < headerBytes || at >= s.Bytes: // one header copy of two, or nobody's bytes
				if err != nil {
					t.Fatalf("seed %d: flip at %s: %v", seed, pos, err)
				}
				same(t, got, all)
				harmless++
			case pos < report.Committed || s.Number != lastSegment.Number:
				if damage == nil || damage.Segment != s.Number || damage.Offset > at {
					t.Fatalf("seed %d: flip at %s, in what was committed: %v", seed, pos, err)
				}
				samePrefix(t, got, all)
				damaged++
			default:
				if err != nil {
					t.Fatalf("seed %d: flip at %s, behind what was committed: %v", seed, pos, err)
				}
				same(t, got, before(all, pos))
				torn++
			}
			if j != nil {
				j.Close()
			}
		}
	}
	t.Logf("%d reported as damage, %d as torn, %d harmless", damaged, torn, harmless)
	if damaged == 0 || torn == 0 || harmless == 0 {
		t.Error("one of the outcomes was never met")
	}
}

func TestSealProvesTheLastFrame(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	pos := j.Append(payload(1, 100))
	closeJournal(t, j)
	m := files(t, fs)
	m[segmentName(1)][j.PayloadPos(pos).Offset()+50] ^= 4
	_, _, err := tryOpen(withFiles(t, m, "", nil))
	var damage *DamageError
	if !errors.As(err, &damage) || damage.Offset != pos.Offset() || damage.Proof == 0 {
		t.Errorf("got %v, want damage at %s, proved by the seal", err, pos)
	}
}

func TestFlushLeavesAMarkThatProvesTheLastSync(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	pos := j.Append(payload(1, 100))
	if err := j.Commit(pos); err != nil {
		t.Fatal(err)
	}
	for range 3 { // one mark, not three
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := check(fs, testDir)
	if err != nil || r.Committed != j.Committed() || r.End != r.Committed+frameHeaderBytes {
		t.Errorf("report %+v, %v: want one mark that proves %s", r, err, j.Committed())
	}
}

func TestMissingSegmentIsDamage(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	for i := range 40 {
		j.Append(payload(uint64(i), 1000))
	}
	closeJournal(t, j)
	m := files(t, fs)
	delete(m, segmentName(2))
	_, _, err := tryOpen(withFiles(t, m, "", nil))
	var damage *DamageError
	if !errors.As(err, &damage) || damage.Segment != 2 || damage.File != testDir+"/"+segmentName(2) {
		t.Errorf("got %v, want segment 2 reported missing", err)
	}
}

func TestHeaderDestroyedWithFramesBehindItIsDamage(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	j.Append(payload(1, 100))
	closeJournal(t, j)
	for _, last := range []bool{true, false} {
		m := files(t, fs)
		if !last {
			h := header{segment: 2, epoch: 9, prevEnd: MakePos(1, headerBytes)}
			m[segmentName(2)] = append(h.encode(), make([]byte, 100)...)
		}
		for _, at := range []int{20, headerStride + 3} {
			m[segmentName(1)][at] ^= 1
		}
		_, _, err := tryOpen(withFiles(t, m, "", nil))
		var damage *DamageError
		if !errors.As(err, &damage) || damage.Segment != 1 {
			t.Errorf("newest %v: got %v, want the header of segment 1 reported", last, err)
		}
	}
}

func TestLostHeaderCopyIsSurvivedAndTheFileNotRecycled(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	want := []record{{pos: j.Append(payload(1, 100)), payload: payload(1, 100)}}
	closeJournal(t, j)
	for _, copyAt := range []int{0, headerStride} {
		m := files(t, fs)
		clear(m[segmentName(1)][copyAt : copyAt+headerStride])
		m[segmentName(1)][copyAt] = 0xff
		damagedFS := withFiles(t, m, "", nil)
		j, got := open(t, damagedFS)
		same(t, got, want)
		if err := j.Commit(j.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if err := j.Retire(2, nil); err != nil {
			t.Fatal(err)
		}
		if len(j.free) != 0 {
			t.Error("a file with a rotten header was recycled")
		}
		closeJournal(t, j)
	}
}

func TestNewestSegmentWithoutHeaderIsTornCreation(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	want := []record{{pos: j.Append(payload(1, 100)), payload: payload(1, 100)}}
	closeJournal(t, j)
	old := files(t, fs)[segmentName(1)]
	stale := header{segment: 9, epoch: 1}.encode() // what a recycled file held before
	for name, content := range map[string][]byte{
		"empty":              {},
		"short":              old[:20],
		"zeros":              make([]byte, minSegmentBytes),
		"recycled":           append(stale, old[headerBytes:]...),
		"half of a new file": append(make([]byte, headerStride), stale[:headerStride]...),
	} {
		m := files(t, fs)
		m[segmentName(2)] = content
		j, got := open(t, withFiles(t, m, "", nil))
		same(t, got, want)
		if pos := j.Append(nil); pos != MakePos(2, headerBytes) {
			t.Errorf("%s: the next frame is at %s", name, pos)
		}
		closeJournal(t, j)
	}
}

// A header that is zeros, with frames behind it, has been lost: no frame is written before the header is on disk.
func TestAZeroedHeaderWithFramesBehindItIsDamage(t *testing.T) {
	fs, _ := history(t, rand.New(rand.NewPCG(7, 3)), false)
	original := files(t, fs)
	report, err := check(fs, testDir)
	if err != nil || report.Damage != nil {
		t.Fatal(err, report.Damage)
	}
	last := segmentName(report.Segments[len(report.Segments)-1].Number)
	data := slices.Clone(original[last])
	clear(data[:headerBytes])
	_, _, err = tryOpen(withFiles(t, original, last, data))
	var damage *DamageError
	if !errors.As(err, &damage) {
		t.Errorf("opened with %v, want damage", err)
	}
}
