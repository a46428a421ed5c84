package journal

import (
	"errors"
	"math/rand/v2"
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
	noted := map[string]string{"": "", "noted": endText(end), "rotten": strings.Replace(endText(end), " ", "1 ", 1)}
	name := segmentName(end.Segment())
	for how, text := range noted {
		for _, cut := range []int64{0, 1, frameHeaderBytes, frameHeaderBytes + 1, 96} {
			if text != "" {
				original[endName] = []byte(text)
			}
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
		delete(original, endName)
	}
}
