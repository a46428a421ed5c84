package queue

import "testing"

// Very many entries came back, and expired behind one that did not. When that one goes, they are not looked at one by
// one in one command.
func TestWhatHasExpiredInTheReturnsListIsPassedAsAWhole(t *testing.T) {
	for _, kept := range []bool{false, true} {
		const n = 1000
		s := newScript(Config{Type: Quorum, MaxPriority: -1, Durable: true}, Unlimited())
		c := &Consumer{Tag: "c", Number: 1}
		s.Attach(1000, c)
		ids := []ID{s.publish(1000, -1)}
		for range n {
			ids = append(ids, s.publish(1000, 100))
		}
		s.Detach(1000, c)
		for _, id := range ids {
			s.Return(1000, id, c, ReturnNack)
		}
		if kept {
			s.KeepRest() // for a checkpoint, not collected yet
		}
		for s.Tick(2000, sliceLimit) {
		}
		if _, strays := s.Listed(); s.Totals().Ready != 1 || strays != n {
			t.Fatalf("%d are ready, %d have strayed; want 1 and %d", s.Totals().Ready, strays, n)
		}
		if d, ok, _ := s.GetFor(2000, nil, true); !ok || d.ID != ids[0] {
			t.Fatalf("got %v, want the one that has not expired", d.ID)
		}
		_, ok, _ := s.GetFor(2000, nil, true)
		if listed, strays := s.Listed(); ok || len(listed)+strays != 0 {
			t.Errorf("%d are listed, %d have strayed; want none", len(listed), strays)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}
