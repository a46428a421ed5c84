package store

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(fs, "data", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// pairs makes changes of key, value, key, value; "-" deletes.
func pairs(texts ...string) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for p := range slices.Chunk(texts, 2) {
			value := []byte(p[1])
			if p[1] == "-" {
				value = nil
			}
			if !yield([]byte(p[0]), value) {
				return
			}
		}
	}
}

func apply(t *testing.T, s *Store, sync bool, texts ...string) {
	t.Helper()
	if err := s.Apply(pairs(texts...), sync); err != nil {
		t.Fatal(err)
	}
}

// list returns what stands below a prefix as key=value.
func list(t *testing.T, s *Store, prefix string) []string {
	t.Helper()
	var found []string
	err := s.Range([]byte(prefix), func(k, v []byte) error {
		found = append(found, string(k)+"="+string(v))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestApplyAndRange(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	apply(t, s, true, "b/1", "x", "a/1", "", "a/2", "y", "c\xff", "z")
	apply(t, s, false, "a/2", "-", "a/3", "new", "missing", "-")
	expect(t, list(t, s, "a/"), "a/1=", "a/3=new")
	expect(t, list(t, s, "c\xff"), "c\xff=z")
	expect(t, list(t, s, ""), "a/1=", "a/3=new", "b/1=x", "c\xff=z")
	stop := errors.New("stop")
	calls := 0
	if err := s.Range(nil, func(_, _ []byte) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("Range called f %d times and returned %v", calls, err)
	}
	closed(t, s)
	s = open(t, fs)
	expect(t, list(t, s, "a/"), "a/1=", "a/3=new")
	closed(t, s)
}

func TestBatchesSurviveACrashWhole(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	for i := range 20 {
		n := fmt.Sprint(i)
		apply(t, s, i == 9, "left", n, "right", n)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
	closed(t, s)
	s = open(t, crashed)
	defer closed(t, s)
	var n int
	got := list(t, s, "")
	if len(got) != 2 {
		t.Fatalf("the store holds %q", got)
	}
	if _, err := fmt.Sscanf(got[0], "left=%d", &n); err != nil || n < 9 {
		t.Errorf("%q is older than what was synced", got[0])
	}
	if got[1] != fmt.Sprint("right=", n) {
		t.Errorf("half a batch is there: %q", got)
	}
}

func TestOpenRefusesAnotherFormat(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	apply(t, s, true, string(formatKey), "2")
	closed(t, s)
	if _, err := Open(fs, "data", slog.New(slog.DiscardHandler), nil); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v, want ErrFormat", err)
	}
}

func TestOpenRefusesASecondOwner(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(vfs.Default, dir, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	if second, err := Open(vfs.Default, dir, slog.New(slog.DiscardHandler), nil); err == nil {
		closed(t, second)
		t.Error("the directory was opened twice")
	}
}

// A failed write or sync of a table is told once, and nobody waits for Pebble's
// next tries.
func TestFailureIsToldOnce(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync} {
		var failing atomic.Bool
		var told atomic.Int32
		injected := errors.New("injected")
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if failing.Load() && (op.Kind == kind || kind == errorfs.OpFileSync && op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".sst") {
				return injected
			}
			return nil
		}))
		s, err := OpenUnlogged(fs, "index", slog.New(slog.DiscardHandler), func(error) { told.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		failing.Store(true)
		apply(t, s, false, "a", "1")
		if err := s.Flush(); !errors.Is(err, injected) || !strings.Contains(err.Error(), "index") {
			t.Errorf("kind %d: Flush = %v, want the injected error and the directory", kind, err)
		}
		failing.Store(false)
		if err := s.Flush(); !errors.Is(err, injected) {
			t.Errorf("kind %d: a later Flush = %v, want the same error", kind, err)
		}
		if told.Load() != 1 {
			t.Errorf("kind %d: told %d times, want once", kind, told.Load())
		}
		closed(t, s)
	}
}

// What is flushed while the log is read at the start waits for no log: whoever opens the store is about to set it. The
// race detector sees that where the last of the log has a table in memory flushed, so each is the last once.
func TestAFlushWhileTheLogIsRead(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	const pairs, size = 24, 100 << 10 // Pebble's first table in memory has 256 KiB
	for i := range pairs {
		err := s.Apply(func(yield func(key, value []byte) bool) { yield([]byte{byte(i)}, make([]byte, size)) }, true)
		if err != nil {
			t.Fatal(err)
		}
		again := open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
		for i := range i + 1 {
			if v, ok, err := again.Get(nil, []byte{byte(i)}); len(v) != size || !ok || err != nil {
				t.Errorf("pair %d: %d bytes, %v, %v", i, len(v), ok, err)
			}
		}
		closed(t, again)
	}
	closed(t, s)
}
