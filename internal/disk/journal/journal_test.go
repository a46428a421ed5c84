package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

const testDir = "journal"

// record is a frame as a test knows it.
type record struct {
	pos     Pos
	payload []byte
}

// payload is n bytes (at least 8) that tell which of all payloads this is.
func payload(i uint64, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, i)
	for len(b) < n {
		b = append(b, byte(i)+byte(len(b)))
	}
	return b
}

// open opens and recovers the journal on fs, and returns what it recovered.
func open(t testing.TB, fs vfs.FS, change ...func(*Options)) (*Journal, []record) {
	t.Helper()
	j, got, err := tryOpen(fs, change...)
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	return j, got
}

func tryOpen(fs vfs.FS, change ...func(*Options)) (*Journal, []record, error) {
	opts := Options{FS: fs, Dir: testDir, SegmentBytes: minSegmentBytes, KeepRecycled: 2}
	for _, c := range change {
		c(&opts)
	}
	j, err := Open(opts)
	if err != nil {
		return nil, nil, err
	}
	var got []record
	err = j.Recover(0, func(pos Pos, payload []byte) error {
		got = append(got, record{pos, bytes.Clone(payload)})
		return nil
	})
	if err != nil {
		j.Close()
		return nil, got, err
	}
	return j, got, nil
}

