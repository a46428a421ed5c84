package bodies

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
)

// desk is a store with everything a record can lie in.
type desk struct {
	*Store
	t       testing.TB
	fs      vfs.FS
	j       *journal.Journal
	keep    *bodyfile.Keep
	scratch *bodyfile.Scratch
	serial  message.Serial
}

const (
	segmentBytes = 64 << 10
	scratchBytes = 32 << 10
)

func newDesk(t testing.TB, fs vfs.FS) *desk {
	t.Helper()
	d := &desk{Store: New(), t: t, fs: fs}
	var err error
	if d.j, err = journal.Open(journal.Options{FS: fs, Dir: "journal", KeepDir: "keep", SegmentBytes: segmentBytes}); err != nil {
		t.Fatal(err)
	}
	if err = d.j.Recover(0, func(journal.Pos, []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if d.keep, err = bodyfile.OpenKeep(fs, "keep", nil); err != nil {
		t.Fatal(err)
	}
	if d.scratch, err = bodyfile.OpenScratch(fs, "scratch", scratchBytes); err != nil {
		t.Fatal(err)
	}
	d.Attach(Disk{Journal: d.j, Keep: d.keep, Scratch: d.scratch})
	t.Cleanup(func() {
		d.j.Close()
		d.keep.Close()
		d.scratch.Close()
	})
	return d
}

// make allocates a record with a body of n bytes that tells which it is.
func (d *desk) make(n int) message.Ref {
	d.serial++
	e := message.Envelope{Serial: d.serial, Key: []byte("key"), BodySize: n, Persistent: true}
	ref, b := d.Alloc(e.Size())
	body := e.Put(b)
	for i := range body {
		body[i] = byte(d.serial) + byte(i)
	}
	message.Record(b).Seal()
	return ref
}

// log writes the record into the journal and notes its place.
func (d *desk) log(ref message.Ref) message.Ref {
	at := d.j.PayloadPos(d.j.Append(d.Bytes(ref)))
	d.SetLocation(ref, message.Location(at))
	return ref
}

func (d *desk) cool(ref message.Ref) message.Ref {
	d.t.Helper()
	cool, ok := d.Cool(ref)
	if !ok || !cool.OnDisk() {
		d.t.Fatalf("a record at %s cannot be cooled", d.Location(ref))
	}
	return cool
}

// same fails unless the record of ref has the serial.
func (d *desk) same(ref message.Ref, w *Window, serial message.Serial) {
	d.t.Helper()
	b, err := d.Read(ref, w)
	if err != nil {
		d.t.Fatalf("record %d: %v", serial, err)
	}
	if got := message.Record(b).Serial(); got != serial {
		d.t.Fatalf("the reference to record %d reads record %d", serial, got)
	}
}

func (d *desk) live(at message.Location) (live, placed int64) {
	return d.Live(at.Space(), at.Segment())
}

// A record reads the same from memory, from the journal's buffer and files, from a
// retired segment, a dense file and a scratch file.
func TestReadWhereverItLies(t *testing.T) {
	d := newDesk(t, vfs.NewMem())
	rng := rand.New(rand.NewPCG(1, 1))
	size := func() int {
		if rng.IntN(30) == 0 {
			return 200_000 // longer than a window, and than a segment
		}
		return rng.IntN(3000)
	}
	var cold []message.Ref // by serial, from 1
	for i := range 300 {
		ref := d.make(size())
		switch {
		case i < 200:
			d.log(ref)
		default:
			if err := d.ToScratch(ref); err != nil {
				t.Fatal(err)
			}
		}
		cold = append(cold, d.cool(ref))
	}
	if held := d.Held(); held != 0 {
		t.Errorf("%d records are still in memory", held)
	}
	readAll := func(where string) {
		t.Helper()
		for _, shuffled := range []bool{false, true} {
			order := rng.Perm(len(cold))
			var w Window
			for i := range cold {
				if shuffled {
					i = order[i]
				}
				d.same(cold[i], &w, message.Serial(i+1))
			}
			w.Free()
		}
		if t.Failed() {
			t.Fatal(where)
		}
	}
	readAll("in the buffers")
	if err := d.j.Flush(); err != nil {
		t.Fatal(err)
	}
	readAll("in the journal's files")
	newest := d.j.Segments()[len(d.j.Segments())-1].Number
	if err := d.j.Retire(newest, func(n uint32) bool { live, _ := d.Live(message.InJournal, n); return live > 0 }); err != nil {
		t.Fatal(err)
	}
	if files, err := d.keep.List(); err != nil || len(files) == 0 {
		t.Fatalf("no segment was kept: %v, %v", files, err)
	}
	readAll("in retired segments")
	out, err := d.keep.Create()
	if err != nil {
		t.Fatal(err)
	}
	var w Window
	for i, ref := range cold[:100] {
		b, err := d.Read(ref, &w)
		if err != nil {
			t.Fatal(err)
		}
		offset, err := out.Append(b)
		if err != nil {
			t.Fatal(err)
		}
		d.Place(message.InKeep, out.Number(), 1)
		cold[i] = d.Move(ref, message.MakeLocation(message.InKeep, out.Number(), offset))
	}
	w.Free()
	if err := out.Finish(); err != nil {
		t.Fatal(err)
	}
	readAll("in a dense file")
	if live, placed := d.Live(message.InKeep, out.Number()); live != 100 || placed != 100 {
		t.Errorf("the dense file has %d live of %d, want 100 of 100", live, placed)
	}
	for i, ref := range cold {
		warm, err := d.Warm(ref)
		if err != nil || warm.OnDisk() || d.Location(warm) != ref.Location() {
			t.Fatalf("record %d cannot be warmed: %v", i+1, err)
		}
		d.same(warm, nil, message.Serial(i+1))
		d.Release(warm)
	}
	d.RangeSegments(func(space message.Space, n uint32, live, _ int64) bool {
		if live != 0 {
			t.Errorf("%s segment %d counts %d references, all were released", space, n, live)
		}
		return true
	})
}

// What Live says is the number of references, whatever is done to them.
func TestLiveCountsReferences(t *testing.T) {
	d := newDesk(t, vfs.NewMem())
	ref := d.log(d.make(10))
	at := d.Location(ref)
	expect := func(after string, live, placed int64) {
		t.Helper()
		if l, p := d.live(at); l != live || p != placed {
			t.Errorf("after %s: %d live, %d placed, want %d and %d", after, l, p, live, placed)
		}
	}
	expect("SetLocation", 1, 1)
	d.Retain(ref, 2)
	expect("Retain in memory", 1, 1)
	one := d.cool(ref)
	expect("the first Cool", 2, 1)
	two := d.cool(ref)
	expect("the second Cool", 3, 1)
	three := d.cool(ref)
	expect("Cool of the last reference", 3, 1)
	if one != two || two != three || d.Held() != 0 {
		t.Error("references to one place differ, or memory is held")
	}
	d.Retain(one, 4)
	expect("Retain on disk", 7, 1)
	for range 4 {
		d.Release(one)
	}
	warm, err := d.Warm(two)
	if err != nil {
		t.Fatal(err)
	}
	expect("Warm", 3, 1)
	d.Release(warm)
	d.Release(one)
	expect("Release", 1, 1)
	d.Adopt(at)
	expect("Adopt", 2, 1)
	d.Release(at.Ref())
	d.Release(at.Ref())
	expect("all", 0, 1)
	again := d.log(d.make(10))
	expect("another record", 1, 2)
	elsewhere := message.MakeLocation(message.InKeep, 5, 100)
	if d.Move(again, elsewhere) != again {
		t.Error("a record in memory moved out of it")
	}
	expect("Move", 0, 2)
	if l, _ := d.live(elsewhere); l != 1 {
		t.Errorf("%d references where it moved to, want 1", l)
	}
	d.SetPlaced(at.Space(), at.Segment(), 0)
	var seen []string
	d.RangeSegments(func(space message.Space, n uint32, live, placed int64) bool {
		seen = append(seen, fmt.Sprint(space, n, live, placed))
		return true
	})
	if fmt.Sprint(seen) != "[keep 5 1 0]" {
		t.Errorf("RangeSegments shows %v", seen)
	}
	d.Release(again)
}

func TestCoolNeedsAPlace(t *testing.T) {
	d := newDesk(t, vfs.NewMem())
	ref := d.make(10)
	if same, ok := d.Cool(ref); ok || same != ref {
		t.Error("a record that is in memory only was cooled")
	}
	d.Release(ref)
}

// References to the last record of a file may be passed on while it moves to another.
func TestCoolWhileItMoves(t *testing.T) {
	d := newDesk(t, vfs.NewMem())
	ref := d.log(d.make(100))
	const rounds = 2000
	d.Retain(ref, rounds)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			d.Move(ref, message.MakeLocation(message.InKeep, uint32(i%7+1), 50))
		}
	})
	wg.Go(func() {
		for range rounds {
			d.Release(d.cool(ref))
		}
	})
	wg.Wait()
	d.Release(ref)
	d.RangeSegments(func(space message.Space, n uint32, live, _ int64) bool {
		if live != 0 {
			t.Errorf("%s segment %d counts %d references at the end", space, n, live)
		}
		return true
	})
}

