package queue

import (
	"testing"

	"bartleby.mq/internal/core/deadletter"
)

// What expires needs no side row, and tells all the same why and when it died, whatever
// becomes of it before it is routed.
func TestWhatExpiresTellsWhyByItself(t *testing.T) {
	const n, late = 10, 7
	for name, then := range map[string]func(a *away, id ID){
		"nothing": func(*away, ID) {},
		"held":    func(a *away, id ID) { a.Hold(id) },
		"rebased": rebased,
		"both":    func(a *away, id ID) { rebased(a, id); a.Hold(id) },
	} {
		t.Run(name, func(t *testing.T) {
			s := Unlimited()
			s.DeadLetter = true
			a := newAway(s, 1)
			a.fill(n, func() int64 { return 60_000 })
			a.now += 60_000 + late
			a.Tick(a.now, sliceLimit)
			if a.Waiting() != n {
				t.Fatalf("%d deaths wait", a.Waiting())
			}
			id := a.dying[n/2].id
			if p, _ := a.find(id); p.rows != nil {
				t.Error("there are side rows")
			}
			then(a, id)
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			d, held := a.Held(id)
			if !held {
				d = a.Deaths(n, nil)[n/2]
			}
			if d.ID != id || d.Reason != deadletter.Expired || d.At != a.now || d.By != nil {
				t.Errorf("%d died of %v at %d, want %d at %d", d.ID, d.Reason, d.At, id, a.now)
			}
		})
	}
}

// rebased gives the entry a side row, since its column cannot tell its moment any more.
func rebased(a *away, id ID) {
	p, _ := a.find(id)
	a.rebase(p, p.base-2*maxOffset)
	a.noteAll(p)
}

// The moments that a look at a page has found stay true whatever comes, changes and goes
// between them: what dies, dies in the order of its moments.
func TestWhatComesNextIsLookedForOnce(t *testing.T) {
	a := newAway(Unlimited(), 1)
	next := int64(100)
	a.fill(pageSize, func() int64 { next += 10; return next })
	a.fill(1, func() int64 { return -1 }) // the first page is not being filled any more
	a.run(t, a.now+115)
	p, _ := a.find(makeID(0, 200))
	if len(a.ids) != 1 || p.comes != mostComing {
		t.Fatalf("%d have died, %d come", len(a.ids), p.comes)
	}
	a.Take(makeID(0, 3)) // one of those that come
	sooner, i := a.find(makeID(0, 250))
	a.setDue(makeID(0, 250), sooner, i, a.now+12) // another comes before most of them
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	a.run(t, a.now+200)
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	for k := 1; k < len(a.died); k++ {
		if a.died[k] < a.died[k-1] {
			t.Fatalf("the moments of the deaths are %v", a.died)
		}
	}
	if len(a.ids) != 21 { // 20 in 200 ms and one before, one less and one more
		t.Errorf("%d have died", len(a.ids))
	}
}
