package repair

import (
	"strings"
	"testing"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
)

// A rotten identity does not make its part another directory's: nothing is lost.
func TestARottenIdentityLosesNothing(t *testing.T) {
	for _, part := range datadir.Parts {
		for name, spoil := range map[string]func(text string) string{
			"a bit":       func(text string) string { return text[:30] + string(text[30]^1) + text[31:] },
			"no checksum": func(text string) string { return text[:52] + "}\n" },
			"zeros":       func(text string) string { return strings.Repeat("\x00", len(text)) },
			"rubbish":     func(string) string { return "{" },
		} {
			t.Run(part+" "+name, func(t *testing.T) {
				files := checkpointed(t, 40)
				path := files.PathJoin(dataDir, part, "identity")
				text := string(read(t, files, path))
				if err := journal.WriteSynced(files, path, []byte(spoil(text))); err != nil {
					t.Fatal(err)
				}
				_, err := broker.Open(broker.Options{FS: files, Dir: dataDir})
				if err == nil || !strings.Contains(err.Error(), part+"/ does not say") {
					t.Fatalf("a start says %v", err)
				}
				if r := examined(t, files, SkipFrame); r.Failed != "" || r.Messages != 120 || len(r.Damages) != 1 {
					t.Fatalf("the check: %+v", r)
				}
				out := repaired(t, files, SkipFrame)
				report := string(read(t, files, files.PathJoin(dataDir, quarantineDir, "then", reportFile)))
				if !strings.Contains(out, "repaired; nothing was lost") || !strings.Contains(report, "\nnothing is lost:\n") || strings.Contains(report, "checked") {
					t.Errorf("the repair says\n%sand its report\n%s", out, report)
				}
				if got := counted(t, files); got["orders"] != 40 || got["parked"] != 40 || got["critical"] != 40 {
					t.Errorf("found %v, want 40 of each", got)
				}
			})
		}
	}
}
