package journal

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// beforeEach is called before each operation that changes a file system.
type beforeEach func(op errorfs.Op)

func (f beforeEach) String() string { return "before-each" }

func (f beforeEach) MaybeError(op errorfs.Op) error {
	if isWrite(op) {
		f(op)
	}
	return nil
}

// The power goes before any operation on files, while a log begins, recovers, begins segments and ends. Nothing that a crash
// leaves is taken for a lost file, by an open or by Inspect: the note of how far the log has come never runs ahead of it.
func TestACrashAtAnyStepIsNoDamage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 77))
	fs := vfs.NewCrashableMem()
	for generation := range 3 {
		type left struct {
			fs *vfs.MemFS
			op errorfs.Op
		}
		var all []left
		watched := errorfs.Wrap(fs, beforeEach(func(op errorfs.Op) { all = append(all, left{crashClone(fs, rng), op}) }))
		j, err := Open(Options{FS: watched, Dir: testDir, SegmentBytes: minSegmentBytes})
		if err == nil {
			err = j.Recover(Beginning, func(Pos, []byte) error { return nil })
		}
		for i := uint64(0); i < 6 && err == nil; i++ {
			err = j.Commit(j.Append(payload(i, minSegmentBytes/2)))
		}
		if err != nil {
			t.Fatal(err)
		}
		closeJournal(t, j)
		for _, s := range all {
			in, err := Inspect(s.fs, testDir, Beginning, func(Pos, []byte) error { return nil })
			if err != nil || len(in.Holes) > 0 {
				t.Errorf("generation %d, before %v of %s: %v, %+v", generation, s.op.Kind, s.op.Path, err, in.Holes)
			}
			again, err := Open(Options{FS: s.fs.CrashClone(vfs.CrashCloneCfg{}), Dir: testDir, SegmentBytes: minSegmentBytes})
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Recover(Beginning, func(Pos, []byte) error { return nil }); err != nil {
				t.Errorf("generation %d, before %v of %s: %v", generation, s.op.Kind, s.op.Path, err)
			}
			closeJournal(t, again)
		}
		fs = all[rng.IntN(len(all))].fs
	}
}
