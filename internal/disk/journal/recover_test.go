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

// openFrom opens the journal on fs and recovers it from a position on.
func openFrom(t testing.TB, fs vfs.FS, from Pos) (*Journal, []record) {
	t.Helper()
	j, got, err := tryFrom(fs, from)
	if err != nil {
		t.Fatalf("recover from %s: %v", from, err)
	}
	return j, got
}

func tryFrom(fs vfs.FS, from Pos) (*Journal, []record, error) {
	j, err := Open(Options{FS: fs, Dir: testDir, KeepDir: testKeepDir, SegmentBytes: minSegmentBytes, KeepRecycled: 2})
	if err != nil {
		return nil, nil, err
	}
	var got []record
	err = j.Recover(from, func(pos Pos, payload []byte) error {
		got = append(got, record{pos, bytes.Clone(payload)})
		return nil
	})
	if err != nil {
		j.Close()
		return nil, nil, err
	}
	return j, got, nil
}

// Recovery from any frame on hands over that frame and all behind it, and what is
// appended then is found from there as well.
func TestRecoverFromEveryFrame(t *testing.T) {
	fs, all := history(t, rand.New(rand.NewPCG(1, 13)), true)
	original := files(t, fs)
	for i, r := range all {
		disk := withFiles(t, original, "", nil)
		j, got := openFrom(t, disk, r.pos)
		same(t, got, all[i:])
		for _, old := range all { // what lies before can still be read
			if b, err := j.ReadAt(j.PayloadPos(old.pos), len(old.payload), nil); err != nil || !bytes.Equal(b, old.payload) {
				t.Fatalf("frame at %s, read after recovery from %s: %v", old.pos, r.pos, err)
			}
		}
		p := payload(1<<40, 300)
		want := append(slices.Clone(all[i:]), record{j.Append(p), p})
		closeJournal(t, j)
		j, got = openFrom(t, disk, r.pos)
		same(t, got, want)
		closeJournal(t, j)
	}
}

// Committed is a place to recover from at any time: in the middle, at the end,
// and where the next segment is not begun.
func TestRecoverFromTheEnd(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	places := []Pos{j.Committed()}
	for i := range 12 {
		if err := j.Commit(j.Append(payload(uint64(i), 3000))); err != nil {
			t.Fatal(err)
		}
		places = append(places, j.Committed())
	}
	closeJournal(t, j)
	places = append(places, j.Committed())
	j, all := open(t, fs)
	places = append(places, j.Committed())
	// Where the next segment would begin, which has no file yet.
	places = append(places, MakePos(j.Committed().Segment()+1, headerBytes))
	defer closeJournal(t, j)
	for _, from := range places {
		want := all
		for len(want) > 0 && want[0].pos < from {
			want = want[1:]
		}
		disk := withFiles(t, files(t, fs), "", nil)
		j, got := openFrom(t, disk, from)
		same(t, got, want)
		p := payload(1<<40, 300)
		want = append(slices.Clone(want), record{j.Append(p), p})
		closeJournal(t, j)
		if _, got = openFrom(t, disk, from); len(got) != len(want) || got[len(got)-1].pos != want[len(want)-1].pos {
			t.Errorf("from %s: %d frames were recovered after an append, want %d", from, len(got), len(want))
		}
		if r, err := check(disk, testDir); err != nil || r.Damage != nil {
			t.Errorf("from %s: the journal is damaged afterwards: %v, %v", from, err, r.Damage)
		}
	}
}

// A journal that ends before the place a checkpoint names is damaged, and says where.
func TestRecoverFromBehindTheEndIsDamage(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	var all []record
	for i := range 20 {
		p := payload(uint64(i), 2000)
		all = append(all, record{j.Append(p), p})
	}
	closeJournal(t, j)
	end := j.Committed()
	original := files(t, fs)
	last := all[len(all)-1].pos
	for name, c := range map[string]struct {
		from  Pos
		files func(m map[string][]byte)
		want  string
	}{
		"the last frame is cut off": {end, func(m map[string][]byte) {
			m[segmentName(last.Segment())] = m[segmentName(last.Segment())][:last.Offset()+5]
		}, "frames end here"},
		"behind the end":             {end + 1000, nil, "frames end here"},
		"the segment is missing":     {last, func(m map[string][]byte) { delete(m, segmentName(last.Segment())) }, "missing"},
		"two segments are missing":   {MakePos(end.Segment()+2, headerBytes), nil, "missing"},
		"all segments are missing":   {last, clearFiles, "empty"},
		"behind an older segment":    {MakePos(1, 16300), nil, "frames end here"},
		"the first segments missing": {all[0].pos, func(m map[string][]byte) { delete(m, segmentName(1)) }, "missing"},
	} {
		m := map[string][]byte{}
		for n, b := range original {
			m[n] = bytes.Clone(b)
		}
		if c.files != nil {
			c.files(m)
		}
		_, _, err := tryFrom(withFiles(t, m, "", nil), c.from)
		var damage *DamageError
		if !errors.As(err, &damage) || !strings.Contains(damage.Reason, c.want) {
			t.Errorf("%s: got %v, want damage because %q", name, err, c.want)
		}
	}
	_, _, err := tryFrom(fs, all[3].pos+7)
	var damage *DamageError
	if err == nil || errors.As(err, &damage) || !strings.Contains(err.Error(), "no frame begins there") {
		t.Errorf("from the middle of a frame: %v", err)
	}
}