// A scratch file goes when nothing in it is live, and not before.
func TestScratchFilesGo(t *testing.T) {
	fs := vfs.NewMem()
	d := newDesk(t, fs)
	var refs []message.Ref
	for range 200 {
		ref := d.make(1000)
		if err := d.ToScratch(ref); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, d.cool(ref))
	}
	list := func() int {
		names, err := fs.List("scratch")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	all := list()
	if all < 4 {
		t.Fatalf("%d scratch files, want several", all)
	}
	var w Window
	for i, ref := range refs {
		d.same(ref, &w, message.Serial(i+1))
		d.Release(ref)
	}
	if left := list(); left != 1 {
		t.Errorf("%d of %d scratch files are left, want the one that is appended to", left, all)
	}
	// It goes when another is begun.
	for range 40 {
		ref := d.make(1000)
		if err := d.ToScratch(ref); err != nil {
			t.Fatal(err)
		}
		d.Release(ref)
	}
	if left := list(); left != 1 {
		t.Errorf("%d scratch files are left, want 1", left)
	}
}

// Whatever is wrong with the bytes on disk, Read says so, with place and reason.
func TestDamageIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b []byte, at int) []byte
		want  string
	}{
		"a flipped bit in the body":   {func(b []byte, at int) []byte { b[at+60] ^= 4; return b }, "check"},
		"a flipped bit in the check":  {func(b []byte, at int) []byte { b[at+22] ^= 4; return b }, "check"},
		"a longer body in the head":   {func(b []byte, at int) []byte { b[at+12] ^= 1; return b }, "damaged"},
		"an enormous body":            {func(b []byte, at int) []byte { b[at+15] = 0xff; return b }, "ends within it"},
		"the file ends in the record": {func(b []byte, at int) []byte { return b[:at+50] }, "ends within"},
		"the file ends in the head":   {func(b []byte, at int) []byte { return b[:at+5] }, "ends within"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			d := newDesk(t, fs)
			w, err := d.keep.Create()
			if err != nil {
				t.Fatal(err)
			}
			ref := d.make(200)
			offset, err := w.Append(d.Bytes(ref))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Finish(); err != nil {
				t.Fatal(err)
			}
			at := message.MakeLocation(message.InKeep, w.Number(), offset)
			d.Move(ref, at)
			cold := d.cool(ref)
			rewrite(t, fs, "keep/0000000001.keep", func(b []byte) []byte { return c.spoil(b, int(offset)) })
			var win Window
			_, err = d.Read(cold, &win)
			var damage *DamageError
			if !errors.As(err, &damage) || damage.At != at || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "keep segment 1 at offset 32") {
				t.Errorf("got %v, want damage that says %q", err, c.want)
			}
			if same, err := d.Warm(cold); err == nil || same != cold {
				t.Errorf("Warm: %v", err)
			}
		})
	}
}

