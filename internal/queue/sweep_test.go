package queue

import "testing"

// warm are the places of the pages of the lane that have bodies in memory.
func (a *away) warm() (list []int) {
	for k, s := range a.lanes[0].slots {
		if s.page != nil && !s.page.cool {
			list = append(list, k)
		}
	}
	return list
}

// However often bodies are put away, those go first that are needed last, and none is
// looked for where there cannot be any.
func TestBodiesArePutAwayFromTheTailOn(t *testing.T) {
	const pages, hot = 40, 2
	a := newAway(Unlimited(), hot)
	never := func() int64 { return -1 }
	sweep := func(limit int) (handled int) {
		a.SweepAgain(false)
		return a.PutAway(limit, false)
	}
	for round := range 3 {
		a.fill(pages*pageSize, never)
		for left := pages - 2*hot; left > 0; left -= 5 {
			sweep(5)
			warm := a.warm()
			if n := len(warm); n < 2*hot || n > max(0, left-5)+2*hot+1 {
				t.Fatalf("round %d: %d pages have bodies in memory of %d", round, n, left+2*hot)
			}
			for k, place := range warm[:len(warm)-hot-1] {
				if place != k {
					t.Fatalf("round %d: page %d was put away before others that are needed later: %v", round, k, warm)
				}
			}
		}
		sweep(1000)
		a.fill(3*pageSize, never)
		if handled := sweep(1000); handled < 3 || handled > 4 {
			t.Errorf("round %d: %d pages were looked at for 3 that had come", round, handled)
		}
		a.Purge()
		for a.BuryRest(sliceLimit) {
		}
	}
}
