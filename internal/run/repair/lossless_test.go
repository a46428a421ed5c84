package repair

import (
	"strings"
	"testing"
)

// A repair says whether it loses anything, before and after. Its report says what it has lost and done, not what
// another repair would do.
func TestARepairSaysWhatItLoses(t *testing.T) {
	for name, c := range map[string]struct {
		how      How
		lossless bool
		report   []string // that it has, and with "-" before it has not
	}{
		"frame": {SkipFrame, false, []string{"\nwhat is lost:\n", "concerned queue \"orders\" in vhost \"/\": 1 messages", "\nthe repair:\n", "  skips ", "-after the damage", "-lost by --cut"}},
		"cut":   {Cut, false, []string{"\nwhat is lost:\n", "  after the damage: operations on queue \"orders\"", "\nthe repair:\n", "  cuts "}},
		"index": {SkipFrame, true, []string{"\nnothing is lost:\n", "the journal has all of its content", "  makes index/ anew", "-the record of which older messages"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := filled(t, 100)
			if c.lossless {
				if err := files.RemoveAll(files.PathJoin(dataDir, indexDir)); err != nil {
					t.Fatal(err)
				}
			} else {
				path, offset := whereIs(t, files, "orders 40 ")
				rot(t, files, path, offset)
			}
			var dry strings.Builder
			if _, err := Repair(files, dataDir, Options{How: c.how, Name: "then"}, &dry); err != nil {
				t.Fatal(err)
			}
			out := repaired(t, files, c.how)
			if strings.Contains(dry.String(), "this repair loses nothing\n") != c.lossless || strings.Contains(out, "repaired; nothing was lost.") != c.lossless {
				t.Errorf("before it says\n%sand after\n%s", &dry, out)
			}
			report := string(read(t, files, files.PathJoin(dataDir, quarantineDir, "then", reportFile)))
			for _, text := range c.report {
				if text, not := strings.CutPrefix(text, "-"); strings.Contains(report, text) == not {
					t.Errorf("of %q the report says wrongly\n%s", text, report)
				}
			}
			if c.lossless {
				if got := counted(t, files); got["orders"] != 100 {
					t.Errorf("nothing is said to be lost, and %v is there", got)
				}
			}
		})
	}
}
