package store

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/mutation"
)

// Tables from before what the log has given back since are refused: they lack it.
func TestOpenRefusesTablesOlderThanTheLog(t *testing.T) {
	files := vfs.NewCrashableMem()
	fill := func(times int) {
		t.Helper()
		s := open(t, files)
		defer closed(t, s)
		value := make([]byte, 64<<10)
		for i := range times { // more than the log keeps
			if err := s.Apply(mutation.All([]mutation.Change{{Key: fmt.Appendf(nil, "key %d", i), Value: value}}), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(100)
	older := files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	fill(100)
	closed(t, open(t, files)) // as it is it can be opened
	if err := files.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	if err := files.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := older.List("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := vfs.CopyAcrossFS(older, "data/"+name, files, "data/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := Open(files, "data", slog.New(slog.DiscardHandler), nil); err == nil || !IsDamage(err) {
		t.Errorf("opened with %v, want damage", err)
		if err == nil {
			closed(t, s)
		}
	}
}
