package repair

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
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

// Any file of the index or of the declarations is lost or spoilt. A node starts with everything it had, or says what
// to run, and that command brings the messages back.
func TestEveryFileOfAStore(t *testing.T) {
	everyFile(t, checkpointed(t, 40), map[string]int{"orders": 40, "parked": 40, "critical": 40})
}

// The same if the beginning of the log of declarations was freed, so that only the tables have the oldest ones.
func TestEveryFileOfAStoreWithAShortLog(t *testing.T) {
	whole := checkpointed(t, 40)
	b, c := start(t, whole)
	for range 50 {
		long := amqp091.Table{{Key: "long", Value: strings.Repeat("x", 60<<10)}}
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: "long", Durable: true, Arguments: long}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.DeleteQueue("long", false, false); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, b)
	if _, err := whole.Stat(whole.PathJoin(dataDir, stateLogDir, "0000000001.seg")); err == nil {
		t.Fatal("the log has its first segment: the test shows nothing")
	}
	everyFile(t, whole, map[string]int{"orders": 40, "parked": 40, "critical": 40})
}

func everyFile(t *testing.T, whole *vfs.MemFS, want map[string]int) {
	t.Helper()
	for _, part := range []string{indexDir, stateDir} {
		names, err := whole.List(whole.PathJoin(dataDir, part))
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if testing.Short() && i%3 != 0 {
				continue
			}
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

// The same for the index of a node whose journal does not begin with its first segment: every message that was not
// settled is back.
func TestEveryFileOfABusyIndex(t *testing.T) {
	d := makeBusy(t, 4, false)
	names, err := d.files.List(d.files.PathJoin(dataDir, indexDir))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if testing.Short() && i%3 != 0 {
			continue
		}
		for how, spoil := range spoilFile {
			t.Run(name+" "+how, func(t *testing.T) {
				files := d.files.CrashClone(vfs.CrashCloneCfg{})
				spoil(t, files, files.PathJoin(dataDir, indexDir, name))
				b, err := broker.Open(broker.Options{FS: files, Dir: dataDir, Partitions: 2})
				if err == nil {
					stop(t, b)
				} else {
					if !strings.Contains(err.Error(), "run: bartleby journal check --data-dir data") {
						t.Fatalf("the start says %v", err)
					}
					repairedAs(t, files, "then")
				}
				missing := d.missingFrom(everywhere(t, files))
				for try := 0; try < 50 && len(missing) > 0; try++ { // dead letters may be on their way to their queue
					missing = d.missingFrom(everywhere(t, files))
				}
				if len(missing) > 0 {
					t.Errorf("started %t: %d of %d messages are gone: %q", err == nil, len(missing), len(d.unsettled), missing)
				}
			})
		}
	}
}

// A refusal by the system, or a file that a later version has written, is not damage: nothing is given up for it.
func TestARefusalIsNoDamage(t *testing.T) {
	whole := checkpointed(t, 10)
	for _, part := range []string{indexDir, stateDir} {
		for _, refusal := range []error{syscall.EIO, syscall.EACCES, syscall.EMFILE} {
			t.Run(part+" "+refusal.Error(), func(t *testing.T) {
				files := errorfs.Wrap(whole, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpOpen && strings.Contains(op.Path, "/"+part+"/") && strings.Contains(op.Path, "MANIFEST") {
						return &fs.PathError{Op: "open", Path: op.Path, Err: refusal}
					}
					return nil
				}))
				before := snapshot(t, whole)
				if _, err := broker.Open(broker.Options{FS: files, Dir: dataDir}); !errors.Is(err, refusal) || strings.Contains(err.Error(), "journal check") {
					t.Errorf("a start says %v", err)
				}
				if _, err := Examine(files, dataDir, SkipFrame); !errors.Is(err, refusal) {
					t.Errorf("the check says %v", err)
				}
				if _, err := Repair(files, dataDir, Options{How: SkipFrame, Apply: true, Name: "then"}, io.Discard); !errors.Is(err, refusal) {
					t.Errorf("the repair says %v", err)
				}
				after := snapshot(t, whole)
				for path, text := range before {
					if (strings.Contains(path, "/"+part+"/")) && after[path] != text {
						t.Errorf("%s was changed", path)
					}
				}
			})
		}
		t.Run(part+" of a later version", func(t *testing.T) {
			files := whole.CrashClone(vfs.CrashCloneCfg{})
			dir := files.PathJoin(dataDir, part)
			names, err := files.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "marker.format-version.") })
			if err := files.Rename(files.PathJoin(dir, names[at]), files.PathJoin(dir, "marker.format-version.000099.999")); err != nil {
				t.Fatal(err)
			}
			if _, err := broker.Open(broker.Options{FS: files, Dir: dataDir}); !errors.Is(err, store.ErrFormat) || strings.Contains(err.Error(), "journal check") {
				t.Errorf("a start says %v", err)
			}
			if _, err := Examine(files, dataDir, SkipFrame); !errors.Is(err, store.ErrFormat) {
				t.Errorf("the check says %v", err)
			}
		})
	}
}
