package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ledger is what a crash test knows to be true: what was appended, in order, how
// far commits were answered, and from which segment on the journal must remember.
type ledger struct {
	mu        sync.Mutex
	appended  []record
	committed Pos    // the highest position a Commit answered, plus one
	dropped   uint32 // segments below may be gone
	next      uint64
}

// append appends a frame in the same order to the ledger and the journal.
func (l *ledger) append(j *Journal, n int) Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := payload(l.next, n)
	l.next++
	pos := j.Append(p)
	l.appended = append(l.appended, record{pos, p})
	return pos
}

func (l *ledger) answered(pos Pos) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = max(l.committed, pos+1)
}

func (l *ledger) dropping(seg uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped = max(l.dropped, seg)
}

// promises is the ledger's knowledge at one moment.
type promises struct {
	committed Pos
	dropped   uint32
}

func (l *ledger) promises() promises {
	l.mu.Lock()
	defer l.mu.Unlock()
	return promises{l.committed, l.dropped}
}

// check fails unless got is a run of what was appended, without a hole, that starts
// no later than what had to be kept and holds every committed frame. before was
// taken before the crash, the rest of the ledger after it.
func (l *ledger) check(t testing.TB, got []record, before promises) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.appended
	if len(got) > 0 {
		i, ok := slices.BinarySearchFunc(kept, got[0].pos, func(r record, p Pos) int {
			switch {
			case r.pos < p:
				return -1
			case r.pos > p:
				return 1
			}
			return 0
		})
		if !ok {
			t.Fatalf("recovered a frame at %s, where none was appended", got[0].pos)
		}
		kept = kept[i:]
	}
	samePrefix(t, got, kept)
	have := make(map[Pos]bool, len(got))
	for _, r := range got {
		have[r.pos] = true
	}
	for _, r := range l.appended {
		if r.pos < before.committed && r.pos.Segment() >= l.dropped && !have[r.pos] {
			t.Fatalf("the committed frame at %s is lost (recovered %d frames, segments below %d may be gone)", r.pos, len(got), l.dropped)
		}
	}
}

// recovered makes the ledger forget what a crash took, and what was promised after
// the crash to those who did not notice it.
func (l *ledger) recovered(got []record) {
	l.appended, l.committed, l.dropped = slices.Clone(got), 0, 0
	if n := len(got); n > 0 {
		l.committed, l.dropped = got[n-1].pos+1, got[0].pos.Segment()
	}
}

func crashClone(fs *vfs.MemFS, rng *rand.Rand) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 20, 50, 80, 100}[rng.IntN(5)], RNG: rng})
}

// TestCrashAtRandomPoints crashes one journal again and again, each time going on
// from what the crash left, with appenders, committers, a flusher and a dropper at work.
func TestCrashAtRandomPoints(t *testing.T) {
	t.Parallel()
	runs, generations := 40, 12
	if testing.Short() {
		runs = 3
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			fs := vfs.NewCrashableMem()
			var l ledger
			var promised promises
			for range generations {
				j, got, err := tryOpen(fs)
				if err != nil {
					t.Fatal(err)
				}
				l.check(t, got, promised)
				l.recovered(got)
				fs, promised = crashUnderLoad(t, fs, j, &l, rng)
			}
			_, got := open(t, fs)
			l.check(t, got, promised)
		})
	}
}

// crashUnderLoad works on j from many goroutines and takes the state a crash leaves
// at some point on the way.
func crashUnderLoad(t *testing.T, fs *vfs.MemFS, j *Journal, l *ledger, rng *rand.Rand) (*vfs.MemFS, promises) {
	var wg sync.WaitGroup
	total, crashAt := 160, rng.IntN(160)
	done := make(chan struct{}, total)
	for w := range 4 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(w)))
		wg.Go(func() {
			for range total / 4 {
				pos := l.append(j, 8+rng.IntN(1200))
				switch rng.IntN(6) {
				case 0, 1:
					if err := j.Commit(pos); err != nil {
						t.Error(err)
					}
					l.answered(pos)
				case 2:
					j.NotifyCommitted(pos, func() { l.answered(pos) })
				case 3:
					if err := j.Flush(); err != nil {
						t.Error(err)
					}
				case 4:
					if seg := pos.Segment(); seg > 4 {
						l.dropping(seg - 3)
						if err := j.Retire(seg-3, nil); err != nil {
							t.Error(err)
						}
					}
				}
				done <- struct{}{}
			}
		})
	}
	for range crashAt {
		<-done
	}
	promised := l.promises()
	crashed := crashClone(fs, rng)
	wg.Wait()
	closeJournal(t, j)
	return crashed, promised
}

// A killed process leaves bytes in the kernel's cache only. Once Recover has shown
// them to its caller they must survive the machine, too.
func TestRecoveredFramesAreDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	j, _ := open(t, fs)
	var want []record
	for i := range 30 {
		p := payload(uint64(i), 700)
		want = append(want, record{j.Append(p), p})
		if i == 10 {
			if err := j.Commit(want[i].pos); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	// The process is killed here: j is never closed.
	j, got := open(t, fs)
	same(t, got, want)
	if last := want[len(want)-1].pos; j.Committed() <= last {
		t.Errorf("Committed() = %s, want more than %s", j.Committed(), last)
	}
	_, got = open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	same(t, got, want)
}

// TestCrashAtEveryFailpoint crashes at each named step of a history that takes
// them all, the steps of the recovery after it included.
func TestCrashAtEveryFailpoint(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int)
	seeds := 16
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 6))
		fs := vfs.NewCrashableMem()
		var l ledger
		var j *Journal
		verify := func(name string) {
			seen[name]++
			promised := l.promises()
			clone := crashClone(fs, rng)
			var second *vfs.MemFS // crashed in the middle of recovering from the first crash
			j, got, err := tryOpen(clone, func(o *Options) {
				o.Failpoint = func(name string) {
					if name == FailRecoverMid {
						second = crashClone(clone, rng)
					}
				}
			})
			if err != nil {
				t.Fatalf("crash at %s: %v", name, err)
			}
			l.check(t, got, promised)
			p := payload(1<<50, 700)
			pos := j.Append(p)
			if err := j.Commit(pos); err != nil {
				t.Fatal(err)
			}
			third := crashClone(clone, rng)
			closeJournal(t, j)
			if _, again, err := tryOpen(third); err != nil {
				t.Fatalf("crash at %s, again after recovery: %v", name, err)
			} else {
				same(t, again, append(got, record{pos, p}))
			}
			if second == nil {
				return // there was nothing to recover
			}
			if _, again, err := tryOpen(second); err != nil {
				t.Fatalf("crash at %s, again in recovery: %v", name, err)
			} else {
				l.check(t, again, promised)
			}
		}
		hook := func(o *Options) { o.Failpoint, o.KeepDir = verify, testKeepDir }
		j, _ = open(t, fs, hook)
		for i := range 60 {
			pos := l.append(j, 8+rng.IntN(2500))
			var err error
			switch rng.IntN(4) {
			case 0:
				if err = j.Commit(pos); err == nil {
					l.answered(pos)
				}
			case 1:
				err = j.Flush()
			case 2:
				if seg := pos.Segment(); seg > 3 {
					l.dropping(seg - 2)
					err = j.Retire(seg-2, odd)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if i%25 == 24 {
				closeJournal(t, j)
				var got []record
				j, got = open(t, fs, hook)
				l.check(t, got, l.promises())
			}
		}
		closeJournal(t, j)
	}
	for _, name := range Failpoints {
		if seen[name] == 0 {
			t.Errorf("failpoint %s was never reached", name)
		}
	}
}