func clearFiles(m map[string][]byte) { clear(m) }

// What lies before the place a checkpoint names is not read: rot in it is found by
// whoever reads the record.
func TestRecoverDoesNotReadWhatIsBefore(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	var all []record
	for i := range 20 {
		p := payload(uint64(i), 2000)
		all = append(all, record{j.Append(p), p})
	}
	closeJournal(t, j)
	m := files(t, fs)
	for name := range m {
		if name < segmentName(3) {
			m[name][headerBytes+500] ^= 1
			m[name][20] ^= 1
			m[name][headerStride+20] ^= 1
		}
	}
	i := slices.IndexFunc(all, func(r record) bool { return r.pos.Segment() == 3 })
	j, got := openFrom(t, withFiles(t, m, "", nil), all[i].pos)
	same(t, got, all[i:])
	if err := j.Retire(3, nil); err != nil || j.Segments()[0].Number != 3 || len(j.free) != 0 {
		t.Errorf("segments %v, %d recycled, %v: want the rotten ones removed", j.Segments(), len(j.free), err)
	}
	closeJournal(t, j)
}

func TestFormat1IsRefusedByName(t *testing.T) {
	fs := withFiles(t, map[string][]byte{"00000007.seg": make([]byte, 100)}, "", nil)
	_, err := Open(Options{FS: fs, Dir: testDir})
	if !errors.Is(err, errFormat) || !strings.Contains(err.Error(), "00000007.seg") {
		t.Errorf("Open = %v, want the file refused by name", err)
	}
}

func TestReadSome(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	var all []record
	for i := range 30 {
		p := payload(uint64(i), 1000)
		all = append(all, record{j.Append(p), p})
		if i == 20 {
			if err := j.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, size := range []int{24, 1000, 5000, 100_000} {
		dst := make([]byte, size)
		for _, r := range all {
			n, err := j.ReadSome(j.PayloadPos(r.pos), dst)
			if least := min(size, len(r.payload)); err != nil || n < least || !bytes.Equal(dst[:least], r.payload[:least]) {
				t.Fatalf("read %d bytes at %s into %d: %v", n, r.pos, size, err)
			}
		}
	}
	if _, err := j.ReadSome(MakePos(99, 9000), make([]byte, 10)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("read behind the end: %v, want ErrNotHeld", err)
	}
	closeJournal(t, j)
}

// forgetful is what a kernel does to a file whose sync has failed: it goes on showing the bytes
// and takes them for written. What is not written again is not on the disk.
type forgetful struct {
	vfs.FS
	path  string
	clean map[int64]bool // offsets of bytes that will never get to the disk
}

type forgetfulFile struct {
	vfs.File
	of *forgetful
}

func (f *forgetful) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	if err == nil && name == f.path {
		file = forgetfulFile{file, f}
	}
	return file, err
}

func (f forgetfulFile) WriteAt(b []byte, at int64) (int, error) {
	for i := range b {
		delete(f.of.clean, at+int64(i))
	}
	return f.File.WriteAt(b, at)
}

// A process stops since the sync of a new segment's header has failed. The next one reads the
// header from the kernel's cache, goes on behind it, and the machine dies.
func TestHeaderWhoseSyncFailedIsWrittenAgain(t *testing.T) {
	base := vfs.NewCrashableMem()
	second := base.PathJoin(testDir, segmentName(2))
	j, _ := open(t, errorfs.Wrap(base, &failNth{match: func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == second }}))
	if err := j.Commit(j.Append(payload(0, minSegmentBytes-headerBytes-frameHeaderBytes))); err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(j.Append(payload(1, 100))); !errors.Is(err, errInjected) {
		t.Fatalf("the commit whose header cannot be synced: %v", err)
	}
	j.Close()

	kernel := &forgetful{FS: base, path: second, clean: map[int64]bool{}}
	for i := range int64(headerBytes) {
		kernel.clean[i] = true
	}
	j, got := open(t, kernel)
	if len(got) != 1 {
		t.Fatalf("%d frames, want the first", len(got))
	}
	if err := j.Commit(j.Append(payload(2, 100))); err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)

	disk := base.CrashClone(vfs.CrashCloneCfg{})
	f, err := disk.OpenReadWrite(second, writeCategory)
	if err != nil {
		t.Fatal(err)
	}
	for at := range kernel.clean {
		if _, err := f.WriteAt([]byte{0}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	j, got, err = tryOpen(disk)
	if err != nil || len(got) != 2 {
		t.Fatalf("after the machine died: %d frames, %v; want 2", len(got), err)
	}
	closeJournal(t, j)
}

// What is synced in a directory is there after a crash, however many directories above it
// were made with it.
func TestDirectoryIsThereAfterACrash(t *testing.T) {
	files := vfs.NewCrashableMem()
	const dir = "/var/lib/node/journal"
	if err := files.MkdirAll("/var", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := SyncDirectory(files, "/"); err != nil {
		t.Fatal(err)
	}
	in := func(o *Options) { o.Dir = dir }
	j, _, err := tryOpen(files, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(j.Append(payload(0, 100))); err != nil {
		t.Fatal(err)
	}
	after := files.CrashClone(vfs.CrashCloneCfg{})
	closeJournal(t, j)
	j, got, err := tryOpen(after, in)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d frames, %v; what was committed is gone", len(got), err)
	}
	closeJournal(t, j)
}
