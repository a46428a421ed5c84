package store

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// categories notes what Pebble says of the files that it makes.
type categories struct {
	vfs.FS
	seen sync.Map
}

func (c *categories) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	c.seen.Store(category, true)
	return c.FS.Create(name, category)
}

// Tables are paced, by whoever they are written, and nothing else is.
func TestTablesArePaced(t *testing.T) {
	w := watched{FS: vfs.NewMem(), pacing: &pacing{}}
	for category, want := range map[vfs.DiskWriteCategory]bool{"pebble-compaction": true, "pebble-memtable-flush": true, vfs.WriteCategoryUnspecified: false} {
		f, err := w.Create("f", category)
		if err != nil {
			t.Fatal(err)
		}
		if _, is := f.(*paced); is != want {
			t.Errorf("%s: paced is %v", category, is)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	// And Pebble says so of them.
	fs := &categories{FS: vfs.NewMem()}
	s, err := OpenUnlogged(fs, "index", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	var calls atomic.Int32
	s.pacing.after = 0
	s.GiveWay(func(time.Duration) { calls.Add(1) })
	for range 2 {
		apply(t, s, false, "a", "1", "b", "2")
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if calls.Load() == 0 {
			t.Error("the flush did not give way")
		}
	}
	// Unless that has happened by itself.
	if err := s.db.Compact(t.Context(), []byte("a"), []byte("c"), false); err != nil {
		t.Fatal(err)
	}
	for category := range behind {
		if _, ok := fs.seen.Load(category); !ok {
			t.Errorf("Pebble says of no table %q", category)
		}
	}
}

// Who writes a table gives way for what it has worked since it did so last, and goes on
// without when it has fallen behind.
func TestGivingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m pebble.Metrics
		p := &pacing{after: paceAfter, metrics: func() *pebble.Metrics { return &m }}
		table, err := watched{FS: vfs.NewMem(), pacing: p}.Create("f", "pebble-compaction")
		if err != nil {
			t.Fatal(err)
		}
		var told []time.Duration
		f := func(worked time.Duration) {
			told = append(told, worked)
			time.Sleep(10 * worked)
		}
		write := func(worked time.Duration) {
			t.Helper()
			time.Sleep(worked)
			if _, err := table.Write([]byte("block")); err != nil {
				t.Fatal(err)
			}
		}
		write(time.Minute) // there is nobody to give way to yet
		p.giveWay.Store(&f)
		write(paceAfter / 2)
		write(paceAfter / 2)
		write(3 * paceAfter)
		write(time.Minute) // which the disk has taken
		if want := []time.Duration{paceAfter, 3 * paceAfter, paceMost}; !slices.Equal(told, want) {
			t.Errorf("it gave way for %v, want %v", told, want)
		}
		m.Levels[0].Sublevels = manySublevels
		write(paceLooks)
		if len(told) != 3 {
			t.Errorf("it gave way while it was behind, for %v", told)
		}
		m.Levels[0].Sublevels = 0
		write(paceLooks)
		if len(told) != 4 {
			t.Error("it does not give way any more when it was behind once")
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
}
