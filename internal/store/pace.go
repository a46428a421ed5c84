package store

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pacing slows compactions down: these rewrite tables for a second or more, and take a
// processor meanwhile that somebody may be waiting for.
type pacing struct {
	giveWay atomic.Pointer[func(worked time.Duration)]
	after   time.Duration // for how long a compaction works before it does
	behind  func() bool   // whether many tables wait to be compacted; set before giveWay
}

const (
	// paceAfter is pacing.after.
	paceAfter = time.Millisecond
	// categoryCompaction is what Pebble says of the tables that a compaction writes.
	categoryCompaction vfs.DiskWriteCategory = "pebble-compaction"
	// paceMost is for how much of its work at once it does: a disk may have taken the rest.
	paceMost = 10 * time.Millisecond
	// paceLooks is how often it looks whether it is behind.
	paceLooks = 100 * time.Millisecond
	// manySublevels is from how many sublevels on compactions do not give way: a read looks at each.
	manySublevels = 16
)

// GiveWay has f called by compactions again and again, with how long they have worked
// since the last call; while f waits, so do they. They do not if they fall behind. f
// must not wait for anybody who may wait for the store.
func (s *Store) GiveWay(f func(worked time.Duration)) {
	s.pacing.behind = func() bool { return s.db.Metrics().Levels[0].Sublevels >= manySublevels }
	s.pacing.giveWay.Store(&f)
}

// paced is a table that a compaction writes.
type paced struct {
	vfs.File
	pacing *pacing
	since  time.Time // when it gave way last
	looked time.Time // when it looked last whether it is behind
	behind bool
}

// Write implements vfs.File. Blocks come one after the other, from one goroutine at a time.
func (f *paced) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if worked := time.Since(f.since); worked >= f.pacing.after {
		if giveWay := f.pacing.giveWay.Load(); giveWay != nil {
			if now := time.Now(); now.Sub(f.looked) >= paceLooks {
				f.looked, f.behind = now, f.pacing.behind()
			}
			if !f.behind {
				(*giveWay)(min(worked, paceMost))
			}
		}
		f.since = time.Now()
	}
	return n, err
}
