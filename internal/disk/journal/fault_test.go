package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errInjected = errors.New("injected")

// failNth fails the n-th operation that match selects, and counts them. Once only:
// what comes after must not depend on the disk failing again.
type failNth struct {
	match func(errorfs.Op) bool
	n     int
	count int
	hit   errorfs.Op
}

func (f *failNth) String() string { return "fail-nth" }

func (f *failNth) MaybeError(op errorfs.Op) error {
	if !f.match(op) {
		return nil
	}
	f.count++
	if f.count-1 == f.n {
		f.hit = op
		return errInjected
	}
	return nil
}

func isWrite(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFilePreallocate: // allowed to fail
		return false
	case errorfs.OpOpen, errorfs.OpOpenDir:
		return true
	}
	return op.Kind.ReadOrWrite() == errorfs.OpIsWrite
}

// TestFailedWriteIsFinalAndLosesNothingCommitted fails every write, sync, create,
// rename and remove of a history in turn.
func TestFailedWriteIsFinalAndLosesNothingCommitted(t *testing.T) {
	t.Parallel()
	hits := make(map[errorfs.OpKind]int)
	for n := 0; ; n++ {
		base := vfs.NewCrashableMem()
		inject := &failNth{match: isWrite, n: n}
		var l ledger
		faultyHistory(t, errorfs.Wrap(base, inject), &l, uint64(n%5))
		if inject.count <= n {
			break // the history has fewer operations than that
		}
		hits[inject.hit.Kind]++
		rng := rand.New(rand.NewPCG(uint64(n), 8))
		for range 3 {
			_, got, err := tryOpen(crashClone(base, rng))
			if err != nil {
				t.Fatalf("operation %d (%v of %s) failed; then: %v", n, inject.hit.Kind, inject.hit.Path, err)
			}
			l.check(t, got, l.promises())
		}
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpOpen, errorfs.OpRemove, errorfs.OpRename, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData} {
		if hits[kind] == 0 {
			t.Errorf("no operation of kind %v was failed", kind)
		}
	}
}

// faultyHistory works on a journal until something fails, and checks that failures are
// final.
func faultyHistory(t *testing.T, fs vfs.FS, l *ledger, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	fatals := 0
	for range 2 {
		var j *Journal
		j, got, err := tryOpen(fs, func(o *Options) {
			o.KeepRecycled = 1
			o.OnFatal = func(error) {
				fatals++
				j.Close() // must be possible here
			}
		})
		if err != nil {
			if !errors.Is(err, errInjected) {
				t.Fatalf("open: %v", err)
			}
			return
		}
		l.check(t, got, l.promises())
		for range 40 {
			pos := l.append(j, 8+rng.IntN(2500))
			var err error
			switch rng.IntN(4) {
			case 0:
				j.NotifyCommitted(pos, func() { l.answered(pos) })
				err = j.Commit(pos)
			case 1:
				err = j.Flush()
			case 2:
				if seg := pos.Segment(); seg > 3 {
					l.dropping(seg - 2)
					if derr := j.Retire(seg-2, nil); derr != nil && !errors.Is(derr, errInjected) {
						t.Fatalf("drop: %v", derr)
					}
				}
			}
			if err == nil {
				continue
			}
			if !errors.Is(err, errInjected) || fatals != 1 {
				t.Fatalf("got %v with OnFatal called %d times, want the injected error and one call", err, fatals)
			}
			later := j.Append(payload(1<<50, 20))
			if again := j.Commit(later); again == nil || again.Error() != err.Error() {
				t.Fatalf("Commit after a failure: %v, want %v again", again, err)
			}
			if j.Flush() == nil {
				t.Fatal("Flush after a failure succeeded")
			}
			j.NotifyCommitted(later, func() { t.Error("notified of a frame that was lost") })
			j.Close()
			return
		}
		if err := j.Close(); err != nil && !errors.Is(err, errInjected) {
			t.Fatalf("close: %v", err)
		}
	}
}

// TestFailedReadIsNeitherDamageNorATornTail fails every operation of a recovery in turn.
func TestFailedReadIsNeitherDamageNorATornTail(t *testing.T) {
	t.Parallel()
	fs, all := history(t, rand.New(rand.NewPCG(4, 9)), false)
	original := files(t, fs)
	last, err := check(fs, testDir)
	if err != nil {
		t.Fatal(err)
	}
	original[segmentName(last.End.Segment()+1)] = make([]byte, 100) // a torn creation, too
	for n := 0; ; n++ {
		disk := withFiles(t, original, "", nil)
		inject := &failNth{match: func(op errorfs.Op) bool { return op.Kind != errorfs.OpFilePreallocate }, n: n}
		j, got, err := tryOpen(errorfs.Wrap(disk, inject))
		if inject.count <= n {
			break
		}
		if err == nil || !errors.Is(err, errInjected) {
			t.Fatalf("operation %d (%v) failed, Recover says %v", n, inject.hit.Kind, err)
		}
		samePrefix(t, got, all)
		if j != nil {
			j.Close()
		}
		_, got = open(t, disk)
		same(t, got, all)
	}
}

func TestRetireThatFailsLeavesTheSegment(t *testing.T) {
	inject := &failNth{match: func(op errorfs.Op) bool {
		return (op.Kind == errorfs.OpRename || op.Kind == errorfs.OpRemove) && strings.HasSuffix(op.Path, segmentSuffix)
	}, n: 1}
	j, _ := open(t, errorfs.Wrap(vfs.NewMem(), inject))
	for i := range 4 {
		j.Append(payload(uint64(i), minSegmentBytes-headerBytes-frameHeaderBytes))
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := j.Retire(4, nil); !errors.Is(err, errInjected) {
		t.Fatalf("Retire = %v", err)
	}
	numbers := func() (n []uint32) {
		for _, s := range j.Segments() {
			n = append(n, s.Number)
		}
		return n
	}
	if !slices.Equal(numbers(), []uint32{2, 3, 4}) {
		t.Errorf("segments %v, want 2 to 4", numbers())
	}
	if b, err := j.ReadAt(MakePos(2, headerBytes+frameHeaderBytes), 8, nil); err != nil || !bytes.Equal(b, payload(1, 8)) {
		t.Errorf("read %x, %v", b, err)
	}
	if err := j.Retire(4, nil); err != nil || !slices.Equal(numbers(), []uint32{4}) {
		t.Errorf("the second try: %v, segments %v", err, numbers())
	}
	closeJournal(t, j)
}
