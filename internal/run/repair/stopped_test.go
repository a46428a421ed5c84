package repair

import (
	"errors"
	"strings"
	"testing"

	"bartleby.mq/internal/run/broker"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A log of a node that was stopped in order, and that ends earlier than it did then, has lost what clients have
// confirms for.
func TestATruncatedLogOfAStoppedNodeIsDamage(t *testing.T) {
	for _, log := range []string{journalDir, stateLogDir} {
		for _, how := range []How{SkipFrame, Cut} {
			t.Run(log+" "+string(how), func(t *testing.T) {
				files := filled(t, 20)
				text := "orders 19 "
				if log == stateLogDir {
					text = `"name":"parked"`
				}
				path, offset := whereIs(t, files, text)
				whole := read(t, files, path)
				f, err := files.Create(path, vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.Write(whole[:offset+4])
				if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
					t.Fatal(err)
				}
				if _, err := broker.Open(broker.Options{FS: files, Dir: dataDir}); err == nil || !strings.Contains(err.Error(), "journal check") {
					t.Fatalf("a start says %v", err)
				}
				if r := examined(t, files, how); r.Clean() || r.Failed != "" || r.Damages[0].File != path {
					t.Fatalf("the check: %+v", r)
				}
				repaired(t, files, how)
				if got := counted(t, files); got["orders"] < 19 || got["parked"] < 19 {
					t.Errorf("found %v", got)
				}
			})
		}
	}
}
