package rescue

import (
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/journal"
)

// spoilFile says what may happen to a file of a store.
var spoilFile = map[string]func(t *testing.T, files vfs.FS, path string){
	"deleted": func(t *testing.T, files vfs.FS, path string) {
		t.Helper()
		if err := files.Remove(path); err != nil {
			t.Fatal(err)
		}
	},
	"halved": func(t *testing.T, files vfs.FS, path string) {
		t.Helper()
		text := read(t, files, path)
		rewrite(t, files, path, text[:len(text)/2])
	},
	"emptied": func(t *testing.T, files vfs.FS, path string) { t.Helper(); rewrite(t, files, path, nil) },
	"flipped": func(t *testing.T, files vfs.FS, path string) {
		t.Helper()
		text := read(t, files, path)
		for i := range min(16, len(text)) {
			text[i] ^= 0xff
		}
		rewrite(t, files, path, text)
	},
}

func rewrite(t *testing.T, files vfs.FS, path string, text []byte) {
	t.Helper()
	if err := journal.WriteSynced(files, path, text); err != nil {
		t.Fatal(err)
	}
}

// Whatever file of the index or of the declarations is lost or spoilt: a node starts with all it had, or says what to
// run, and what that says to run brings the messages back.
func TestEveryFileOfAStore(t *testing.T) {
	whole := checkpointed(t, 40)
	want := map[string]int{"orders": 40, "parked": 40, "critical": 40}
	for _, part := range []string{indexDir, stateDir} {
		names, err := whole.List(whole.PathJoin(dataDir, part))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			for how, spoil := range spoilFile {
				t.Run(part+" "+name+" "+how, func(t *testing.T) {
					files := whole.CrashClone(vfs.CrashCloneCfg{})
					path := files.PathJoin(dataDir, part, name)
					spoil(t, files, path)
					b, err := broker.Open(broker.Options{FS: files, Dir: dataDir, Partitions: 2})
					if err == nil {
						stop(t, b)
						if got := counted(t, files); !maps.Equal(got, want) {
							t.Errorf("the node starts with %v, want %v", got, want)
						}
						return
					}
					if !strings.Contains(err.Error(), "run: bartleby journal check --data-dir data") {
						t.Fatalf("the start says %v", err)
					}
					t.Logf("the start says %v", err)
					r := examined(t, files, SkipFrame)
					if r.Clean() || r.Failed != "" || !strings.HasPrefix(r.Damages[0].File, files.PathJoin(dataDir, part)) {
						t.Fatalf("the check: %+v", r)
					}
					out := repaired(t, files, SkipFrame)
					got := counted(t, files)
					delete(got, "")
					for queue, n := range want {
						if got[queue] < n {
							t.Errorf("%d messages of %s, want %d\n%s", got[queue], queue, n, out)
						}
					}
				})
			}
		}
	}
}
