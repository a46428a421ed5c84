package queue

import (
	"testing"
)

// After the cut of a checkpoint a page is saved when its turn comes, and as it was
// at the cut, whatever has become of its entries.
func TestPagesAreSavedAsTheyWereAtTheCut(t *testing.T) {
	const n = 2*pageSize + 1
	a := newAway(Unlimited(), 0)
	a.fill(n, func() int64 { return 60_000 })
	writes := 0
	a.cold.onWrite = func() { writes++ }
	a.pages.Cut()
	for range 3 {
		d, ok := a.Get(a.now, false)
		if !ok || !a.Ack(d.ID, nil) {
			t.Fatal("nothing to be got")
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := a.find(makeID(0, 10))
	if writes != 0 || len(p.before) != 3 {
		t.Fatalf("%d pages were saved, %d entries have a before-image", writes, len(p.before))
	}
	if s := a.lanes[0].slots[0]; s.page != p || p.used != pageSize-1-3 {
		t.Fatalf("%d entries are left in the first page", p.used)
	}
	for c, done := (SaveCursor{}), false; !done; {
		c, done = a.SaveSome(c, 1)
	}
	a.pages.CutDone()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	d, err := a.pages.parse(a.cold.pages[PageID{0, 0, 1}])
	if err != nil {
		t.Fatal(err)
	}
	if d.live.count() != pageSize-1 || d.marks[1] != stateReady|flagLogged || d.dues[1] != a.now+60_001 || d.sizes[1] != 10 || d.at[1] != 1000 {
		t.Errorf("the copy has %d entries, the first of which is %x, due at %d, %d bytes, at %d", d.live.count(), d.marks[1], d.dues[1], d.sizes[1], d.at[1])
	}
	if p.dirty != a.pages.version || p.before != nil {
		t.Errorf("the page's last change belongs to version %d, it still has %d before-images", p.dirty, len(p.before))
	}
}

// A page whose last entry goes before it was saved is saved then; one in which too
// many go, or to which one comes, likewise.
func TestPagesAreSavedBeforeTheirTurn(t *testing.T) {
	for name, change := range map[string]func(*away){
		"many": func(a *away) {
			for range mostBefore + 1 {
				a.Get(a.now, true)
			}
		},
		"one comes":  func(a *away) { a.fill(1, func() int64 { return -1 }) },
		"all go":     func(a *away) { a.lanes[0].next *= 2; a.now += 2; a.Tick(a.now, sliceLimit) },
		"all purged": func(a *away) { a.Get(a.now, true); a.Purge(); a.BuryRest(1000) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAway(Unlimited(), 0)
			a.fill(100, func() int64 { return -1 })
			var saved []byte
			a.lanes[0].next = pageSize // that page is not being filled any more
			a.fill(7, func() int64 { return 1 })
			a.pages.Cut()
			a.cold.onWrite = func() {
				if saved == nil {
					saved = append(saved, a.cold.last...)
				}
			}
			change(a)
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			if saved == nil {
				t.Fatal("nothing was saved")
			}
			d, err := a.pages.parse(saved)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.live.count(); got != 100 && got != 7 {
				t.Errorf("the copy has %d entries", got)
			}
		})
	}
}
