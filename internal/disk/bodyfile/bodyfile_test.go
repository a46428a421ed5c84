package bodyfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errInjected = errors.New("injected")

func record(i, n int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(i + k)
	}
	return b
}

func openKeep(t testing.TB, fs vfs.FS) *Keep {
	t.Helper()
	k, err := OpenKeep(fs, "keep", nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// writeDense writes a dense file of n records and returns where they are.
func writeDense(t testing.TB, k *Keep, n int) (number uint32, offsets []uint32) {
	t.Helper()
	w, err := k.Create()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		offset, err := w.Append(record(i, 100+i*700%90_000))
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, offset)
	}
	size := w.Size()
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(nil); err == nil {
		t.Error("a finished file was appended to")
	}
	files, err := k.List()
	if err != nil || !slices.Contains(files, File{Dense, w.Number(), size}) {
		t.Fatalf("files %v, %v: want number %d with %d bytes", files, err, w.Number(), size)
	}
	return w.Number(), offsets
}

func checkDense(t testing.TB, k *Keep, number uint32, offsets []uint32) {
	t.Helper()
	for i, offset := range offsets {
		want := record(i, 100+i*700%90_000)
		got := make([]byte, len(want))
		if n, err := k.ReadAt(Dense, number, got, int64(offset)); err != nil || n != len(want) || !bytes.Equal(got, want) {
			t.Fatalf("record %d at %d: %d bytes, %v", i, offset, n, err)
		}
	}
}

func TestDenseFiles(t *testing.T) {
	fs := vfs.NewMem()
	k := openKeep(t, fs)
	var numbers []uint32
	var all [][]uint32
	for range maxOpen + 10 {
		number, offsets := writeDense(t, k, 20)
		numbers, all = append(numbers, number), append(all, offsets)
	}
	k.Close()
	k = openKeep(t, fs)
	for range 2 {
		for i := range numbers {
			checkDense(t, k, numbers[i], all[i])
		}
	}
	if n := k.handles.open.Len(); n > maxOpen {
		t.Errorf("%d files are open, the bound is %d", n, maxOpen)
	}
	if n, err := k.ReadAt(Dense, numbers[0], make([]byte, 10), 1<<30); n != 0 || err != nil {
		t.Errorf("read behind the end: %d bytes, %v", n, err)
	}
	if err := k.Drop(Dense, numbers[0]); err != nil {
		t.Error(err)
	}
	if _, err := k.ReadAt(Dense, numbers[0], make([]byte, 10), 0); err == nil {
		t.Error("a dropped file can be read")
	}
	if err := k.Drop(Dense, numbers[0]); err != nil {
		t.Errorf("dropped a second time: %v", err)
	}
	if again, _ := writeDense(t, k, 1); slices.Contains(numbers, again) {
		t.Errorf("number %d was used twice", again)
	}
	k.Close()
	if _, err := k.ReadAt(Dense, numbers[1], make([]byte, 10), 0); !errors.Is(err, errClosed) {
		t.Errorf("read after Close: %v", err)
	}
}

func TestRetainRemovesTheRest(t *testing.T) {
	fs := vfs.NewMem()
	k := openKeep(t, fs)
	first, _ := writeDense(t, k, 3)
	second, offsets := writeDense(t, k, 3)
	for _, name := range []string{"keep/0000000007.seg", "keep/0000000009.seg", "keep/notes.txt"} {
		f, err := fs.Create(name, writeCategory)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := k.Retain(func(f File) bool { return f.Kind == Retired && f.Number == 9 || f.Number == second }); err != nil {
		t.Fatal(err)
	}
	names, _ := fs.List("keep")
	slices.Sort(names)
	if fmt.Sprint(names) != "[0000000002.keep 0000000009.seg notes.txt]" || first != 1 {
		t.Errorf("left are %v", names)
	}
	checkDense(t, k, second, offsets)
	k.Close()
}

func TestAbortRemovesTheFile(t *testing.T) {
	fs := vfs.NewMem()
	k := openKeep(t, fs)
	w, err := k.Create()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(record(1, 10)); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if files, err := k.List(); err != nil || len(files) != 0 {
		t.Errorf("files %v, %v", files, err)
	}
	k.Close()
}

// A crash at any step of Finish leaves what was finished before, and the file itself
// once Finish has returned; what is left of one that was not is no obstacle.
func TestCrashWhileFinishing(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 21))
		fs := vfs.NewCrashableMem()
		crash := func() *vfs.MemFS {
			return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 30, 70, 100}[rng.IntN(4)], RNG: rng})
		}
		var finished []func(k *Keep)
		verify := func(name string) {
			seen[name]++
			clone := crash()
			again := openKeep(t, clone)
			for _, f := range finished {
				f(again)
			}
			number, offsets := writeDense(t, again, 3)
			checkDense(t, again, number, offsets)
			again.Close()
		}
		k, err := OpenKeep(fs, "keep", verify)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			number, offsets := writeDense(t, k, 1+rng.IntN(20))
			finished = append(finished, func(k *Keep) { checkDense(t, k, number, offsets) })
			verify("finished")
		}
		k.Close()
	}
	for _, name := range Failpoints {
		if seen[name] == 0 {
			t.Errorf("failpoint %s was never reached", name)
		}
	}
}

