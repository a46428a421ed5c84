package journal

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Of a log that was closed the end is known: what is missing of it is damage, and is found by Inspect as well. The
// same log without what Close has noted may have been cut short by a crash.
func TestAClosedLogThatIsCutShortIsDamage(t *testing.T) {
	fs, all := history(t, rand.New(rand.NewPCG(9, 9)), true)
	end, err := readEnd(fs, testDir)
	if err != nil || end == 0 {
		t.Fatal("nothing was noted: ", end, err)
	}
	original := files(t, fs)
	noted := map[string]string{"killed": endText(MakePos(end.Segment(), headerBytes)), "noted": endText(end)}
	name := segmentName(end.Segment())
	for how, text := range noted {
		for _, cut := range []int64{0, 1, frameHeaderBytes, frameHeaderBytes + 1, 96} {
			original[endName] = []byte(text)
			damaged := withFiles(t, original, name, original[name][:end.Offset()-cut])
			in, err := Inspect(damaged, testDir, 0, func(Pos, []byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			want := how == "noted" && cut > 0
			if got := len(in.Holes) > 0; got != want || want && in.TornBytes > 0 {
				t.Errorf("%s, %d bytes short: holes %+v, %d torn bytes", how, cut, in.Holes, in.TornBytes)
			}
			j, got, err := tryOpen(damaged)
			var damage *DamageError
			switch {
			case errors.As(err, &damage) != want:
				t.Errorf("%s, %d bytes short: %v", how, cut, err)
			case err == nil:
				if cut == 0 {
					same(t, got, all)
				}
				closeJournal(t, j)
			case want:
				if err := Cut(damaged, testDir, &in.Holes[0]); err != nil {
					t.Fatal(err)
				}
				j, _ := open(t, damaged)
				closeJournal(t, j)
			}
		}
	}
}

// Any file of a log is lost, or all that is in the file of the end: an open refuses, Inspect tells of it, and what it says
// to mend lets the log be opened with everything that is on disk.
func TestALostFileIsDamage(t *testing.T) {
	for _, closed := range []bool{false, true} {
		fs, all := history(t, rand.New(rand.NewPCG(9, 9)), closed)
		original := files(t, fs)
		if closed {
			end, err := readEnd(fs, testDir)
			if err != nil {
				t.Fatal(err)
			}
			original[endName] = []byte(endText(end))
		}
		begins := MakePos(all[0].pos.Segment(), headerBytes)
		lost := func(name string) (left map[string][]byte, keeps func(record) bool) {
			left = maps.Clone(original)
			delete(left, name)
			number, _, _ := parseName(name)
			return left, func(r record) bool { return r.pos.Segment() != number }
		}
		for name := range original {
			left, keeps := lost(name)
			if strings.HasSuffix(name, freeSuffix) {
				continue
			}
			fs := withFiles(t, left, "", nil)
			j, err := Open(Options{FS: fs, Dir: testDir, SegmentBytes: minSegmentBytes})
			if err != nil {
				t.Fatal(err)
			}
			var damage *DamageError
			if err := j.Recover(begins, func(Pos, []byte) error { return nil }); !errors.As(err, &damage) || damage.File != fs.PathJoin(testDir, name) {
				t.Errorf("without %s: %v", name, err)
			}
			closeJournal(t, j)
			in, err := Inspect(fs, testDir, begins, func(Pos, []byte) error { return nil })
			if err != nil || len(in.Holes) != 1 || in.Holes[0].File != damage.File {
				t.Fatalf("without %s: %+v, %v", name, in.Holes, err)
			}
			if err := Fill(fs, testDir, &in.Holes[0], nil); err != nil {
				t.Fatal(err)
			}
			var got []record
			if j, err = Open(Options{FS: fs, Dir: testDir, SegmentBytes: minSegmentBytes}); err == nil {
				err = j.Recover(begins, func(pos Pos, payload []byte) error { got = append(got, record{pos, bytes.Clone(payload)}); return nil })
			}
			if err != nil {
				t.Fatal(err)
			}
			closeJournal(t, j)
			same(t, got, slices.DeleteFunc(slices.Clone(all), func(r record) bool { return !keeps(r) }))
		}
		// What has rotted proves nothing.
		original[endName] = []byte(strings.Replace(string(original[endName]), " ", "1 ", 1))
		var damage *DamageError
		if _, _, err := tryOpen(withFiles(t, original, "", nil)); !errors.As(err, &damage) || !strings.HasSuffix(damage.File, endName) {
			t.Errorf("with a rotten end: %v", err)
		}
	}
}
