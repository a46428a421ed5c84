package topology

import (
	"fmt"
	"testing"
)

// A snapshot is taken with everything locked: it copies pointers, whatever there is, and is put in order later.
func TestASnapshotIsTakenInFewSteps(t *testing.T) {
	f := newFixture(t, Options{})
	const queues = 500
	for i := range queues {
		f.queue(durableQueue(fmt.Sprintf("q%03d", queues-i)))
	}
	v := f.vhosts[vh]
	if n := testing.AllocsPerRun(10, func() { v.Snapshot() }); n > 4 {
		t.Errorf("%v allocations for %d queues", n, queues)
	}
	s := v.Snapshot()
	if list := s.Bindings(); len(list) != queues || list[0].Key != "q001" || s.Queues()[queues-1].Name != "q500" {
		t.Errorf("%d bindings", len(list))
	}
}
