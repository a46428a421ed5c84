package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

const testKeepDir = "keep"

func keeping(o *Options) { o.KeepDir = testKeepDir }

// odd is what is live in these tests: the segments with an odd number.
func odd(segment uint32) bool { return segment%2 == 1 }

// fillSegments appends one frame to each of n segments, durably.
func fillSegments(t testing.TB, j *Journal, n int) (all []record) {
	t.Helper()
	for i := range n {
		p := payload(uint64(i), minSegmentBytes-headerBytes-frameHeaderBytes)
		all = append(all, record{j.Append(p), p})
	}
	if err := j.Commit(all[n-1].pos); err != nil {
		t.Fatal(err)
	}
	return all
}

// readKept reads what lies at pos in the file of a segment that was moved to KeepDir.
func readKept(fs vfs.FS, pos Pos, n int) ([]byte, error) {
	f, err := fs.Open(fs.PathJoin(testKeepDir, segmentName(pos.Segment())))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, n)
	_, err = f.ReadAt(b, pos.Offset())
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// findable fails unless the record can be read, in the journal or else from KeepDir.
func findable(t testing.TB, fs vfs.FS, j *Journal, r record) {
	t.Helper()
	at := j.PayloadPos(r.pos)
	got, err := j.ReadAt(at, len(r.payload), nil)
	if errors.Is(err, ErrNotHeld) {
		got, err = readKept(fs, at, len(r.payload))
	}
	if err != nil || !bytes.Equal(got, r.payload) {
		t.Fatalf("the record of the live segment %d cannot be read: %v", r.pos.Segment(), err)
	}
}

func TestRetireMovesWhatIsLive(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs, keeping)
	all := fillSegments(t, j, 7)
	if err := j.Retire(6, odd); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(j.Segments()); got != "[{6 16384} {7 16384}]" {
		t.Errorf("segments %s, want 6 and 7", got)
	}
	for _, r := range all[:5] {
		if odd(r.pos.Segment()) {
			if _, err := j.ReadAt(j.PayloadPos(r.pos), 8, nil); !errors.Is(err, ErrNotHeld) {
				t.Errorf("the journal still reads segment %d: %v", r.pos.Segment(), err)
			}
			findable(t, fs, j, r)
		} else if _, err := readKept(fs, r.pos, 1); err == nil {
			t.Errorf("segment %d was kept", r.pos.Segment())
		}
	}
	if len(j.free) != 2 {
		t.Errorf("%d files are recycled, want those of segments 2 and 4", len(j.free))
	}
	// New segments use the recycled files.
	fillSegments(t, j, 2)
	if len(j.free) != 0 {
		t.Errorf("%d recycled files were left lying", len(j.free))
	}
	closeJournal(t, j)
}

func TestRetireWithoutKeepDirStopsAtWhatIsLive(t *testing.T) {
	j, _ := open(t, vfs.NewMem())
	fillSegments(t, j, 4)
	if err := j.Retire(4, func(n uint32) bool { return n == 2 }); err != nil {
		t.Fatal(err)
	}
	if first := j.Segments()[0].Number; first != 2 {
		t.Errorf("the first segment is %d, want 2", first)
	}
	closeJournal(t, j)
}

// A crash at any step of Retire leaves every live segment readable, in one place
// or the other, and all frames behind the checkpoint; retiring again ends it.
func TestCrashWhileRetiring(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 11))
		fs := vfs.NewCrashableMem()
		var all []record
		var from Pos
		verify := func(name string) {
			if from == 0 {
				return
			}
			seen[name]++
			clone := crashClone(fs, rng)
			for range 2 {
				j, got := openFrom(t, clone, from)
				same(t, got, all[from.Segment()-1:])
				for _, r := range all {
					if odd(r.pos.Segment()) {
						findable(t, clone, j, r)
					}
				}
				if err := j.Retire(from.Segment(), odd); err != nil {
					t.Fatal(err)
				}
				for _, r := range all {
					if odd(r.pos.Segment()) {
						findable(t, clone, j, r)
					}
				}
				clone = crashClone(clone, rng)
				j.Close()
			}
		}
		j, _ := open(t, fs, keeping, func(o *Options) { o.Failpoint = verify })
		all = fillSegments(t, j, 9)
		from = all[4+rng.IntN(5)].pos
		if err := j.Retire(from.Segment(), odd); err != nil {
			t.Fatal(err)
		}
		closeJournal(t, j)
	}
	for _, name := range []string{FailRetireBefore, FailRetireMoved, FailRetireKept} {
		if seen[name] == 0 {
			t.Errorf("failpoint %s was never reached", name)
		}
	}
}

// Whatever fails while segments are retired, none that is live is lost.
func TestRetireThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	for n := 0; ; n++ {
		base := vfs.NewCrashableMem()
		armed := false
		inject := &failNth{match: func(op errorfs.Op) bool { return armed && isWrite(op) }, n: n}
		j, _ := open(t, errorfs.Wrap(base, inject), keeping)
		all := fillSegments(t, j, 6)
		armed = true
		err := j.Retire(6, odd)
		armed = false
		if inject.count <= n {
			closeJournal(t, j)
			break
		}
		if !errors.Is(err, errInjected) {
			t.Fatalf("operation %d (%v) failed, Retire says %v", n, inject.hit.Kind, err)
		}
		for seed := range uint64(4) {
			clone := crashClone(base, rand.New(rand.NewPCG(seed, 12)))
			again, got := openFrom(t, clone, all[5].pos)
			same(t, got, all[5:])
			for _, r := range all {
				if odd(r.pos.Segment()) {
					findable(t, clone, again, r)
				}
			}
			closeJournal(t, again)
		}
		j.Close()
	}
}

// While room is short the journal keeps no files but those its frames need: recycled ones
// are removed, now and at a start, and what was taken in advance for the segment at hand can
// be given back. Once there is room it recycles as before.
func TestShortOfRoomKeepsNothingSpare(t *testing.T) {
	fs := vfs.NewMem()
	recycled := func(when string, want int) {
		t.Helper()
		names, err := fs.List(testDir)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range names {
			if _, suffix, ok := parseName(name); ok && suffix == freeSuffix {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d recycled files, want %d", when, n, want)
		}
	}
	short := func(j *Journal, is bool) {
		t.Helper()
		if err := j.ShortOfRoom(is); err != nil {
			t.Fatal(err)
		}
	}
	retire := func(j *Journal, before uint32) {
		t.Helper()
		if err := j.Retire(before, nil); err != nil {
			t.Fatal(err)
		}
	}
	j, _ := open(t, fs)
	fillSegments(t, j, 5)
	retire(j, 3)
	recycled("with room", 2)
	at := j.Append([]byte("alone in its segment so far"))
	short(j, true)
	recycled("short of room", 0)
	first := j.Append([]byte("first"))
	if first.Segment() != at.Segment()+1 || first.Offset() != headerBytes {
		t.Errorf("the frame after %s is at %s, want it at the start of the next segment", at, first)
	}
	short(j, true)
	if second := j.Append([]byte("second")); second.Segment() != first.Segment() {
		t.Errorf("a second call has begun another segment: %s, %s", first, second)
	}
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	retire(j, first.Segment())
	recycled("retired while short of room", 0)
	short(j, false)
	fillSegments(t, j, 3)
	retire(j, j.Segments()[2].Number)
	recycled("with room again", 2)
	closeJournal(t, j)

	j, _ = open(t, fs, func(o *Options) { o.Short = true })
	recycled("a start short of room", 0)
	closeJournal(t, j)
}