// Whatever fails while a dense file is made, Finish does not claim that it is there.
func TestFailedWriteIsNotFinished(t *testing.T) {
	t.Parallel()
	for n := 0; ; n++ {
		base := vfs.NewCrashableMem()
		count, armed := 0, false
		fs := errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !armed || op.Kind != errorfs.OpOpenDir && op.Kind != errorfs.OpCreate && op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			if count++; count-1 == n {
				return errInjected
			}
			return nil
		}))
		k := openKeep(t, fs)
		armed = true
		err := func() error {
			w, err := k.Create()
			if err != nil {
				return err
			}
			for i := range 12 {
				if _, err := w.Append(record(i, 100_000)); err != nil {
					_ = w.Abort()
					return err
				}
			}
			return w.Finish()
		}()
		k.Close()
		if count <= n {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil || !errors.Is(err, errInjected) {
			t.Fatalf("operation %d failed, got %v", n, err)
		}
	}
}

func TestUnknownFormatIsRefusedByName(t *testing.T) {
	fs := vfs.NewMem()
	k := openKeep(t, fs)
	writeDense(t, k, 1)
	k.Close()
	b := appendHeader(nil, 3)
	binary.LittleEndian.PutUint32(b[8:], formatVersion+1)
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
	f, err := fs.Create("keep/0000000003.keep", writeCategory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := OpenKeep(fs, "keep", nil); !errors.Is(err, errFormat) || !bytes.Contains([]byte(err.Error()), []byte("0000000003.keep")) {
		t.Errorf("OpenKeep = %v, want the file refused by name", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(appendHeader(nil, 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		ok, err := checkHeader(b, 1)
		if ok && (err != nil || !bytes.Equal(b[:20], appendHeader(nil, 1)[:20])) {
			t.Errorf("%x was taken for the header of file 1", b)
		}
	})
}

func TestScratch(t *testing.T) {
	fs := vfs.NewMem()
	s, err := OpenScratch(fs, "scratch", 50_000)
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ number, offset uint32 }
	var all []place
	size := func(i int) int { return []int{1, 100, 3000, 400_000}[i%4] }
	for i := range 60 {
		number, offset, err := s.Append(record(i, size(i)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, place{number, offset})
		for k, p := range all {
			want := record(k, size(k))
			got := make([]byte, len(want))
			if n, err := s.ReadAt(p.number, got, int64(p.offset)); err != nil || n != len(want) || !bytes.Equal(got, want) {
				t.Fatalf("record %d of %d: %d bytes, %v", k, i, n, err)
			}
		}
	}
	if s.Drop(s.Current()) == nil {
		t.Error("the file that is appended to was dropped")
	}
	if err := s.Drop(1); err != nil {
		t.Error(err)
	}
	if _, err := s.ReadAt(1, make([]byte, 1), 0); err == nil {
		t.Error("a dropped file can be read")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Append(nil); !errors.Is(err, errClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	if s, err = OpenScratch(fs, "scratch", 0); err != nil {
		t.Fatal(err)
	}
	if names, _ := fs.List("scratch"); len(names) != 0 {
		t.Errorf("files %v are left after a restart", names)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
