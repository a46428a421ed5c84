package journal

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// syncCounter counts data syncs and calls hold before each.
type syncCounter struct {
	syncs atomic.Int64
	hold  func()
}

func (c *syncCounter) String() string { return "sync-counter" }

func (c *syncCounter) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileSyncData {
		c.syncs.Add(1)
		c.hold()
	}
	return nil
}

func TestCommittersWhoComeMeanwhileShareTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		count := &syncCounter{hold: func() { <-gate }}
		j, _ := open(t, errorfs.Wrap(vfs.NewMem(), count))
		var returned atomic.Int64
		commit := func(n int) {
			for i := range n {
				pos := j.Append(payload(uint64(i), 100))
				go func() {
					if err := j.Commit(pos); err != nil {
						t.Error(err)
					}
					returned.Add(1)
				}()
			}
			synctest.Wait()
		}
		commit(1)
		commit(50) // all of them wait for the first round to end
		if n := returned.Load(); n != 0 {
			t.Fatalf("%d commits returned before any sync did", n)
		}
		gate <- struct{}{}
		synctest.Wait()
		if n := returned.Load(); n != 1 {
			t.Fatalf("%d commits returned after the first sync, want 1", n)
		}
		commit(5) // for the third round
		gate <- struct{}{}
		synctest.Wait()
		if n := returned.Load(); n != 51 {
			t.Fatalf("%d commits returned after the second sync, want 51", n)
		}
		gate <- struct{}{}
		synctest.Wait()
		if n, s := returned.Load(), count.syncs.Load(); n != 56 || s != 3 {
			t.Fatalf("%d commits returned after %d syncs, want 56 after 3", n, s)
		}
		close(gate)
		closeJournal(t, j)
	})
}

func TestFlushWaitsForALeaderAndPassesTheTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		count := &syncCounter{hold: func() { <-gate }}
		j, _ := open(t, errorfs.Wrap(vfs.NewMem(), count))
		var done sync.WaitGroup
		commit := func() {
			pos := j.Append(payload(1, 100))
			done.Go(func() {
				if err := j.Commit(pos); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		flush := func() {
			j.Append(payload(2, 100))
			done.Go(func() {
				if err := j.Flush(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		commit() // leads and hangs in its sync
		flush()
		commit()
		flush()
		flush()
		commit()
		close(gate)
		done.Wait()
		if j.Buffered() != 0 {
			t.Errorf("Buffered() = %d after all flushed", j.Buffered())
		}
		closeJournal(t, j)
	})
}

// A Flush with nothing of its own to write is woken in place of a committer who came
// after it, and must wake him.
func TestFlushThatFindsAllWrittenPassesTheTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		j, _ := open(t, errorfs.Wrap(vfs.NewMem(), &syncCounter{hold: func() { <-gate }}))
		var done sync.WaitGroup
		start := func(call func() error) {
			done.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		first := j.Append(payload(1, 100))
		start(func() error { return j.Commit(first) }) // leads and hangs in its sync
		start(j.Flush)
		second := j.Append(payload(2, 100))
		start(func() error { return j.Commit(second) })
		close(gate)
		done.Wait() // a lost wake-up is a deadlock here
		closeJournal(t, j)
	})
}

func TestNotifyCommitted(t *testing.T) {
	j, _ := open(t, vfs.NewMem())
	var order []int
	a := j.Append(payload(1, 8))
	j.NotifyCommitted(a, func() { order = append(order, 1) })
	j.NotifyCommitted(a, func() { order = append(order, 2) })
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(order) != 0 {
		t.Fatal("notified by a Flush, which syncs nothing")
	}
	if err := j.Commit(a); err != nil {
		t.Fatal(err)
	}
	j.NotifyCommitted(a, func() { order = append(order, 3) }) // at once
	b := j.Append(payload(2, 8))
	j.NotifyCommitted(b, func() {
		order = append(order, 4)
		j.Append(payload(3, 8)) // allowed
	})
	if err := j.Commit(a); err != nil { // is durable: starts nothing
		t.Fatal(err)
	}
	if !slices.Equal(order, []int{1, 2, 3}) {
		t.Fatalf("called %v, want 1 2 3", order)
	}
	closeJournal(t, j)
	if !slices.Equal(order, []int{1, 2, 3, 4}) {
		t.Fatalf("called %v, want 1 2 3 4", order)
	}
}

// TestNoWakeUpIsLost has many goroutines commit, flush, wait for notices and read at once; a
// lost wake-up hangs it.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for _, workers := range []int{2, 3, 16, 64} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			count := &syncCounter{hold: runtime.Gosched}
			fs := vfs.NewMem()
			j, _ := open(t, errorfs.Wrap(fs, count), func(o *Options) { o.SegmentBytes = 1 << 20 })
			var wg sync.WaitGroup
			var notices, notified atomic.Int64
			for w := range workers {
				rng := rand.New(rand.NewPCG(uint64(w), 11))
				wg.Go(func() {
					for i := range rounds {
						p := payload(uint64(w*rounds+i), 8+rng.IntN(200))
						pos := j.Append(p)
						switch rng.IntN(8) {
						case 0:
							if err := j.Flush(); err != nil {
								t.Error(err)
							}
						case 1:
							notices.Add(1)
							j.NotifyCommitted(pos, func() { notified.Add(1) })
						case 2:
							if got, err := j.ReadAt(j.PayloadPos(pos), len(p), nil); err != nil || !slices.Equal(got, p) {
								t.Errorf("frame at %s reads back wrong: %v", pos, err)
							}
						}
						if err := j.Commit(pos); err != nil {
							t.Error(err)
						}
						if j.Committed() <= pos {
							t.Errorf("Commit(%s) returned with Committed() = %s", pos, j.Committed())
						}
					}
				})
			}
			wg.Wait()
			closeJournal(t, j)
			if notified.Load() != notices.Load() {
				t.Errorf("%d notices of %d came", notified.Load(), notices.Load())
			}
			_, got := open(t, fs)
			if len(got) != workers*rounds {
				t.Errorf("recovered %d frames of %d", len(got), workers*rounds)
			}
		})
	}
}

func TestFailureFreesEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		inject := &failNth{match: func(op errorfs.Op) bool {
			if op.Kind == errorfs.OpFileSyncData {
				<-gate
				return true
			}
			return false
		}}
		fatals := 0
		j, _ := open(t, errorfs.Wrap(vfs.NewMem(), inject), func(o *Options) { o.OnFatal = func(error) { fatals++ } })
		var failed atomic.Int64
		for range 20 {
			pos := j.Append(payload(1, 100))
			go func() {
				if j.Commit(pos) != nil {
					failed.Add(1)
				}
			}()
			synctest.Wait() // one leads and hangs; the others wait for the next round
		}
		go func() {
			if j.Flush() != nil {
				failed.Add(1)
			}
		}()
		close(gate)
		synctest.Wait()
		if failed.Load() != 21 || fatals != 1 {
			t.Errorf("%d of 21 waiters got the error, OnFatal was called %d times", failed.Load(), fatals)
		}
		if j.Close() == nil {
			t.Error("Close after a failure reports nothing")
		}
	})
}

func TestCloseWhileOthersCommit(t *testing.T) {
	for range 50 {
		fs := vfs.NewMem()
		j, _ := open(t, fs)
		var wg sync.WaitGroup
		var committed atomic.Int64
		for range 4 {
			wg.Go(func() {
				for j.Commit(j.Append(payload(1, 50))) == nil {
					committed.Add(1)
				}
			})
		}
		closeJournal(t, j)
		wg.Wait()
		_, got := open(t, fs)
		if int64(len(got)) < committed.Load() {
			t.Fatalf("recovered %d frames of %d committed", len(got), committed.Load())
		}
	}
}

// Sync makes durable what was appended, a whole segment and a new one included.
func TestSync(t *testing.T) {
	j, _ := open(t, vfs.NewMem())
	for round := range 3 {
		if err := j.Sync(); err != nil {
			t.Fatalf("round %d, nothing new: %v", round, err)
		}
		var last Pos
		for k := range 20 {
			last = j.Append(payload(uint64(k), 500))
		}
		if err := j.Sync(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if j.Committed() <= last {
			t.Fatalf("round %d: durable up to %s, the last frame is at %s", round, j.Committed(), last)
		}
	}
}
