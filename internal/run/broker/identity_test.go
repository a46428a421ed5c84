package broker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/wire/amqp091"
)

// nodeOn opens a broker on the directory /data.
func nodeOn(files vfs.FS) (*Broker, error) {
	return Open(Options{FS: files, Dir: "/data", Partitions: 2, Logger: slog.New(slog.DiscardHandler), Storage: Storage{SegmentBytes: 64 << 10, CompactBelow: 1000}})
}

func mustOpen(t *testing.T, files vfs.FS) *Broker {
	t.Helper()
	b, err := nodeOn(files)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// copies are two states of one data directory, with a checkpoint between them, and a state of another node.
func copies(t *testing.T) (older, newer, other *vfs.MemFS) {
	t.Helper()
	files := vfs.NewCrashableMem()
	grow := func(files *vfs.MemFS, from, to int) {
		t.Helper()
		b := mustOpen(t, files)
		if from == 0 {
			if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{"classic", "quorum"} {
				mustDeclare(t, b.As("guest", "/"), kind, amqp091.Field{Key: "x-queue-type", Value: kind})
			}
		}
		persistent := uint8(2)
		for i := from; i < to; i++ {
			for _, kind := range []string{"classic", "quorum"} {
				publish(t, b.As("guest", "/"), "", kind, text(i), amqp091.PropertyList{DeliveryMode: &persistent})
			}
			if i%50 == 49 {
				for _, kind := range []string{"classic", "quorum"} { // so that there is something to compact
					if err := b.As("guest", "/").Take("classic", 5, AckRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
						t.Fatal(kind, err)
					}
				}
				if err := b.node.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := b.node.Compact(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.node.Checkpoint(), b.node.Checkpoint()); err != nil {
			t.Fatal(err)
		}
		for i := range 3 { // what the journal alone has
			publish(t, b.As("guest", "/"), "", "classic", text(to+i), amqp091.PropertyList{DeliveryMode: &persistent})
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	grow(files, 0, 100)
	older = whole(files)
	grow(files, 100, 300)
	newer = whole(files)
	files = vfs.NewCrashableMem()
	grow(files, 0, 100)
	other = whole(files)
	return older, newer, other
}

// whole is a copy of the files, synced or not.
func whole(files *vfs.MemFS) *vfs.MemFS {
	return files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// contents returns all files below a directory.
func contents(t *testing.T, files vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := files.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := files.PathJoin(dir, name)
		if info, err := files.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			maps.Copy(all, contents(t, files, path))
			continue
		}
		f, err := files.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		all[path] = string(b)
	}
	return all
}

// put replaces a part of the data directory by another one's, or by nothing.
func put(t *testing.T, files, from *vfs.MemFS, part string) {
	t.Helper()
	path := files.PathJoin("/data", part)
	if err := files.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if from == nil {
		return
	}
	if err := files.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range contents(t, from, path) {
		if err := journal.WriteSynced(files, name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// unname takes the names away from all parts of the directory.
func unname(t *testing.T, files *vfs.MemFS) {
	t.Helper()
	if err := datadir.Repaired(files, "/data", true); err != nil {
		t.Fatal(err)
	}
	for _, part := range datadir.Parts {
		if err := files.Remove(files.PathJoin("/data", part, datadir.IdentityFile)); err != nil {
			t.Fatal(err)
		}
	}
}

// A data directory that lacks a part, or has a part of another directory or of another day, is refused. The error
// names the part and what to do, and nothing is changed.
func TestRefusesPartsThatAreMissing(t *testing.T) {
	older, newer, other := copies(t)
	for _, part := range datadir.Parts {
		for how, spoil := range map[string]func(files *vfs.MemFS){
			"missing": func(files *vfs.MemFS) { put(t, files, nil, part) },
			"emptied": func(files *vfs.MemFS) {
				put(t, files, nil, part)
				if err := files.MkdirAll(files.PathJoin("/data", part), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			"another node's": func(files *vfs.MemFS) { put(t, files, other, part) },
			"older":          func(files *vfs.MemFS) { put(t, files, older, part) },
			"missing, and unnamed": func(files *vfs.MemFS) {
				unname(t, files)
				put(t, files, nil, part)
			},
			"emptied, and unnamed": func(files *vfs.MemFS) {
				unname(t, files)
				put(t, files, nil, part)
				if err := files.MkdirAll(files.PathJoin("/data", part), 0o700); err != nil {
					t.Fatal(err)
				}
			},
		} {
			if part == datadir.StateDir && how == "older" {
				continue // its log brings it up to date: see store
			}
			t.Run(fmt.Sprintf("%s is %s", part, how), func(t *testing.T) {
				files := whole(newer)
				spoil(files)
				before := contents(t, files, "/data")
				b, err := nodeOn(files)
				if err == nil {
					n := len(contents(t, files, "/data"))
					_ = b.Close()
					t.Fatalf("the node has started; %d files", n)
				}
				if !strings.Contains(err.Error(), "bartleby journal check --data-dir /data") {
					t.Errorf("it does not say what to do: %v", err)
				}
				if how != "older" && how != "emptied, and unnamed" && !strings.Contains(err.Error(), part+"/") {
					t.Errorf("it does not name the part: %v", err)
				}
				after := contents(t, files, "/data")
				for name, text := range before {
					// Pebble writes its stores anew in its own way when they are opened.
					if files.PathDir(name) != "/data/index" && files.PathDir(name) != "/data/state" && after[name] != text {
						t.Errorf("%s was changed or removed", name)
					}
				}
			})
		}
	}
	t.Run("none", func(t *testing.T) {
		files := whole(newer)
		b := mustOpen(t, files)
		if n := ready(t, b.As("guest", "/"), "classic"); n == 0 {
			t.Error("there are no messages")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if named, err := datadir.CheckWhole(files, "/data"); err != nil || !named {
			t.Errorf("after a start the parts are named: %t, %v", named, err)
		}
	})
	t.Run("none, and all are unnamed", func(t *testing.T) {
		files := whole(newer)
		unname(t, files)
		if _, err := nodeOn(files); err == nil || !strings.Contains(err.Error(), "does not say which data directory it belongs to") {
			t.Errorf("a start says %v", err)
		}
	})
}

// Wherever a crash comes while the parts are named, the next start goes on.
func TestNamingSurvivesCrash(t *testing.T) {
	_, newer, _ := copies(t)
	unname(t, newer)
	for step := 0; ; step++ {
		files := whole(newer)
		n := 0
		stop := errors.New("stopped here")
		err := datadir.Name(failing{files, func() error {
			if n++; n > step {
				return stop
			}
			return nil
		}}, "/data")
		if err == nil {
			if step < 10 {
				t.Fatalf("there were %d steps only", step)
			}
			return
		}
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		_, err = files.Stat("/data/" + datadir.IdentityFile + ".unfinished")
		begun := err == nil // before that nothing has changed
		if _, err := datadir.CheckWhole(files, "/data"); err != nil && begun {
			t.Fatalf("after a crash at step %d: %v", step, err)
		}
	}
}

// failing is a file system whose changes may fail.
type failing struct {
	vfs.FS
	may func() error
}

func (f failing) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.may(); err != nil {
		return nil, err
	}
	return f.FS.Create(name, c)
}

func (f failing) Rename(from, to string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f failing) Remove(name string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Everything that a first start has reported is there after a crash, however many directories above the data
// directory it has made.
func TestDataDirectoryIsThereAfterACrash(t *testing.T) {
	files := vfs.NewCrashableMem()
	open := func(files vfs.FS) *Broker {
		t.Helper()
		b, err := Open(Options{FS: files, Dir: "/var/lib/node", Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := open(files)
	if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, b.As("guest", "/"), "q")
	after := files.CrashClone(vfs.CrashCloneCfg{})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(after)
	if _, err := b.As("guest", "/").PassiveQueue("q"); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, files vfs.FS, path string) string {
	t.Helper()
	f, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