func rewrite(t testing.TB, fs vfs.FS, path string, change func([]byte) []byte) {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	f, err = fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(change(bytes.Clone(b))); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// Records read in order come with few reads, one by one with small ones.
func TestWindowReadsAhead(t *testing.T) {
	var count, sizes int
	counter := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			count++
		}
		return nil
	})
	d := newDesk(t, errorfs.Wrap(vfs.NewMem(), counter))
	var cold []message.Ref
	for range 4000 {
		ref := d.log(d.make(100))
		sizes += d.Size(ref)
		cold = append(cold, d.cool(ref))
	}
	if err := d.j.Flush(); err != nil {
		t.Fatal(err)
	}
	count = 0
	var w Window
	for i, ref := range cold {
		d.same(ref, &w, message.Serial(i+1))
	}
	if most := 40; count > most {
		t.Errorf("%d reads for %d records of %d bytes in order, want at most %d", count, len(cold), sizes, most)
	}
	if w.ahead < segmentBytes/2 {
		t.Errorf("the window reads %d bytes ahead after a long run", w.ahead)
	}
	d.same(cold[0], &w, 1)
	if size := sizes / len(cold); w.ahead != max(2*size, leastAhead) {
		t.Errorf("the window reads %d bytes for a single record after one of %d", w.ahead, size)
	}
	w.Free()
	d.same(cold[0], &w, 1)
	if w.ahead != firstAhead {
		t.Errorf("the window reads %d bytes for its first record, want %d", w.ahead, firstAhead)
	}
	w.Free()
}

