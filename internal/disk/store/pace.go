package store

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pacing slows down flushes and compactions: a flush takes a processor for 50 ms, a
// compaction for a second or more, and other goroutines may need the processor.
type pacing struct {
	giveWay atomic.Pointer[func(worked time.Duration)]
	after   time.Duration          // for how long they work before they do
	metrics func() *pebble.Metrics // set before giveWay
}

const (
	// paceAfter is pacing.after.
	paceAfter = time.Millisecond
	// paceMost is the most work that counts at once: the rest of the time may be the disk's.
	paceMost = 5 * time.Millisecond
	// paceLooks is how often a writer checks whether it is behind.
	paceLooks = 20 * time.Millisecond
	// manySublevels is the number of sublevels from which compactions do not give way: a read
	// looks at each sublevel.
	manySublevels = 16
	// manyMemTables is the same for flushes: the memtable that is written to, the one that is
	// flushed, and another. When there is no room for more, writers wait.
	manyMemTables = 3
)

// behind says, for each kind of write of Pebble, when others wait for it. Kinds that are
// not listed do not give way.
var behind = map[vfs.DiskWriteCategory]func(*pebble.Metrics) bool{
	"pebble-compaction":     func(m *pebble.Metrics) bool { return m.Levels[0].Sublevels >= manySublevels },
	"pebble-memtable-flush": func(m *pebble.Metrics) bool { return m.MemTable.Count >= manyMemTables },
}

// GiveWay makes flushes and compactions call f repeatedly, with the time that they have
// worked since the last call. While f waits, they wait, unless they have fallen behind. f
// must not wait for a goroutine that may wait for the store.
func (s *Store) GiveWay(f func(worked time.Duration)) {
	s.pacing.metrics = s.db.Metrics
	s.pacing.giveWay.Store(&f)
}

// paced is a table that is being written.
type paced struct {
	vfs.File
	pacing   *pacing
	isBehind func(*pebble.Metrics) bool
	since    time.Time // when it gave way last
	looked   time.Time // when it looked last whether it is behind
	behind   bool
}

// Write implements vfs.File. Blocks come one after the other, from one goroutine at a time.
func (f *paced) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if worked := time.Since(f.since); worked >= f.pacing.after {
		if giveWay := f.pacing.giveWay.Load(); giveWay != nil {
			if now := time.Now(); now.Sub(f.looked) >= paceLooks {
				f.looked, f.behind = now, f.isBehind(f.pacing.metrics())
			}
			if !f.behind {
				(*giveWay)(min(worked, paceMost))
			}
		}
		f.since = time.Now()
	}
	return n, err
}
