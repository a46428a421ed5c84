package queue

import (
	"bytes"
	"testing"
)

// A death that cannot be read keeps nothing behind it: later deaths that were routed are forgotten. It stays in the
// queue, dead, and in its place after a restore.
func TestSpoiltDeathKeepsNothingBehindIt(t *testing.T) {
	const n, rounds = 4, 100
	s := Unlimited()
	s.DeadLetter = true
	a, twin := newAway(s, 1), newAway(s, 1)
	die := func() {
		for _, x := range []*away{a, twin} {
			x.fill(n, func() int64 { return 1 })
			x.now += 10
			x.Tick(x.now, sliceLimit)
		}
	}
	die()
	first := a.Deaths(n, nil)
	a.Spoil(first[0].ID)
	a.Spoil(first[2].ID)
	bury := func(from int) {
		for _, d := range a.Deaths(-1, nil)[from:] {
			a.Bury(d.ID)
			twin.Bury(d.ID)
		}
	}
	bury(1) // the second is there: the third is still behind it
	for range rounds {
		die()
		bury(1)
		if !a.Awaits(2) {
			t.Fatal("the second death is not awaited")
		}
	}
	bury(0)
	if a.HasDeaths() || a.Awaits(a.DeathCount()) || a.Totals().Dying != 2 {
		t.Errorf("deaths wait: %v; %d are dead in the queue, want 2", a.HasDeaths(), a.Totals().Dying)
	}
	if !bytes.Equal(a.AppendRest(nil), twin.AppendRest(nil)) {
		t.Error("another order is restored")
	}
	for range rounds {
		die()
		bury(0)
		if a.HasDeaths(); a.Waiting() != 0 {
			t.Fatalf("%d deaths are kept that are gone", a.Waiting())
		}
	}
	left := 0
	a.RangeDeaths(func(d Death) {
		if left++; d.At == 0 || d.ID != first[0].ID && d.ID != first[2].ID {
			t.Errorf("%v is left, died at %d", d.ID, d.At)
		}
	})
	if left != 2 {
		t.Errorf("%d are left, want 2", left)
	}
	if a.Hold(first[0].ID); a.Totals().Held != 1 {
		t.Error("it is not held")
	}
	if d, _ := a.Held(first[0].ID); d.At != first[0].At {
		t.Errorf("it died at %d, want %d", d.At, first[0].At)
	}
	a.Discard(first[2].ID, nil, false)
	if len(a.unread) != 0 {
		t.Errorf("%d are known that are gone", len(a.unread))
	}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}