var errInjected = errors.New("injected")

// A read that fails leaves the reference as it was; a write to scratch that fails
// leaves the record in memory. Both work when the disk does again.
func TestFailuresOfTheDisk(t *testing.T) {
	broken := false
	d := newDesk(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken && (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpOpen) {
			return errInjected
		}
		return nil
	})))
	cold := d.cool(d.log(d.make(100)))
	if err := d.j.Flush(); err != nil {
		t.Fatal(err)
	}
	hot := d.make(300_000)
	broken = true
	var w Window
	if _, err := d.Read(cold, &w); !errors.Is(err, errInjected) {
		t.Errorf("Read = %v", err)
	}
	if same, err := d.Warm(cold); !errors.Is(err, errInjected) || same != cold {
		t.Errorf("Warm = %v", err)
	}
	if err := d.ToScratch(hot); !errors.Is(err, errInjected) || d.Location(hot) != 0 {
		t.Errorf("ToScratch = %v, the record is at %s", err, d.Location(hot))
	}
	broken = false
	d.same(cold, &w, 1)
	if err := d.ToScratch(hot); err != nil {
		t.Error(err)
	}
	d.same(d.cool(hot), &w, 2)
}

// FuzzRead reads a record at any place of a file with any bytes: an error or a record
// that is whole, and no more memory than the file has bytes.
func FuzzRead(f *testing.F) {
	e := message.Envelope{Key: []byte("key"), BodySize: 5}
	r := message.Record(make([]byte, e.Size()))
	e.Put(r)
	r.Seal()
	f.Add([]byte(r), uint32(0))
	f.Add(append(make([]byte, 7), r...), uint32(7))
	f.Add(bytes.Repeat([]byte{0xff}, 40), uint32(0))
	f.Add([]byte{}, uint32(100))
	f.Fuzz(func(t *testing.T, file []byte, offset uint32) {
		fs := vfs.NewMem()
		k, err := bodyfile.OpenKeep(fs, "keep", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		out, err := fs.Create("keep/0000000003.seg", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(bytes.Clone(file)); err != nil {
			t.Fatal(err)
		}
		out.Close()
		j, err := journal.Open(journal.Options{FS: fs, Dir: "journal"})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		s := New()
		s.Attach(Disk{Journal: j, Keep: k})
		ref := s.Adopt(message.MakeLocation(message.InJournal, 3, offset))
		var w Window
		b, err := s.Read(ref, &w)
		if err == nil && (message.CheckRecord(b) != nil || len(b) > len(file)) {
			t.Errorf("a record of %d bytes was read from a file of %d", len(b), len(file))
		}
		if cap(w.long) > 4*len(file)+windowBytes {
			t.Errorf("%d bytes of memory for a file of %d", cap(w.long), len(file))
		}
		w.Free()
	})
}

func BenchmarkReadInOrder(b *testing.B) {
	for _, n := range []int{128, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fs := vfs.Default
			dir := b.TempDir()
			k, err := bodyfile.OpenKeep(fs, dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer k.Close()
			w, err := k.Create()
			if err != nil {
				b.Fatal(err)
			}
			s := New()
			s.Attach(Disk{Keep: k})
			e := message.Envelope{BodySize: n}
			r := message.Record(make([]byte, e.Size()))
			e.Put(r)
			r.Seal()
			refs := make([]message.Ref, 20_000)
			for i := range refs {
				offset, err := w.Append(r)
				if err != nil {
					b.Fatal(err)
				}
				refs[i] = s.Adopt(message.MakeLocation(message.InKeep, w.Number(), offset))
			}
			if err := w.Finish(); err != nil {
				b.Fatal(err)
			}
			var win Window
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := s.Read(refs[i%len(refs)], &win); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkSetLocationRelease(b *testing.B) {
	s := New()
	b.ReportAllocs()
	for b.Loop() {
		ref, _ := s.Alloc(200)
		s.SetLocation(ref, message.MakeLocation(message.InJournal, 3, 77))
		s.Release(ref)
	}
}
