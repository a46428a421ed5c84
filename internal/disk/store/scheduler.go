package store

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets Pebble do one compaction of a store at a time, which is what Pebble asks for unless it has other options
// (CompactionConcurrencyRange). Pebble's own looks ten times a second whether a store may do more; here that never changes, so that
// only the end of a compaction lets the next one begin, and an idle store costs nothing.
//
// Each store has its own. If they shared the one place, a compaction of the index, which gives way to everything else (see pacing), could keep
// the declarations waiting until nothing more can be written there.
//
// Invariant: while Pebble waits for a place, the place is taken, or grant is under way and will ask Pebble again.
// Locks of Pebble come before mu: TrySchedule is called with them held, and grant calls Schedule with mu released.
type scheduler struct {
	mu       sync.Mutex
	db       pebble.DBForCompaction // nil before Register and after Unregister
	taken    bool                   // a compaction has the place, or grant offers it
	refused  bool                   // Pebble has asked in vain since grant has begun to offer the place
	granting bool
	granted  sync.Cond // granting has become false
}

// newScheduler returns a scheduler that lets nothing begin before begin is called.
func newScheduler() *scheduler {
	s := &scheduler{taken: true}
	s.granted.L = &s.mu
	return s
}

// begin lets compactions begin: the store is open. Pebble may begin one while it opens a store; if the opening failed then, Pebble would
// close the tables that the compaction reads, and the process would end with Pebble's own trace in place of what is wrong.
func (s *scheduler) begin() { s.Done() }

// Register implements pebble.CompactionScheduler.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) {
	s.mu.Lock()
	s.db = db
	s.mu.Unlock()
}

// Unregister implements pebble.CompactionScheduler: it returns when Pebble will not be called any more. Compactions may still end.
func (s *scheduler) Unregister() {
	s.mu.Lock()
	s.db = nil
	for s.granting {
		s.granted.Wait()
	}
	s.mu.Unlock()
}

// TrySchedule implements pebble.CompactionScheduler. After a refusal Pebble does not ask again, but waits for Schedule.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return false, nil
	}
	if s.taken {
		s.refused = true
		return false, nil
	}
	s.taken = true
	return true, s
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler: one compaction is allowed, always.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {}

// Done implements pebble.CompactionGrantHandle: a compaction has ended, and whatever waits begins. Pebble holds no lock.
func (s *scheduler) Done() {
	s.mu.Lock()
	s.taken = false
	s.grant()
	s.mu.Unlock()
}

// grant offers the place until it is taken or nothing waits. REQUIRES: mu is held; it is released meanwhile.
func (s *scheduler) grant() {
	if s.granting { // a compaction that it let begin has ended already: its loop goes on
		return
	}
	s.granting = true
	for s.db != nil && !s.taken {
		s.taken, s.refused = true, false
		db := s.db
		s.mu.Unlock()
		accepted := db.Schedule(s)
		s.mu.Lock()
		if !accepted {
			s.taken = false
			if !s.refused {
				break
			}
		}
	}
	s.granting = false
	s.granted.Broadcast()
}

// Started, MeasureCPU and CumulativeStats implement pebble.CompactionGrantHandle.
func (s *scheduler) Started()                                          {}
func (s *scheduler) MeasureCPU(pebble.CompactionGoroutineKind)         {}
func (s *scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}
