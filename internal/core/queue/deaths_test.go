package queue

import (
	"testing"

	"bartleby.mq/internal/core/deadletter"
)

// An expired message needs no side row, and still has its reason and time of death, whatever happens before it is
// routed.
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
			if a.Survey(0)[0].Rows {
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

// rebased gives the entry a side row, because its column can no longer hold its moment.
func rebased(a *away, id ID) {
	a.SetMoment(a.Find(id), a.now+1<<40)
}