func closeJournal(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// samePrefix fails unless got is want, or its beginning.
func samePrefix(t testing.TB, got, want []record) {
	t.Helper()
	if len(got) > len(want) {
		t.Fatalf("recovered %d frames, more than the %d appended", len(got), len(want))
	}
	for i := range got {
		if got[i].pos != want[i].pos || !bytes.Equal(got[i].payload, want[i].payload) {
			t.Fatalf("frame %d: recovered %s (%d bytes), appended %s (%d bytes)", i,
				got[i].pos, len(got[i].payload), want[i].pos, len(want[i].payload))
		}
	}
}

func same(t testing.TB, got, want []record) {
	t.Helper()
	samePrefix(t, got, want)
	if len(got) != len(want) {
		t.Fatalf("recovered %d frames, want %d", len(got), len(want))
	}
}

// files copies a directory out of a file system.
func files(t testing.TB, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string][]byte)
	newest := uint32(0)
	for _, name := range names {
		if name == endName {
			continue
		}
		if number, suffix, ok := parseName(name); ok && suffix == segmentSuffix {
			newest = max(newest, number)
		}
		f, err := fs.Open(fs.PathJoin(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if m[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if newest > 0 {
		m[endName] = []byte(endText(MakePos(newest, headerBytes))) // as a crash leaves it; what Close has noted has tests of its own
	}
	return m
}

// withFiles makes a file system of what files returned, with one file replaced.
func withFiles(t testing.TB, m map[string][]byte, name string, data []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for n, b := range m {
		if n == name {
			b = data
		}
		f, err := fs.Create(fs.PathJoin(testDir, n), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Clone(b)); err != nil { // Write may change what it is given
			t.Fatal(err)
		}
		f.Close()
	}
	return fs
}

func TestRecoverReturnsWhatWasAppendedInOrder(t *testing.T) {
	fs := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 1))
	var want []record
	for generation := range 5 {
		j, got := open(t, fs)
		same(t, got, want)
		for i := range 40 {
			p := payload(uint64(generation*1000+i), 8+rng.IntN(900))
			pos := j.Append(p)
			if n := len(want); n > 0 && pos <= want[n-1].pos {
				t.Fatalf("position %s follows %s", pos, want[n-1].pos)
			}
			want = append(want, record{pos, p})
			if i%7 == 0 {
				if err := j.Commit(pos); err != nil {
					t.Fatal(err)
				}
				if j.Committed() <= pos {
					t.Fatalf("Commit(%s) returned with Committed() = %s", pos, j.Committed())
				}
			}
		}
		closeJournal(t, j)
	}
	_, got := open(t, fs)
	same(t, got, want)
}

func TestAppendPartsIsOnePayload(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	j.AppendParts([]byte("abc"), nil, []byte("de"))
	j.Append(nil)
	closeJournal(t, j)
	_, got := open(t, fs)
	if len(got) != 2 || string(got[0].payload) != "abcde" || len(got[1].payload) != 0 {
		t.Fatalf("recovered %v, want abcde and an empty payload", got)
	}
}

func TestFrameLargerThanASegmentHasItsOwn(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	sizes := []int{100, 3 * minSegmentBytes, 100, 100, minSegmentBytes - headerBytes - frameHeaderBytes, 8}
	wantSegment := []uint32{1, 2, 3, 3, 4, 5}
	var want []record
	for i, n := range sizes {
		p := payload(uint64(i), n)
		pos := j.Append(p)
		if pos.Segment() != wantSegment[i] {
			t.Errorf("frame %d of %d bytes is in segment %d, want %d", i, n, pos.Segment(), wantSegment[i])
		}
		want = append(want, record{pos, p})
	}
	closeJournal(t, j)
	j, got := open(t, fs)
	same(t, got, want)
	// The large file must not become an ordinary segment.
	if err := j.Retire(4, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(j.free, []string{freeName(1), freeName(3)}) {
		t.Errorf("recycled %v, want the files of segments 1 and 3", j.free)
	}
	closeJournal(t, j)
}

func TestReadAtFindsFramesInBufferAndFile(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	var all []record
	check := func(where string) {
		t.Helper()
		var dst []byte
		for _, r := range all {
			from := len(r.payload) / 3
			var err error
			if dst, err = j.ReadAt(j.PayloadPos(r.pos)+Pos(from), len(r.payload)-from, dst); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if !bytes.Equal(dst, r.payload[from:]) {
				t.Fatalf("%s: frame at %s reads back wrong", where, r.pos)
			}
		}
	}
	for i := range 100 {
		p := payload(uint64(i), 500)
		all = append(all, record{j.Append(p), p})
	}
	check("in the buffer")
	if j.Buffered() != 100*(500+frameHeaderBytes) {
		t.Errorf("Buffered() = %d", j.Buffered())
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	if j.Buffered() != 0 {
		t.Errorf("Buffered() = %d after Flush", j.Buffered())
	}
	check("in the files")
	for i := range 20 {
		p := payload(uint64(i), 500)
		all = append(all, record{j.Append(p), p})
	}
	check("in both")
	last := all[len(all)-1]
	for _, bad := range []struct {
		pos Pos
		n   int
	}{{last.pos + 500 + frameHeaderBytes, 1}, {last.pos, 10_000}, {MakePos(77, headerBytes), 1}, {MakePos(1, 0), 8}} {
		if _, err := j.ReadAt(bad.pos, bad.n, nil); !errors.Is(err, ErrNotHeld) {
			t.Errorf("ReadAt(%s, %d) = %v, want ErrNotHeld", bad.pos, bad.n, err)
		}
	}
	closeJournal(t, j)
	if _, err := j.ReadAt(all[0].pos, 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("ReadAt after Close: %v, want ErrClosed", err)
	}
}

func TestReadAtKeepsFewFilesOpen(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	var all []record
	for i := range maxIdleFiles + 50 {
		p := payload(uint64(i), minSegmentBytes-headerBytes-frameHeaderBytes)
		all = append(all, record{j.Append(p), p})
	}
	closeJournal(t, j)
	j, _ = open(t, fs)
	for range 2 {
		for _, r := range all {
			if got, err := j.ReadAt(j.PayloadPos(r.pos), len(r.payload), nil); err != nil || !bytes.Equal(got, r.payload) {
				t.Fatalf("frame at %s: %v", r.pos, err)
			}
		}
	}
	if j.segments.files > maxIdleFiles {
		t.Errorf("%d files are open, the bound is %d", j.segments.files, maxIdleFiles)
	}
	closeJournal(t, j)
}

func TestRetireFreesTheOldestAndKeepsTheNewest(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	for i := range 6 {
		j.Append(payload(uint64(i), minSegmentBytes-headerBytes-frameHeaderBytes))
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		before uint32
		want   []uint32
		free   int
	}{{0, []uint32{1, 2, 3, 4, 5, 6}, 0}, {3, []uint32{3, 4, 5, 6}, 2}, {3, []uint32{3, 4, 5, 6}, 2}, {99, []uint32{6}, 2}} {
		if err := j.Retire(step.before, nil); err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for _, s := range j.Segments() {
			got = append(got, s.Number)
			if s.Bytes != minSegmentBytes {
				t.Errorf("segment %d: %d bytes used", s.Number, s.Bytes)
			}
		}
		if !slices.Equal(got, step.want) || len(j.free) != step.free {
			t.Errorf("Retire(%d): segments %v, %d recycled; want %v, %d", step.before, got, len(j.free), step.want, step.free)
		}
	}
	if _, err := j.ReadAt(MakePos(1, headerBytes), 1, nil); !errors.Is(err, ErrNotHeld) {
		t.Errorf("ReadAt in a retired segment: %v, want ErrNotHeld", err)
	}
	closeJournal(t, j)
	j, got := open(t, fs)
	if len(got) != 1 || got[0].pos.Segment() != 6 {
		t.Errorf("recovered %v, want the frame of segment 6", got)
	}
	if pos := j.Append(nil); pos.Segment() != 7 {
		t.Errorf("appended to segment %d, want 7: numbers are not used twice", pos.Segment())
	}
	closeJournal(t, j)
}

func TestReaderOfARetiredSegmentSeesItsOldBytes(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	for i := range 2 {
		j.Append(payload(uint64(i), minSegmentBytes-headerBytes-frameHeaderBytes))
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	s, _, err := j.segments.use(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Retire(2, nil); err != nil {
		t.Fatal(err)
	}
	if len(j.free) != 0 {
		t.Errorf("a file that is being read was recycled")
	}
	b := make([]byte, 8)
	if _, err := s.file.ReadAt(b, headerBytes+frameHeaderBytes); err != nil || !bytes.Equal(b, payload(0, 8)) {
		t.Errorf("read %x, %v", b, err)
	}
	j.segments.done(s)
	closeJournal(t, j)
}

func TestRecoverErrors(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	if err := j.Recover(0, nil); err == nil {
		t.Error("the second Recover succeeded")
	}
	pos := j.Append([]byte("x"))
	if err := j.Commit(pos + 1000); err == nil {
		t.Error("Commit of a position behind the end succeeded")
	}
	closeJournal(t, j)
	closeJournal(t, j)
	if pos = j.Append([]byte("y")); !errors.Is(j.Commit(pos), ErrClosed) || !errors.Is(j.Flush(), ErrClosed) {
		t.Error("Commit after Close: want ErrClosed")
	}

	j, err := Open(Options{FS: fs, Dir: testDir})
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := j.Recover(0, func(Pos, []byte) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Recover = %v, want the callback's error", err)
	}
	closeJournal(t, j)

	for _, size := range []int64{1, minSegmentBytes - 1, maxSegmentBytes + 1} {
		if _, err := Open(Options{FS: fs, Dir: testDir, SegmentBytes: size}); err == nil {
			t.Errorf("segment size %d was accepted", size)
		}
	}
}

func TestCheckReportsWithoutChanging(t *testing.T) {
	fs := vfs.NewMem()
	j, _ := open(t, fs)
	for i := range 30 {
		j.Append(payload(uint64(i), 1000))
	}
	closeJournal(t, j)
	before := files(t, fs)
	r, err := check(fs, testDir)
	if err != nil || r.Damage != nil {
		t.Fatalf("Check: %v, %v", err, r.Damage)
	}
	if r.Frames != 30 || len(r.Segments) != 4 || r.TornBytes != 0 || r.End != r.Committed+frameHeaderBytes {
		t.Errorf("report %+v: want 30 frames in 4 segments, all committed but the seal", r)
	}
	if diff := cmp.Diff(before, files(t, fs)); diff != "" {
		t.Errorf("Check changed files: %s", diff)
	}
	before[segmentName(2)][headerBytes+500] ^= 1
	r, err = check(withFiles(t, before, "", nil), testDir)
	if err != nil || r.Damage == nil || r.Damage.Segment != 2 || len(r.Segments) != 1 {
		t.Errorf("report %+v, %v: want damage in segment 2", r, err)
	}
}

func TestUnknownFormatIsNotDamage(t *testing.T) {
	h := header{segment: 1, epoch: 7}
	b := h.encode()
	for _, at := range []int{0, headerStride} {
		binary.LittleEndian.PutUint32(b[at+8:], formatVersion+1)
		crc := crc32.Checksum(b[at:at+32], castagnoli)
		binary.LittleEndian.PutUint32(b[at+32:], crc)
	}
	fs := withFiles(t, map[string][]byte{segmentName(1): append(b, make([]byte, 100)...)}, "", nil)
	if _, err := Open(Options{FS: fs, Dir: testDir}); !errors.Is(err, errFormat) {
		t.Errorf("Open = %v, want %v", err, errFormat)
	}
}

func TestPos(t *testing.T) {
	p := MakePos(3, 9000)
	if p.Segment() != 3 || p.Offset() != 9000 || p.String() != "3:9000" {
		t.Errorf("MakePos(3, 9000) is %s", p)
	}
	if MakePos(1, maxOffset) >= MakePos(2, 0) {
		t.Error("positions are not ordered by segment first")
	}
	if MakePos(maxSegment, maxOffset) != 1<<61-1 {
		t.Error("a position does not leave three bits free")
	}
}
