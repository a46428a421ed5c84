package store

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// begun is a scheduler of a store that is open.
func begun() *scheduler {
	s := newScheduler()
	s.begin()
	return s
}

// A store that is not open yet compacts nothing, however it ends; then what waits begins.
func TestCompactionsWaitUntilTheStoreIsOpen(t *testing.T) {
	for name, opens := range map[string]bool{"it opens": true, "it does not": false} {
		c := &compactor{s: newScheduler()}
		c.s.Register(1, c)
		c.ask(3)
		c.ended.Wait()
		if c.done != 0 {
			t.Errorf("%s: %d compactions before", name, c.done)
		}
		want := 0
		if opens {
			c.s.begin()
			want = 3
		}
		c.ended.Wait()
		c.s.Unregister()
		c.s.Done() // nothing begins after the end
		c.ended.Wait()
		if c.done != want || c.most > 1 {
			t.Errorf("%s: %d compactions, %d at once, want %d", name, c.done, c.most, want)
		}
	}
}

// compactor is what a scheduler knows of Pebble, and behaves as Pebble does.
type compactor struct {
	s *scheduler

	mu      sync.Mutex // is held when s is asked, and taken by Schedule
	todo    int        // compactions to be done
	waiting bool       // s has refused one, and is not asked again
	running int
	offers  int
	most    int // that ran at once
	done    int

	ended sync.WaitGroup // of the compactions that run
}

func (c *compactor) GetAllowedWithoutPermission() int { return 1 }

func (c *compactor) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	panic("it costs Pebble what Schedule costs, and tells less")
}

func (c *compactor) Schedule(h pebble.CompactionGrantHandle) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offers++
	if !c.waiting {
		return false
	}
	if c.todo == 0 {
		c.waiting = false
		return false
	}
	c.run(h)
	return true
}

// ask does n compactions more, and asks for them.
func (c *compactor) ask(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.todo += n
	for c.todo > 0 && !c.waiting {
		ok, h := c.s.TrySchedule()
		if !ok {
			c.waiting = true
			return
		}
		c.run(h)
	}
}

// run begins a compaction. REQUIRES: mu is held.
func (c *compactor) run(h pebble.CompactionGrantHandle) {
	c.todo--
	c.running++
	c.most = max(c.most, c.running)
	c.ended.Add(1)
	go func() { // ends at once
		defer c.ended.Done()
		h.Started()
		c.mu.Lock()
		c.running--
		c.done++
		c.mu.Unlock()
		h.Done()
		c.ask(0)
	}()
}

func newCompactor() *compactor {
	c := &compactor{s: begun()}
	c.s.Register(2, c)
	return c
}

func TestOneCompactionAtATime(t *testing.T) {
	s := newCompactor().s
	ok, h := s.TrySchedule()
	if !ok {
		t.Fatal("the first compaction was refused")
	}
	if ok, _ := s.TrySchedule(); ok {
		t.Error("two compactions have a place")
	}
	s.UpdateGetAllowedWithoutPermission()
	if ok, _ := s.TrySchedule(); ok {
		t.Error("two compactions have a place after an update")
	}
	h.Done()
	if ok, _ := s.TrySchedule(); !ok {
		t.Error("the place is not free after the compaction's end")
	}
}

func TestTheEndOfACompactionBeginsTheNext(t *testing.T) {
	c := newCompactor()
	c.ask(1000)
	c.ended.Wait()
	if c.done != 1000 || c.most != 1 || c.waiting {
		t.Errorf("%d of 1000 done, %d at once, one waits: %v", c.done, c.most, c.waiting)
	}
}

// Whoever asks when does not matter: all is done, nothing waits in vain.
func TestNoCompactionIsForgotten(t *testing.T) {
	const askers, each = 8, 500
	c := newCompactor()
	var asked sync.WaitGroup
	for range askers {
		asked.Go(func() {
			for range each {
				c.ask(1)
			}
		})
	}
	asked.Wait()
	c.ended.Wait()
	if c.done != askers*each || c.most != 1 || c.waiting {
		t.Errorf("%d of %d done, %d at once, one waits: %v", c.done, askers*each, c.most, c.waiting)
	}
	c.s.Unregister()
	if ok, _ := c.s.TrySchedule(); ok {
		t.Error("a store that is closed was given a place")
	}
}

// late asks in vain while the place is offered, and would not ask again.
type late struct {
	compactor
	asked atomic.Bool
}

func (l *late) Schedule(h pebble.CompactionGrantHandle) bool {
	if l.asked.CompareAndSwap(false, true) {
		ok := l.compactor.Schedule(h)
		l.ask(1)
		return ok
	}
	return l.compactor.Schedule(h)
}

func TestWhoAsksDuringAnOfferGetsAnother(t *testing.T) {
	l := &late{compactor: compactor{s: begun()}}
	l.s.Register(2, l)
	l.ask(1)
	l.ended.Wait()
	if l.done != 2 || l.offers < 2 {
		t.Errorf("%d of 2 done after %d offers", l.done, l.offers)
	}
}

// slow is offered a place until it may answer.
type slow struct {
	compactor
	offered, answer chan struct{}
}

func (s *slow) Schedule(h pebble.CompactionGrantHandle) bool {
	s.offered <- struct{}{}
	<-s.answer
	return s.compactor.Schedule(h)
}

func TestUnregisterWaitsForAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{compactor{s: begun()}, make(chan struct{}), make(chan struct{})}
		s.s.Register(2, s)
		s.ask(3) // the first runs, and its end offers the place to the second
		<-s.offered
		var unregistered atomic.Bool
		go func() {
			s.s.Unregister()
			unregistered.Store(true)
		}()
		synctest.Wait()
		if unregistered.Load() {
			t.Error("Unregister has returned while Pebble was called")
		}
		s.answer <- struct{}{}
		synctest.Wait()
		if !unregistered.Load() {
			t.Error("Unregister has not returned")
		}
		if s.done != 2 { // the third is not begun
			t.Errorf("%d compactions were done, want 2", s.done)
		}
	})
}

// Tables do not pile up in a store that is written to and flushed without a pause. Nothing but the end of one compaction has to
// happen for the next to begin: in the test no time passes.
func TestAStoreIsCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := OpenUnlogged(vfs.NewMem(), "index", slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, s)
		const flushes = 60
		for i := range flushes {
			for k := range 10 {
				if err := s.Put(fmt.Appendf(nil, "key %d", k), fmt.Appendf(nil, "value %d", i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		m := s.db.Metrics()
		if m.Compact.Count < 2 || m.Levels[0].TablesCount > 8 {
			t.Errorf("after %d flushes and %d compactions there are %d tables", flushes, m.Compact.Count, m.Levels[0].TablesCount)
		}
	})
}
